#include "shard/token_scanner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/crypto.h"
#include "shard/npy.h"

namespace millrace {

namespace {
constexpr uint64_t kVersionBytes = 8;  // with the magic
}  // namespace

std::unique_ptr<ShardScanner> TokenScanner::OfSequences(TokenSequences sequences) {
  std::unique_ptr<TokenScanner> scanner(new TokenScanner(Form::kSequences));
  scanner->SetType(sequences.type);
  scanner->sequences_ = std::move(sequences.lengths);
  return scanner;
}

std::unique_ptr<ShardScanner> TokenScanner::OfBin(const TokenArrays& arrays) {
  std::unique_ptr<TokenScanner> scanner(new TokenScanner(Form::kBin));
  scanner->SetType(*arrays.type);
  scanner->length_ = arrays.length;
  return scanner;
}

std::unique_ptr<ShardScanner> TokenScanner::OfNpy(TokenArrays& arrays) {
  std::unique_ptr<TokenScanner> scanner(new TokenScanner(Form::kNpy));
  scanner->arrays_ = &arrays;
  scanner->length_ = arrays.length;
  scanner->head_next_ = kVersionBytes;
  return scanner;
}

void TokenScanner::SetType(NumberType type) {
  type_ = type;
  encoding_ = NpyDescr(type).substr(1) + "s";
}

absl::Status TokenScanner::Feed(ByteSpan chunk, ShardSink sink) {
  if (form_ == Form::kNpy && head_ != Head::kRead) {
    RETURN_IF_ERROR(FeedHead(&chunk));
    if (head_ != Head::kRead) return absl::OkStatus();
  }
  return Cut(chunk, sink);
}

// Takes the head off the front of the chunk.
absl::Status TokenScanner::FeedHead(ByteSpan* chunk) {
  const uint64_t begin = offset_;  // of the chunk
  head_bytes_.Begin(*chunk);
  while (head_ != Head::kRead) {
    const std::optional<ByteSpan> bytes = head_bytes_.Take(head_next_);
    if (!bytes) {
      offset_ = begin + chunk->size();
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(ReadHead(*bytes));
  }
  offset_ = head_bytes_.position();
  *chunk = chunk->subspan(offset_ - begin);
  return absl::OkStatus();
}

absl::Status TokenScanner::ReadHead(ByteSpan bytes) {
  switch (head_) {
    case Head::kVersion: {
      if (!AsText(bytes).starts_with(kNpyMagic))
        return absl::InvalidArgumentError("offset 0: this is not an .npy file");
      const auto version = static_cast<uint8_t>(bytes[kNpyMagic.size()]);
      if (version == 0 || version > 3) {
        return absl::InvalidArgumentError(
            fmt::format("offset {}: an .npy file of version {}; versions 1 to 3 are read", kNpyMagic.size(), version));
      }
      head_ = Head::kLength;
      head_next_ = version == 1 ? sizeof(uint16_t) : sizeof(uint32_t);
      return absl::OkStatus();
    }
    case Head::kLength:
      head_next_ = head_next_ == sizeof(uint16_t) ? LoadLe<uint16_t>(bytes.data()) : LoadLe<uint32_t>(bytes.data());
      if (head_next_ > kMaxNpyDictBytes) {
        return absl::InvalidArgumentError(
            fmt::format("offset {}: the head of this .npy file has {} bytes; at most {} are read", kVersionBytes,
                        head_next_, kMaxNpyDictBytes));
      }
      head_ = Head::kDict;
      return absl::OkStatus();
    case Head::kDict:
      head_ = Head::kRead;
      return Annotate(ReadDict(AsText(bytes)), "offset 0");
    case Head::kRead:
      break;
  }
  return absl::OkStatus();
}

absl::Status TokenScanner::ReadDict(std::string_view dict) {
  ASSIGN_OR_RETURN(const NpyHead head, ParseNpyDict(dict));
  if (head.shape.empty() || head.shape.size() > 2) {
    return absl::InvalidArgumentError(fmt::format(
        "an array with {} axes; token files have one, or two with a sample in each row", head.shape.size()));
  }
  if (head.shape.size() == 2 && head.shape[1] != length_) {
    return absl::InvalidArgumentError(
        fmt::format("its rows have {0} tokens, not {1}: index it with --tokens {0}", head.shape[1], length_));
  }
  const std::optional<uint64_t> count = CountOf(head.shape);
  if (!count) return absl::DataLossError("it would have more numbers than any object");
  RETURN_IF_ERROR(AgreeOnType(arrays_, head.type));
  SetType(head.type);
  left_ = *count;
  return absl::OkStatus();
}

// Returns false at the end.
bool TokenScanner::BeginSample() {
  uint64_t tokens = length_;
  if (form_ == Form::kSequences) {
    if (samples_ == sequences_.size()) return false;
    tokens = sequences_[samples_];
  } else if (form_ == Form::kNpy) {
    if (left_ == 0) return false;
    tokens = std::min(length_, left_);
    left_ -= tokens;
  }
  open_ = true;
  wanted_ = tokens * type_.size;
  got_ = 0;
  crc_ = 0;
  return true;
}

absl::Status TokenScanner::Cut(ByteSpan bytes, ShardSink sink) {
  while (true) {
    if (!open_ && !BeginSample()) {
      if (bytes.empty()) return absl::OkStatus();
      return absl::DataLossError(fmt::format("offset {}: bytes follow the last of its {} samples", offset_, samples_));
    }
    const ByteSpan part = bytes.first(static_cast<size_t>(std::min<uint64_t>(bytes.size(), wanted_ - got_)));
    crc_ = Crc32c(part, crc_);
    got_ += part.size();
    offset_ += part.size();
    bytes = bytes.subspan(part.size());
    if (got_ < wanted_) return absl::OkStatus();
    RETURN_IF_ERROR(EndSample(sink));
  }
}

absl::Status TokenScanner::EndSample(ShardSink sink) {
  open_ = false;
  sample_.span = {.offset = offset_ - got_, .length = got_};
  sample_.crc32c = crc_;
  sample_.fields.resize(1);
  ShardField& field = sample_.fields.front();
  field.name = kTokensField;
  field.offset = sample_.span.offset;
  field.length = got_;
  field.encoding = encoding_;
  ++samples_;
  return sink(sample_);
}

absl::Status TokenScanner::Finish(ShardSink sink) {
  if (form_ == Form::kNpy && head_ != Head::kRead) {
    return absl::DataLossError(fmt::format("offset {}: the .npy file is truncated: it ends within its head", offset_));
  }
  RETURN_IF_ERROR(Cut({}, sink));  // sequences without tokens
  if (!open_) return absl::OkStatus();
  if (form_ == Form::kBin && got_ == 0) return absl::OkStatus();
  if (form_ == Form::kBin && got_ % type_.size == 0) return EndSample(sink);
  if (form_ == Form::kBin) {
    return absl::DataLossError(
        fmt::format("offset {}: the array is truncated, or not of {}: its last {} bytes are not a whole number",
                    offset_, NumpyName(type_), got_ % type_.size));
  }
  return absl::DataLossError(
      fmt::format("offset {}: the file is truncated: {} bytes of a sample are there, {} are missing", offset_, got_,
                  wanted_ - got_));
}

}  // namespace millrace
