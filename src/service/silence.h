#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace millrace {

/// Measures how long a worker has said nothing to a stream that listens. A trainer that was kept from its CPU has not
/// listened: such a pause does not count. `Placement::IsLost` says how long is too long,
/// and `TrainerStream::LeaveStraggler` what follows. Pure: the caller brings the time. Not thread-safe.
class Silence {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  /// At most this much of the time between two looks counts.
  static constexpr std::chrono::milliseconds kMostOfLook{200};

  /// The last word of the worker came at `heard`; or it was asked then, and has not answered yet. Returns how long it
  /// has been silent. Called again and again while the stream waits.
  Duration Look(Time heard, Time now) {
    const Duration listened = looked_ ? std::min<Duration>(now - *looked_, kMostOfLook) : kMostOfLook;
    if (heard_ != heard) silent_ = Duration::zero();
    silent_ = std::clamp<Duration>(now - heard, Duration::zero(), silent_ + listened);
    heard_ = heard;
    looked_ = now;
    return silent_;
  }

 private:
  std::optional<Time> looked_;
  std::optional<Time> heard_;
  Duration silent_{};
};

}  // namespace millrace
