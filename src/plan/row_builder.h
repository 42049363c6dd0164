#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "plan/row_spec.h"

namespace millrace {

/// Makes rows of samples. The same samples give the same rows, in the same order. Not thread-safe.
///
/// kPack makes `group` rows at a time. They hold so many samples, in their order, as fit into them when these are dealt
/// out longest first, each to the fullest row that has room. The next kLookAhead segments then fill the gaps that they
/// fit into, and those that fit nowhere begin the next group. So rows are full, and the samples of a group are close
/// together.
class RowBuilder {
 public:
  /// Gets one row after another: its segments, in the order in which they are there. An error ends the building.
  using Sink = std::function<absl::Status(std::span<const Segment> row)>;

  /// spec.Check() is ok.
  RowBuilder(const RowSpec& spec, Sink sink);
  ~RowBuilder();

  /// Takes the next sample; they come in ascending order. Returns OutOfRange if it is too long and such are refused.
  /// Other errors are the sink's.
  absl::Status Add(uint64_t sample, uint64_t tokens);
  /// Call this after the last sample.
  absl::Status Finish();

  /// The counts are complete after Finish.
  const RowCounts& counts() const { return counts_; }

 private:
  static constexpr size_t kLookAhead = 256;

  absl::Status AddSegment(const Segment& segment);
  absl::Status AddToStream(Segment segment);
  absl::Status PackGroup();
  absl::Status Emit(std::vector<Segment>& row);

  const RowSpec spec_;
  const Sink sink_;
  RowCounts counts_;
  uint64_t last_counted_ = UINT64_MAX;  // sample
  std::vector<Segment> row_;            // kStream: begun
  uint64_t row_tokens_ = 0;
  std::vector<Segment> waiting_;  // kPack
  uint64_t waiting_tokens_ = 0;
};

}  // namespace millrace
