#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "pipeline/loader_plan.h"
#include "service/frame.h"

namespace millrace {

/// Divides the steps of a trainer into streams. There are V streams of a trainer of rank r among W ranks. Stream v is
/// what a loader of rank r + W v among W V ranks delivers with batches of B / V rows. Its rows are every V-th row of
/// the trainer's batches. Pure arithmetic; immutable and thread-safe.
class StreamSteps {
 public:
  /// `plan` is the trainer's, without buckets; `streams` divides its batch. `with_function`: workers send what a
  /// function makes of the samples, in place of these.
  StreamSteps(const LoaderPlan& plan, uint64_t streams, bool with_function = false);

  uint64_t streams() const { return streams_; }
  uint64_t stream_rows() const { return batching_.batch / streams_; }

  /// This is the position at which a step begins. Steps are counted from the trainer's start, across epochs.
  struct Place {
    uint64_t epoch = 0;
    uint64_t consumed = 0;
  };
  const Place& start() const { return start_; }
  /// Returns one past the last step, or UINT64_MAX if there is no last step.
  uint64_t end() const;
  /// Returns nullopt after the last step.
  std::optional<Place> PlaceOf(uint64_t step) const;
  Position PositionOf(const Place& place) const { return {place.epoch, place.consumed, fingerprint_}; }
  /// These return the position after a step, and whether it ends its epoch.
  Position After(const Place& place) const;
  bool EndsEpoch(const Place& place) const { return batching_.StepsFrom(batching_.After(place.consumed)) == 0; }
  /// Returns the number of valid rows of the trainer's batch.
  uint64_t ValidRows(const Place& place) const { return batching_.Taken(place.consumed); }
  /// Returns the number of rows of a stream's batch in a step: stream_rows(), or fewer in a short last one.
  uint64_t RowsOfStream(const Place& place, uint64_t stream) const;
  /// Returns the number of rows of the trainer's batch. Streams may send some after these, which are discarded.
  uint64_t Rows(const Place& place) const { return batching_.Rows(place.consumed); }

  /// Returns the row of the trainer's batch that is row 0 of a stream's; row j of the stream is V j rows after it. It
  /// is not always the stream's number: after a change of the world, a step may begin at any position.
  uint64_t FirstRow(const Place& place, uint64_t stream) const;

  /// Returns the options of a stream's loader, which begins at `place`.
  LoaderOptions OptionsOf(const LoaderOptions& trainer, uint64_t stream, const Place& place) const;

  /// Returns DataLoss, with what is wrong, unless these are the rows of this stream for this step, as far as the plan
  /// shows.
  absl::Status Check(const Place& place, uint64_t stream, const WireBatch& frame) const;

 private:
  Batching OfStream(uint64_t stream) const;

  const uint64_t streams_;
  const Batching batching_;  // the trainer's
  const uint64_t fingerprint_;
  const uint64_t epochs_;  // 0: without end
  Place start_;
  uint64_t first_steps_ = 0;                                      // of the epoch in which the trainer starts
  std::vector<uint64_t> row_bytes_;                               // of each array of a stream's batch
  std::vector<std::pair<std::string, BatchField::Kind>> values_;  // columns of values
};

}  // namespace millrace
