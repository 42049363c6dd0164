#include "pack/sample_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/crypto.h"

namespace millrace {

SampleReader::SampleReader(const Dataset& dataset, const PackOrder& order, Positions positions,
                           const std::set<uint64_t>& skipped, MemoryBudget& memory, std::stop_token stop)
    : dataset_(dataset),
      order_(order),
      positions_(positions),
      skipped_(skipped),
      piece_bytes_(ReadAhead::PieceBytes(memory)),
      next_(positions.begin),
      reads_(
          dataset.store(), memory, [this] { return NextRequest(); }, std::move(stop)) {}

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
    SplitLarge(&piece, &request);
  } else {
    RETURN_IF_ERROR(Gather(&piece, &request));
  }
  piece.begin = request.range.offset;
  pieces_.push_back(piece);
  return request;
}

// Takes the samples that follow here and in the object, as many as fit into a piece.
absl::Status SampleReader::Gather(Piece* piece, ReadAhead::Request* request) {
  *piece = {.first = next_, .count = 0, .begin = 0, .whole = true, .part_offset = 0};
  request->range = {.offset = asked_.span.offset, .length = 0};
  while (true) {
    if (asked_.span.length > 0) request->checksums.push_back({.range = asked_.span, .crc32c = asked_.crc32c});
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

void SampleReader::SplitLarge(Piece* piece, ReadAhead::Request* request) {
  *piece = {.first = next_, .count = 1, .begin = 0, .whole = false, .part_offset = large_offset_};
  request->range = {.offset = asked_.span.offset + large_offset_,
                    .length = std::min(piece_bytes_, asked_.span.length - large_offset_)};
  large_offset_ += request->range.length;
  if (large_offset_ < asked_.span.length) return;
  large_offset_ = 0;
  looked_up_ = false;
  ++next_;
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
  large_crc_ = Crc32c(part.bytes, part.offset == 0 ? 0 : large_crc_);
  if (part.last && large_crc_ != sample_.crc32c) {
    IndexedObject object;
    RETURN_IF_ERROR(dataset_.index().LookupObject(sample_.object, &object));
    return absl::DataLossError(
        fmt::format("{}: sample '{}' at offset {}: its {} bytes have CRC32C {:08x}, the index says {:08x}",
                    dataset_.store().Uri(dataset_.StoreKey(object.key)), sample_.key, sample_.span.offset,
                    sample_.span.length, large_crc_, sample_.crc32c));
  }
  return part;
}

Positions SampleReader::Suspects() const {
  if (pieces_.empty()) return {.begin = positions_.begin, .end = positions_.end};
  const Piece& piece = pieces_.front();
  return {.begin = piece.first, .end = piece.first + piece.count};
}

}  // namespace millrace
