#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

/// These functions return times as plain numbers:
///
///   const auto start = std::chrono::steady_clock::now();
///   ...
///   report.seconds = SecondsSince(start);

namespace millrace {

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Returns milliseconds since 1970, by the clock of the system.
inline int64_t UnixMilliseconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

/// These are times of files, since 1970.
inline int64_t NanosecondsOf(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}
inline int64_t MillisecondsOf(const timespec& time) {
  return int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1'000'000;
}

}  // namespace millrace
