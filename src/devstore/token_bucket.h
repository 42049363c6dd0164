#pragma once

#include <algorithm>
#include <chrono>

namespace millrace {

/// Allows `per_second` takings a second: that many at once, refilled evenly. Time is given, so that tests need no
/// waiting. Not thread-safe.
class TokenBucket {
 public:
  using Time = std::chrono::steady_clock::time_point;

  TokenBucket(double per_second, Time now) : per_second_(per_second), tokens_(per_second), filled_(now) {}

  /// Returns false if no token is left.
  bool Take(Time now) {
    Fill(now);
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }

  /// Returns true if nothing is lost when the bucket is forgotten.
  bool IsFull(Time now) {
    Fill(now);
    return tokens_ >= per_second_;
  }

 private:
  void Fill(Time now) {
    if (now <= filled_) return;
    tokens_ = std::min(per_second_, tokens_ + per_second_ * std::chrono::duration<double>(now - filled_).count());
    filled_ = now;
  }

  double per_second_;
  double tokens_;
  Time filled_;
};

}  // namespace millrace
