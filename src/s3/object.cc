#include "s3/object.h"

#include <fmt/format.h>

namespace millrace {

absl::Status CheckObjectBytes(uint64_t bytes) {
  if (bytes <= kMaxObjectBytes) return absl::OkStatus();
  return absl::DataLossError(
      fmt::format("the store says that the object has {} bytes, and no store keeps more than {}; check the store "
                  "and any proxy in front of it",
                  bytes, kMaxObjectBytes));
}

}  // namespace millrace
