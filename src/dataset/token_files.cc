#include "dataset/token_files.h"

#include <fmt/format.h>

#include <utility>

#include "base/size.h"
#include "shard/token_scanner.h"
#include "store/blocking.h"
#include "transfer/object_reader.h"

namespace millrace {

absl::StatusOr<std::unique_ptr<ShardScanner>> TokenFiles::ScannerFor(const IndexedObject& object,
                                                                     absl::Status* damage) {
  sequences_memory_ = Reservation();
  if (!arrays_) {
    if (IsMegatronBin(object.key)) return ScannerOfBin(object, damage);
    RETURN_IF_ERROR(CheckIdx(object));
    return nullptr;
  }
  if (IsNpy(object.key)) return TokenScanner::OfNpy(*arrays_);
  if (arrays_->type) return TokenScanner::OfBin(*arrays_);
  return absl::InvalidArgumentError(
      fmt::format("an array without head does not say the type of its numbers: millrace index --tokens {}:uint16, or "
                  "whatever it is",
                  arrays_->length));
}

absl::StatusOr<std::unique_ptr<ShardScanner>> TokenFiles::ScannerOfBin(const IndexedObject& bin, absl::Status* damage) {
  const std::string idx = IdxOfBin(bin.key);
  const absl::StatusOr<ObjectInfo> info = HeadBlocking(*data_.store, data_.Key(idx), stop_);
  if (absl::IsNotFound(info.status())) {
    return absl::InvalidArgumentError(fmt::format(
        "there is no '{}' beside it, as beside the other .bin, to say where its sequences end; restore it, or "
        "move this one away",
        Uri(idx)));
  }
  RETURN_IF_ERROR(info.status());
  sequences_memory_ = memory_.TryReserve(MegatronIdxParser::MemoryBytes(info->size));
  if (!sequences_memory_) {
    return absl::ResourceExhaustedError(fmt::format(
        "{}: the lengths of its sequences take {} of memory, and {} of {} are in use: give this process more", Uri(idx),
        FormatSize(MegatronIdxParser::MemoryBytes(info->size)), FormatSize(memory_.used()),
        FormatSize(memory_.limit())));
  }
  ASSIGN_OR_RETURN(TokenSequences sequences, ReadIdx(*info, damage));
  read_[idx] = info->etag;
  if (!damage->ok()) return nullptr;
  if (sequences.bytes != bin.size) {
    *damage = absl::DataLossError(fmt::format(
        "it has {} bytes, and the sequences in '{}' have {}: one of them is truncated, or they do not belong "
        "together",
        bin.size, Uri(idx), sequences.bytes));
    return nullptr;
  }
  return TokenScanner::OfSequences(std::move(sequences));
}

absl::Status TokenFiles::TakeKnown(NumberType type) {
  return AgreeOnType(&*arrays_, type);
}

absl::Status TokenFiles::CheckIdx(const IndexedObject& idx) {
  const auto read = read_.extract(idx.key);
  if (read.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("there is no '{}' beside it; restore it, or move this one away", Uri(BinOfIdx(idx.key))));
  }
  if (read.mapped() == idx.etag) return absl::OkStatus();
  return absl::FailedPreconditionError("it was replaced while the index was being built; run it again");
}

absl::StatusOr<TokenSequences> TokenFiles::ReadIdx(const ObjectInfo& idx, absl::Status* damage) {
  const std::string uri = data_.store->Uri(idx.key);
  if (idx.size < kMegatronHeadBytes) {
    *damage = absl::DataLossError(fmt::format("{}: offset 0: the .idx is truncated", uri));
    return TokenSequences();
  }
  std::optional<MegatronIdxParser> parser;
  absl::Status parsed;
  ObjectReader::Request request = ObjectReader::All(idx);
  request.begin_again = [] { return true; };
  RETURN_IF_ERROR(ReadPieces(*data_.store, memory_, std::move(request), stop_, [&](const ObjectReader::Piece& piece) {
    if (piece.first) {
      parser.emplace(idx.size);
      parsed = absl::OkStatus();
    }
    // Bytes that were damaged on the way cannot be parsed; the checksum tells at the end.
    if (parsed.ok()) parsed = parser->Feed(piece.bytes);
    return absl::OkStatus();
  }));
  if (parsed.ok()) {
    absl::StatusOr<TokenSequences> sequences = parser->Finish();
    if (sequences.ok()) return sequences;
    parsed = sequences.status();
  }
  *damage = Annotate(parsed, uri);
  return TokenSequences();
}

absl::StatusOr<std::optional<TokenArrays>> TokenArraysOf(const Index& index) {
  if (index.kind() != DataKind::kTokens) return std::nullopt;
  IndexedObject object;
  for (uint64_t i = 0; i < index.objects(); ++i) {
    RETURN_IF_ERROR(index.LookupObject(static_cast<uint32_t>(i), &object));
    if (IsMegatronIdx(object.key)) return std::nullopt;
    if (IsNpy(object.key)) break;
  }
  IndexedSample sample;
  RETURN_IF_ERROR(index.Lookup(0, &sample));
  const std::optional<NumberType> type = ParseNumberType(sample.fields.front().encoding.substr(0, 2));
  const uint64_t length = type ? index.max_span_bytes() / type->size : 0;
  if (length == 0) return absl::DataLossError("damaged index (its tokens); build it again with `millrace index URI`");
  // All samples except the last ones of arrays have one length. If all arrays are shorter than it was, any length that
  // is no shorter than they are gives the same samples.
  return TokenArrays{.length = length, .type = type};
}

}  // namespace millrace
