#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>

#include "absl/functional/function_ref.h"
#include "base/bytes.h"
#include "base/status.h"
#include "dataset/dataset.h"
#include "plan/sample_order.h"
#include "transfer/object_reader.h"

namespace millrace {

/// Represents consecutive positions of an order.
struct Positions {
  uint64_t begin = 0;
  uint64_t end = 0;
};

/// Reads the bytes of the samples at some positions, ahead and in parallel. One request brings small samples that lie
/// together in the source and follow one another in this order; large ones come in pieces. Every sample is verified
/// against its checksum in the index. Blocking; not thread-safe. Everything that is passed to it must outlive it.
class SampleReader {
 public:
  /// Passes over the positions in `skipped`. Memory: half of the budget. Gives Cancelled soon after a stop is
  /// requested.
  SampleReader(const Dataset& dataset, const SampleOrder& order, Positions positions, const std::set<uint64_t>& skipped,
               MemoryBudget& memory, std::stop_token stop = {});

  /// Represents a sample, or a part of a large one. Valid until the next call.
  struct Part {
    uint64_t position = 0;
    const IndexedSample* sample = nullptr;
    uint64_t offset = 0;  // of the bytes, within the sample's span
    ByteSpan bytes;
    bool last = false;  // with this the sample is complete (and verified)
  };

  /// Returns the next part; nullopt after the last sample.
  absl::StatusOr<std::optional<Part>> Next();

  /// Returns, after an error of Next, the positions of the samples that it may be about.
  Positions Suspects() const;

 private:
  // Represents a request of the whole of some samples, or of a large one in pieces.
  struct Asked {
    uint64_t first = 0;  // position
    uint64_t count = 0;
  };

  absl::StatusOr<std::optional<ObjectReader::Request>> NextRequest();
  absl::Status LookUpAsked();
  absl::Status Gather(Asked* asked, ObjectReader::Request* request);

  const Dataset& dataset_;
  const SampleOrder& order_;
  const Positions positions_;
  const std::set<uint64_t>& skipped_;
  const uint64_t piece_bytes_;

  // This is the side that asks.
  uint64_t next_;           // position to ask for
  bool looked_up_ = false;  // wanted_ holds its sample
  IndexedSample wanted_;
  IndexedObject object_;  // of wanted_
  std::optional<uint32_t> object_ordinal_;

  // This is the side that hands out.
  std::deque<Asked> asked_;
  std::optional<ObjectReader::Piece> piece_;  // of asked_.front()
  uint64_t taken_ = 0;                        // complete samples of it that were handed out
  IndexedSample sample_;

  ObjectReader reads_;  // last: its callbacks end before the rest goes
};

/// Returns true if the error may be about a sample alone, and not with the store or the network, on which all others
/// depend as well.
bool MayBeAboutSample(const absl::Status& status);

using SamplePartSink = absl::FunctionRef<absl::Status(const SampleReader::Part&)>;
using BadSampleSink = absl::FunctionRef<absl::Status(uint64_t position, const absl::Status& status)>;

/// Reads samples as SampleReader does, and calls `each` with their parts. If reading is cut off, the parts of a sample
/// come from the first again. After an error that MayBeAboutSample, the samples that it may be about are read one by
/// one, and `bad` gets the errors that remain. Ends with any other error, and with those that the two callbacks return.
absl::Status VisitSamples(const Dataset& dataset, const SampleOrder& order, Positions positions,
                          const std::set<uint64_t>& skipped, MemoryBudget& memory, const std::stop_token& stop,
                          SamplePartSink each, BadSampleSink bad);

}  // namespace millrace
