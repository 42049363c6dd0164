#include "pipeline/decode_memory.h"

#include <fmt/format.h>

#include "base/size.h"

namespace millrace {

bool DecodeMemory::Grant(uint64_t bytes) {
  if (used_ > 0 && used_ + bytes > limit_) return false;
  const uint64_t needed = used_ + bytes;
  if (needed > reserved_.bytes() && !process_.TryExtend(&reserved_, needed - reserved_.bytes())) return false;
  used_ = needed;
  return true;
}

absl::Status DecodeMemory::Take(uint64_t bytes) {
  std::unique_lock lock(mutex_);
  while (!Grant(bytes)) {
    if (used_ == 0) {
      return absl::ResourceExhaustedError(fmt::format(
          "an image that cannot be decoded row by row (progressive JPEG, interlaced PNG, WebP) takes {}, "
          "and of the process's budget of {} are {} in use; store it as a baseline JPEG, or give the loaders "
          "less",
          FormatSize(bytes), FormatSize(process_.limit()), FormatSize(process_.used())));
    }
    returned_.wait(lock);
  }
  return absl::OkStatus();
}

void DecodeMemory::Return(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  if (used_ == 0) reserved_ = Reservation();
  returned_.notify_all();
}

}  // namespace millrace
