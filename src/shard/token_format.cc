#include "shard/token_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/number.h"

namespace millrace {

namespace {

constexpr std::string_view kBin = ".bin";
constexpr std::string_view kIdx = ".idx";
constexpr uint64_t kMaxLength = kMaxRecordBytes / sizeof(uint64_t);  // of a sample, in tokens of any type
constexpr uint64_t kMaxBinBytes = uint64_t{1} << 62;
constexpr uint64_t kStepBytes = 64 << 10;  // a multiple of what any number takes
constexpr uint64_t kLengthBytes = sizeof(int32_t);
constexpr uint64_t kOffsetBytes = sizeof(int64_t);

// The index is Megatron's code. Code 0 has no type.
constexpr std::string_view kMegatronTypes[] = {"", "u1", "i1", "i2", "i4", "i8", "f8", "f4", "u2"};

std::string WithSuffix(std::string_view key, std::string_view old_suffix, std::string_view suffix) {
  return std::string(key.substr(0, key.size() - old_suffix.size())).append(suffix);
}

absl::Status DamagedTokens(uint64_t offset, std::string_view what) {
  return absl::DataLossError(fmt::format("offset {}: {}", offset, what));
}

}  // namespace

absl::StatusOr<TokenArrays> ParseTokenArrays(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view length = text.substr(0, colon);
  TokenArrays arrays;
  const std::optional<uint64_t> number = ParseNumber<uint64_t>(length);
  arrays.length = number.value_or(0);
  bool good = number.has_value();
  if (colon != std::string_view::npos) {
    arrays.type = ParseNumpyName(text.substr(colon + 1));
    good = good && arrays.type.has_value();
  }
  if (!good) {
    return absl::InvalidArgumentError(
        fmt::format("\"{}\" is not LENGTH[:TYPE] such as 2048 or 1024:uint16; types are int8 to int64, uint8 to uint64 "
                    "and float16 to float64",
                    text));
  }
  if (arrays.length == 0 || arrays.length > kMaxLength) {
    return absl::InvalidArgumentError(fmt::format("samples of {} tokens; choose 1 to {}", arrays.length, kMaxLength));
  }
  return arrays;
}

std::string ToString(const TokenArrays& arrays) {
  return arrays.type ? fmt::format("{}:{}", arrays.length, NumpyName(*arrays.type)) : fmt::format("{}", arrays.length);
}

absl::Status AgreeOnType(TokenArrays* arrays, NumberType type) {
  if (arrays->type && *arrays->type != type) {
    return absl::InvalidArgumentError(
        fmt::format("its numbers are {}; a data set has tokens of one type, and that of --tokens or of the first array "
                    "is {}",
                    NumpyName(type), NumpyName(*arrays->type)));
  }
  arrays->type = type;
  return absl::OkStatus();
}

bool IsNpy(std::string_view key) {
  return key.ends_with(".npy");
}

bool IsTokenArray(std::string_view key) {
  return key.ends_with(kBin) || IsNpy(key);
}

bool IsMegatronBin(std::string_view key) {
  return key.ends_with(kBin);
}

bool IsMegatronIdx(std::string_view key) {
  return key.ends_with(kIdx);
}

std::string IdxOfBin(std::string_view bin_key) {
  return WithSuffix(bin_key, kBin, kIdx);
}

std::string BinOfIdx(std::string_view idx_key) {
  return WithSuffix(idx_key, kIdx, kBin);
}

uint64_t MegatronIdxParser::PartBytes() const {
  switch (part_) {
    case Part::kHead:
      return kMegatronHeadBytes;
    case Part::kLengths:
      return sequence_count_ * kLengthBytes;
    case Part::kOffsets:
      return sequence_count_ * kOffsetBytes;
    case Part::kDocuments:
      return document_count_ * kOffsetBytes;
    case Part::kModes:
      return mode_count_;
    case Part::kEnd:
      break;
  }
  return 0;
}

absl::Status MegatronIdxParser::Feed(ByteSpan chunk) {
  bytes_.Begin(chunk);
  while (true) {
    while (left_ == 0 && part_ != Part::kEnd) {
      part_ = static_cast<Part>(static_cast<uint8_t>(part_) + 1);
      left_ = PartBytes();
    }
    const uint64_t offset = bytes_.position();
    if (part_ == Part::kEnd) {
      return bytes_.Take(1) ? DamagedTokens(offset, "bytes follow the end of this .idx") : absl::OkStatus();
    }
    const std::optional<ByteSpan> piece = bytes_.Take(std::min(left_, kStepBytes));
    if (!piece) return absl::OkStatus();
    left_ -= piece->size();
    RETURN_IF_ERROR(Read(offset, *piece));
  }
}

absl::Status MegatronIdxParser::Read(uint64_t offset, ByteSpan bytes) {
  switch (part_) {
    case Part::kHead:
      return ReadHead(bytes);
    case Part::kLengths:
      return ReadLengths(offset, bytes);
    case Part::kOffsets:
      return ReadOffsets(offset, bytes);
    case Part::kDocuments:
      return ReadDocuments(offset, bytes);
    case Part::kModes:
    case Part::kEnd:
      break;
  }
  return absl::OkStatus();
}

absl::Status MegatronIdxParser::ReadHead(ByteSpan head) {
  if (!AsText(head).starts_with(kMegatronMagic)) {
    return absl::InvalidArgumentError("offset 0: this is no .idx of Megatron (it does not begin with MMIDIDX)");
  }
  const std::byte* at = head.data() + kMegatronMagic.size();
  const auto version = LoadLe<uint64_t>(at);
  const auto code = static_cast<uint8_t>(at[8]);
  sequence_count_ = LoadLe<uint64_t>(at + 9);
  document_count_ = LoadLe<uint64_t>(at + 17);
  if (version != 1) {
    return absl::InvalidArgumentError(
        fmt::format("offset {}: an .idx of version {}; version 1 is read", kMegatronMagic.size(), version));
  }
  if (code == 0 || code >= std::size(kMegatronTypes)) {
    return DamagedTokens(kMegatronMagic.size() + 8, fmt::format("tokens of the unknown type {}", code));
  }
  sequences_.type = *ParseNumberType(kMegatronTypes[code]);
  // The counts are checked against the size, so that no memory is allocated for sequences that do not exist.
  constexpr uint64_t kSequenceBytes = kLengthBytes + kOffsetBytes;
  const uint64_t size = idx_bytes_ - std::min<uint64_t>(idx_bytes_, kMegatronHeadBytes);
  const bool fit = sequence_count_ <= size / kSequenceBytes &&
                   document_count_ <= (size - sequence_count_ * kSequenceBytes) / kOffsetBytes;
  const uint64_t rest = fit ? size - sequence_count_ * kSequenceBytes - document_count_ * kOffsetBytes : 0;
  if (!fit || (rest != 0 && rest != sequence_count_)) {
    return DamagedTokens(
        kMegatronMagic.size() + 9,
        fmt::format("{} sequences and {} documents do not make an .idx of {} bytes: it is truncated or damaged",
                    sequence_count_, document_count_, idx_bytes_));
  }
  mode_count_ = rest;
  sequences_.lengths.reserve(sequence_count_);
  return absl::OkStatus();
}

absl::Status MegatronIdxParser::ReadLengths(uint64_t offset, ByteSpan numbers) {
  const uint64_t most = kMaxRecordBytes / sequences_.type.size;
  for (uint64_t at = 0; at < numbers.size(); at += kLengthBytes) {
    const auto length = LoadLe<uint32_t>(numbers.data() + at);
    const uint64_t sequence = sequences_.lengths.size();
    if (length > INT32_MAX) {
      return DamagedTokens(offset + at,
                           fmt::format("sequence {} has {} tokens", sequence, static_cast<int32_t>(length)));
    }
    if (length > most) {
      return absl::InvalidArgumentError(fmt::format("offset {}: sequence {} has {} tokens; at most {} are read",
                                                    offset + at, sequence, length, most));
    }
    sequences_.lengths.push_back(length);
    sequences_.bytes += uint64_t{length} * sequences_.type.size;
    if (sequences_.bytes > kMaxBinBytes)
      return DamagedTokens(offset + at, "its sequences have more bytes than any object");
  }
  return absl::OkStatus();
}

absl::Status MegatronIdxParser::ReadOffsets(uint64_t offset, ByteSpan numbers) {
  for (uint64_t at = 0; at < numbers.size(); at += kOffsetBytes) {
    const auto found = LoadLe<uint64_t>(numbers.data() + at);
    if (found != next_offset_) {
      return DamagedTokens(offset + at,
                           fmt::format("sequence {} would begin at {} of the .bin, and those before it end at {}",
                                       next_sequence_, static_cast<int64_t>(found), next_offset_));
    }
    next_offset_ += uint64_t{sequences_.lengths[next_sequence_++]} * sequences_.type.size;
  }
  return absl::OkStatus();
}

absl::Status MegatronIdxParser::ReadDocuments(uint64_t offset, ByteSpan numbers) {
  for (uint64_t at = 0; at < numbers.size(); at += kOffsetBytes) {
    const auto document = LoadLe<uint64_t>(numbers.data() + at);
    if (document < last_document_ || document > sequence_count_) {
      return DamagedTokens(offset + at,
                           fmt::format("a document would begin at sequence {}, after one at {}, and there are {}",
                                       static_cast<int64_t>(document), last_document_, sequence_count_));
    }
    last_document_ = document;
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenSequences> MegatronIdxParser::Finish() {
  RETURN_IF_ERROR(Feed({}));  // parts without anything in them
  if (part_ == Part::kEnd) return std::move(sequences_);
  return DamagedTokens(bytes_.position() + bytes_.held(), "the .idx is truncated");
}

}  // namespace millrace
