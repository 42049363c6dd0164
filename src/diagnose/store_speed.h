#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "s3/client.h"

namespace millrace {

inline constexpr int kManyConnections = 16;

struct StoreSpeed {
  int reads = 0;  // small ones, one after the other
  double first_byte_median_ms = 0;
  double first_byte_p99_ms = 0;
  bool has_rates = false;            // false: the objects are too small to show more than latency
  double one_bytes_per_second = 0;   // one read at a time
  double many_bytes_per_second = 0;  // kManyConnections at a time
};

/// Smaller objects do not show throughput.
inline constexpr uint64_t kRateBytes = 1 << 20;

/// Gets the number of bytes read so far; called by several threads at a time.
using ReadProgress = absl::FunctionRef<void(uint64_t bytes)>;

/// Reads parts of `objects` (at least one that is not empty) for some six seconds or half a GiB. Ends with the first
/// error. Only objects of kRateBytes and more give rates.
absl::StatusOr<StoreSpeed> MeasureStore(S3Client& client, const std::string& bucket,
                                        const std::vector<ObjectInfo>& objects, ReadProgress progress);

/// Returns the advice that follows from the numbers.
std::vector<std::string> AdviseOnSpeed(const StoreSpeed& measured);

}  // namespace millrace
