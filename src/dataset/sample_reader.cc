#include "dataset/sample_reader.h"

#include <algorithm>
#include <utility>

#include "dataset/changed_object.h"

namespace millrace {

SampleReader::SampleReader(const Dataset& dataset, const SampleOrder& order, Positions positions,
                           const std::set<uint64_t>& skipped, MemoryBudget& memory, std::stop_token stop)
    : dataset_(dataset),
      order_(order),
      positions_(positions),
      skipped_(skipped),
      piece_bytes_(ObjectReader::PieceBytes(dataset.store(), memory)),
      next_(positions.begin),
      reads_(
          dataset.store(), memory, [this] { return NextRequest(); }, std::move(stop)) {}

absl::Status SampleReader::LookUpAsked() {
  if (looked_up_) return absl::OkStatus();
  RETURN_IF_ERROR(dataset_.index().Lookup(order_.At(next_), &wanted_));
  looked_up_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ObjectReader::Request>> SampleReader::NextRequest() {
  while (next_ < positions_.end && skipped_.contains(next_)) ++next_;
  if (next_ == positions_.end) return std::nullopt;
  RETURN_IF_ERROR(LookUpAsked());
  if (object_ordinal_ != wanted_.object) {
    RETURN_IF_ERROR(dataset_.index().LookupObject(wanted_.object, &object_));
    object_ordinal_ = wanted_.object;
  }
  Asked asked{.first = next_};
  ObjectReader::Request request{
      .object = {.key = dataset_.StoreKey(object_.key), .size = object_.size, .etag = object_.etag},
      .range = {.offset = wanted_.span.offset, .length = 0}};
  RETURN_IF_ERROR(Gather(&asked, &request));
  asked_.push_back(asked);
  return request;
}

// Takes the sample, and those that follow in this order and in the object: as many as fit into a piece.
absl::Status SampleReader::Gather(Asked* asked, ObjectReader::Request* request) {
  while (true) {
    if (wanted_.crc32c && wanted_.span.length > 0)
      request->checksums.push_back({.range = wanted_.span, .crc32c = *wanted_.crc32c});
    request->range.length = wanted_.span.end() - request->range.offset;
    ++asked->count;
    looked_up_ = false;
    const uint64_t sample = order_.At(next_);
    if (++next_ == positions_.end || skipped_.contains(next_) || order_.At(next_) != sample + 1)
      return absl::OkStatus();
    RETURN_IF_ERROR(LookUpAsked());
    if (wanted_.object != *object_ordinal_ || wanted_.span.end() - request->range.offset > piece_bytes_)
      return absl::OkStatus();
  }
}

absl::StatusOr<std::optional<SampleReader::Part>> SampleReader::Next() {
  if (piece_ && taken_ == asked_.front().count) {
    asked_.pop_front();
    taken_ = 0;
  }
  if (taken_ == 0) {
    absl::StatusOr<std::optional<ObjectReader::Piece>> piece = reads_.Next();
    if (!piece.ok()) return SayIfChanged(piece.status(), dataset_.uri());
    piece_ = *std::move(piece);
    if (!piece_) return std::nullopt;
  }
  const uint64_t position = asked_.front().first + taken_;
  // A later part of a large sample finds the entry here already.
  if (piece_->first) RETURN_IF_ERROR(dataset_.index().Lookup(order_.At(position), &sample_));
  Part part{.position = position, .sample = &sample_, .offset = 0, .bytes = piece_->bytes, .last = piece_->last};
  if (piece_->first && piece_->last) {
    part.bytes = piece_->bytes.subspan(sample_.span.offset - piece_->offset, sample_.span.length);
  } else {
    part.offset = piece_->offset - sample_.span.offset;
  }
  taken_ += part.last ? 1 : 0;
  return part;
}

Positions SampleReader::Suspects() const {
  if (asked_.empty()) return {.begin = positions_.begin, .end = positions_.end};
  return {.begin = asked_.front().first, .end = asked_.front().first + asked_.front().count};
}

bool MayBeAboutSample(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsFailedPrecondition(status) ||
         absl::IsOutOfRange(status) || absl::IsInvalidArgument(status);
}

absl::Status VisitSamples(const Dataset& dataset, const SampleOrder& order, Positions positions,
                          const std::set<uint64_t>& skipped, MemoryBudget& memory, const std::stop_token& stop,
                          SamplePartSink each, BadSampleSink bad) {
  uint64_t next = positions.begin;  // all before it is done
  absl::Status refused;             // by `each`
  Positions suspects;
  const auto read = [&](uint64_t end) -> absl::Status {
    SampleReader reader(dataset, order, {.begin = next, .end = end}, skipped, memory, stop);
    while (refused.ok()) {
      const absl::StatusOr<std::optional<SampleReader::Part>> part = reader.Next();
      suspects = reader.Suspects();
      if (!part.ok() || !*part) return part.status();
      refused = each(**part);
      if ((*part)->last) next = (*part)->position + 1;
    }
    return refused;
  };
  while (next < positions.end) {
    const absl::Status status = read(positions.end);
    if (status.ok() || !refused.ok() || !MayBeAboutSample(status)) return status;
    // All positions are suspects if even a request could not be made.
    const uint64_t end = suspects.end;
    for (next = std::max(suspects.begin, next); next < end;) {
      const uint64_t position = next;
      const absl::Status alone = read(position + 1);
      RETURN_IF_ERROR(refused);
      next = position + 1;
      if (!alone.ok()) RETURN_IF_ERROR(bad(position, alone));
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
