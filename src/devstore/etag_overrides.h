#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace millrace {

/// Holds ETags that an injected fault has changed. An object keeps its changed ETag until it is written again.
/// Thread-safe.
class ETagOverrides {
 public:
  /// From now on the object has another ETag. `subject` is "bucket/key".
  void Change(std::string_view subject);

  /// Returns the ETag to show for an object whose own is `etag`.
  std::string Effective(const std::string& bucket, const std::string& key, const std::string& etag);

 private:
  struct Override {
    uint64_t generation = 0;
    std::string base;  // the own ETag of the state that was changed; empty: the next one seen
  };
  std::atomic<bool> any_{false};  // most servers never have one
  std::mutex mutex_;
  std::unordered_map<std::string, Override> overrides_;  // as many as there are objects with a fault
};

}  // namespace millrace
