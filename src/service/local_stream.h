#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.h"
#include "net/runtime.h"
#include "pipeline/loader.h"
#include "service/frame.h"
#include "service/stream_steps.h"

namespace millrace {

/// Holds what local streams of a trainer share. Everything outlives them.
struct LocalReading {
  Runtime& runtime;
  const Source& source;
  const LoaderOptions& options;  // of the trainer's loader
  const StreamSteps& steps;
  uint64_t memory = 0;         // of the loader of a stream
  bool with_function = false;  // workers apply one to samples; rows of this process come without a result
};

/// Holds a batch that this process has decoded, as one that has come.
struct LocalBatch {
  std::shared_ptr<void> memory;  // in which the frame lies
  WireBatch frame;
  std::optional<std::chrono::steady_clock::duration> waited;  // how long the stream had nothing to do but to wait
};

/// Decodes one stream of a trainer in this process: a loader while it is open, and the memory that is kept for one
/// while it is not. For one thread.
class LocalStream {
 public:
  using Clock = std::chrono::steady_clock;

  /// `memory` is the loader's memory, reserved.
  LocalStream(const LocalReading& reading, uint64_t number, Reservation memory);
  ~LocalStream();
  LocalStream(const LocalStream&) = delete;
  LocalStream& operator=(const LocalStream&) = delete;

  /// Returns the batch of `step`. If the stream is open, `step` must be the one that comes next; if not, it is opened.
  /// Returns nullopt if there is no batch yet, after a short wait: other loaders may have the memory for a moment.
  /// Returns errors of Loader::Create and Loader::Next.
  absl::StatusOr<std::optional<LocalBatch>> Next(uint64_t step);
  /// The rows of the last batch were taken at `now`: since then the stream waits for the next one.
  void OnTaken(Clock::time_point now) { since_ = now; }
  /// Another step comes next. Memory is reserved again, if nobody else has taken it.
  void Close();
  /// No step comes any more.
  void End() {
    loader_.reset();
    memory_ = Reservation();
  }

 private:
  absl::StatusOr<bool> Open(uint64_t step);

  const LocalReading reading_;
  const uint64_t number_;
  Reservation memory_;  // while there is no loader
  std::unique_ptr<Loader> loader_;
  int tries_ = 0;        // to open it, without memory
  bool is_dry_ = false;  // it had no batch when it was asked for one
  Clock::time_point since_{};
};

}  // namespace millrace
