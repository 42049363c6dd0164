#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "pipeline/batch_source.h"
#include "plan/position.h"
#include "service/stream_spec.h"

namespace millrace {

/// Keeps batches that a worker has decoded, because the same ones come again. They come in each epoch of a loader that
/// neither shuffles nor augments, as evaluations do, and for other trainers that do the same. Thread-safe; times are
/// the caller's.
class KeptBatches {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Keeps batches of so many bytes together; 0: none.
  explicit KeptBatches(uint64_t most_bytes) : most_bytes_(most_bytes) {}

  struct Found {
    Batch batch;
    uint32_t crc = 0;  // ContentsCrc
  };

  /// Returns the name under which batches of this stream are kept. Returns "" if they are not kept because they differ
  /// between epochs.
  std::string NameOf(const StreamSpec& spec) const;
  /// Returns the batch of the stream that begins `at`.
  std::optional<Found> Find(const std::string& name, const Position& at, Time now);
  /// Keeps a copy if there is room. For that, streams go that nobody has asked for since kIdle.
  void Keep(const std::string& name, const Position& at, const Batch& batch, uint32_t crc, Time now);

  static constexpr std::chrono::seconds kIdle{60};

 private:
  struct Kept;
  struct Stream {
    std::map<uint64_t, std::shared_ptr<const Kept>> batches;  // by what was consumed of the epoch before them
    uint64_t bytes = 0;
    uint64_t number = 0;  // another one if the stream went, and came again
    Time last_used{};
  };
  bool MakeRoom(const std::string& name, uint64_t bytes, Time now);

  const uint64_t most_bytes_;
  std::mutex mutex_;
  uint64_t bytes_ = 0;
  uint64_t made_ = 0;  // streams
  std::map<std::string, Stream> streams_;
};

}  // namespace millrace
