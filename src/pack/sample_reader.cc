#include "pack/sample_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/crypto.h"
#include "store/blocking.h"

namespace millrace {

SampleReader::SampleReader(const Dataset& dataset, const PackOrder& order, Positions positions,
                           const std::set<uint64_t>& skipped, MemoryBudget& memory, std::stop_token stop)
    : dataset_(dataset),
      order_(order),
      positions_(positions),
      skipped_(skipped),
      piece_bytes_(ReadAhead::PieceBytes(dataset.store(), memory)),
      stop_(std::move(stop)),
      next_(positions.begin),
      reads_(
          dataset.store(), memory, [this] { return NextRequest(); }, stop_) {}

void SampleReader::SkipSkipped() {
  while (next_ < positions_.end && skipped_.contains(next_)) ++next_;
}

absl::Status SampleReader::LookUpAsked() {
  if (looked_up_) return absl::OkStatus();
  RETURN_IF_ERROR(dataset_.index().Lookup(order_.At(next_), &asked_));
  looked_up_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ReadAhead::Request>> SampleReader::NextRequest() {
  SkipSkipped();
  if (next_ == positions_.end) return std::nullopt;
  RETURN_IF_ERROR(LookUpAsked());
  if (object_ordinal_ != asked_.object) {
    RETURN_IF_ERROR(dataset_.index().LookupObject(asked_.object, &object_));
    object_ordinal_ = asked_.object;
  }
  Piece piece;
  ReadAhead::Request request;
  request.key = dataset_.StoreKey(object_.key);
  request.if_match = object_.etag;
  if (asked_.span.length > piece_bytes_) {
    RETURN_IF_ERROR(SplitLarge(&piece, &request));
  } else {
    RETURN_IF_ERROR(Gather(&piece, &request));
  }
  piece.begin = request.range.offset;
  pieces_.push_back(piece);
  return request;
}

// Takes the samples that follow here and in the object, as many as fit into a piece.
absl::Status SampleReader::Gather(Piece* piece, ReadAhead::Request* request) {
  *piece = {.first = next_, .whole = true};
  request->range = {.offset = asked_.span.offset, .length = 0};
  const bool verify = dataset_.has_checksums();
  request->whole = !verify;  // a raw object is one sample
  while (true) {
    if (verify && asked_.span.length > 0) request->checksums.push_back({.range = asked_.span, .crc32c = asked_.crc32c});
    request->range.length = asked_.span.end() - request->range.offset;
    ++piece->count;
    looked_up_ = false;
    const uint64_t sample = order_.At(next_);
    if (++next_ == positions_.end || skipped_.contains(next_) || order_.At(next_) != sample + 1)
      return absl::OkStatus();
    RETURN_IF_ERROR(LookUpAsked());
    if (asked_.object != *object_ordinal_ || asked_.span.end() - request->range.offset > piece_bytes_)
      return absl::OkStatus();
  }
}

absl::Status SampleReader::BeginLarge() {
  large_part_ = 0;
  large_check_.reset();
  uint64_t part_bytes = 0;
  if (!dataset_.has_checksums()) {
    ObjectStore& store = dataset_.store();
    ObjectInfo known;
    known.key = dataset_.StoreKey(object_.key);
    known.size = object_.size;
    known.etag = object_.etag;
    ASSIGN_OR_RETURN(const ObjectInfo info, LearnBlocking(store, std::move(known), stop_));
    part_bytes = info.part_bytes;
    large_check_ =
        std::make_shared<WholeCheck>(store.Uri(info.key), info, Pieces(info.size, info.part_bytes, piece_bytes_));
  }
  large_.emplace(asked_.span.length, part_bytes, piece_bytes_);
  return absl::OkStatus();
}

absl::Status SampleReader::SplitLarge(Piece* piece, ReadAhead::Request* request) {
  if (!large_) RETURN_IF_ERROR(BeginLarge());
  const ByteRange range = large_->At(large_part_);
  *piece = {.first = next_,
            .count = 1,
            .whole = false,
            .part = large_part_,
            .part_offset = range.offset,
            .check = large_check_};
  request->range = {.offset = asked_.span.offset + range.offset, .length = range.length};
  request->part = large_check_ != nullptr && large_->IsPart(large_part_);
  if (++large_part_ < large_->count()) return absl::OkStatus();
  large_.reset();
  looked_up_ = false;
  ++next_;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<SampleReader::Part>> SampleReader::Next() {
  if (result_ && taken_ == pieces_.front().count) {
    result_.reset();
    pieces_.pop_front();
    taken_ = 0;
  }
  if (!result_) {
    ASSIGN_OR_RETURN(result_, reads_.Next());
    if (!result_) return std::nullopt;
  }
  const Piece& piece = pieces_.front();
  // A later part of a large sample finds it here already.
  const uint64_t position = piece.first + taken_;
  if (piece.whole || piece.part_offset == 0) RETURN_IF_ERROR(dataset_.index().Lookup(order_.At(position), &sample_));
  ++taken_;
  if (!piece.whole) {
    ASSIGN_OR_RETURN(const Part part, PartOfLarge());
    return part;
  }
  return Part{.position = position,
              .sample = &sample_,
              .offset = 0,
              .bytes = result_->bytes.span().subspan(sample_.span.offset - piece.begin, sample_.span.length),
              .last = true};
}

absl::StatusOr<SampleReader::Part> SampleReader::PartOfLarge() {
  const Piece& piece = pieces_.front();
  Part part{.position = piece.first,
            .sample = &sample_,
            .offset = piece.part_offset,
            .bytes = result_->bytes.span(),
            .last = false};
  part.last = part.offset + part.bytes.size() == sample_.span.length;
  if (piece.check != nullptr) {
    piece.check->Add(piece.part, part.bytes);
    if (part.last) RETURN_IF_ERROR(piece.check->Finish());
    return part;
  }
  large_crc_ = Crc32c(part.bytes, part.offset == 0 ? 0 : large_crc_);
  if (part.last && large_crc_ != sample_.crc32c) {
    IndexedObject object;
    RETURN_IF_ERROR(dataset_.index().LookupObject(sample_.object, &object));
    return absl::DataLossError(fmt::format(
        "{}: sample '{}': its {} bytes at offset {} are not those that were indexed: their CRC32C is {:08x}, "
        "not {:08x}; restore the object from a copy, or, if it was replaced deliberately, build the index again "
        "(millrace index)",
        dataset_.store().Uri(dataset_.StoreKey(object.key)), sample_.key, sample_.span.length, sample_.span.offset,
        large_crc_, sample_.crc32c));
  }
  return part;
}

Positions SampleReader::Suspects() const {
  if (pieces_.empty()) return {.begin = positions_.begin, .end = positions_.end};
  const Piece& piece = pieces_.front();
  return {.begin = piece.first, .end = piece.first + piece.count};
}

}  // namespace millrace
