#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "absl/time/time.h"

/// What is normal for a store, and what to do about requests that are not. No clock of its own.

namespace millrace {

/// A distribution of durations that forgets: each bucket is 9 % wide, and what was seen lately counts most.
class Durations {
 public:
  void Add(absl::Duration duration);
  /// One that was given up: longer than all others.
  void AddEndless() { Add(absl::InfiniteDuration()); }
  /// The duration that `part` of them do not exceed; zero while fewer than 100 were seen.
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
/// Of two requests the first to answer wins and the other is cancelled before its body, so what a second one costs is a
/// request and a connection, and rarely bytes. Requests are bounded: where few first bytes are late, so few that the
/// slowest thousandth comes within three times the median by itself, only those are asked for again that come later
/// than that; where more are, the slowest seventh. Bytes are bounded by an allowance of 3 % of all bytes received.
class Hedging {
 public:
  /// How long to wait for a first byte before a second request; infinite while the store is not known well enough, or
  /// the allowance is used up.
  absl::Duration Delay();

  void OnFirstByte(absl::Duration after);            // of the first to answer
  void OnLost();                                     // a request whose second one answered first
  void OnBody(uint64_t bytes, absl::Duration took);  // whole or not
  void OnWasted(uint64_t bytes);                     // that came for nothing

  /// Whether a body that comes at so many bytes a second is to be given up and asked for anew. Not when others have
  /// been no faster, nor again and again: then the network is slow, and giving up helps nobody.
  bool GiveUp(double bytes_per_second);

 private:
  std::mutex mutex_;
  Durations first_bytes_;
  Durations bodies_;  // time for each 64 KiB
  double allowance_ = kMaxAllowance;
  absl::Duration delay_ = absl::InfiniteDuration();
  int until_update_ = 0;
  double give_ups_ = kMaxGiveUps;

  static constexpr double kMaxAllowance = 4 << 20;  // bytes
  static constexpr double kMaxGiveUps = 32;
};

}  // namespace millrace
