#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "absl/time/time.h"

/// These classes learn what is normal for a store, and say what to do about requests that are not. They have no clock
/// of their own.

namespace millrace {

/// Keeps a distribution of durations that forgets: each bucket is 9 % wide, and recent durations count most.
class Durations {
 public:
  void Add(absl::Duration duration);
  /// Adds one that was given up: longer than all others.
  void AddEndless() { Add(absl::InfiniteDuration()); }
  /// Returns the duration that `part` of them do not exceed; zero while fewer than 100 were seen.
  absl::Duration Quantile(double part) const;

 private:
  static constexpr size_t kBuckets = 200;  // from 0.1 ms to an hour
  static constexpr double kRemembered = 4000;

  std::array<float, kBuckets> counts_{};
  double total_ = 0;
};

/// Decides when a second request is sent for one whose first byte does not come, and when a body is too slow to wait
/// for. Thread-safe.
///
/// The first of two requests to answer wins, and the other is cancelled before its body. A second one therefore costs a
/// request and a connection, and rarely bytes. Bytes are bounded by an allowance of 3 % of all bytes received. Requests
/// are sent while they help: each that answers first allows thirty more, and each that does not is one less. They may
/// never help, as with a store, a network or a CPU that is simply busy. Then one is left for each two hundred reads,
/// for those that are later than three times the median.
///
/// The time to wait is chosen so that all but a thousandth of the first bytes come within three times the median. Where
/// they do by themselves, only those are asked for again that are later still.
class Hedging {
 public:
  /// Returns how long to wait for a first byte before a second request. The time is infinite while the store is not
  /// known well enough, or an allowance is used up.
  absl::Duration Delay();
  /// Call this when that time is over. Returns whether the second request may be sent now.
  bool Take();

  void OnFirstByte(absl::Duration after);            // of the first to answer
  void OnLost();                                     // a request whose second one answered first
  void OnBody(uint64_t bytes, absl::Duration took);  // whole or not
  void OnWasted(uint64_t bytes);                     // that came for nothing

  /// Returns whether a body that comes at so many bytes a second is to be given up and requested again. It is not when
  /// others have been no faster, nor again and again: then the network is slow, and giving up does not help.
  bool GiveUp(double bytes_per_second);

 private:
  std::mutex mutex_;
  Durations first_bytes_;
  Durations bodies_;  // time for each 64 KiB
  double allowance_ = kMaxAllowance;
  double requests_ = kFewRequests;  // second ones that may be sent
  absl::Duration delay_ = absl::InfiniteDuration();
  absl::Duration late_ = absl::InfiniteDuration();
  int until_update_ = 0;
  double give_ups_ = kMaxGiveUps;

  static constexpr double kMaxAllowance = 4 << 20;  // bytes
  static constexpr double kMaxRequests = 256;
  static constexpr double kFewRequests = 8;  // with fewer, only the latest are asked for again
  static constexpr double kMaxGiveUps = 32;
};

}  // namespace millrace
