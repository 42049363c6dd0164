#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/waiting_budget.h"
#include "decode/image.h"

namespace millrace {

/// Grants the memory of the process for images that are not decoded row by row, as decoders ask for it. An image that
/// needs more than the whole budget of the process is refused (InvalidArgument). Thread-safe.
class DecodeMemory final : public ImageMemory {
 public:
  /// Any budget holds an image that needs so much.
  static constexpr uint64_t kLeastRefusedBytes = uint64_t{256} << 20;

  /// `budget_bytes` is the budget of the process, of which `process` is a part.
  DecodeMemory(WaitingBudget& process, uint64_t budget_bytes)
      : process_(process), most_(std::max(kLeastRefusedBytes, budget_bytes)) {}

  absl::Status Take(uint64_t bytes) override {
    if (bytes > most_) {
      return absl::InvalidArgumentError(
          fmt::format("it needs {} MiB to decode and the budget is {} MiB: raise the budget (--memory; Python: "
                      "millrace.configure(memory=)), or store the image as a baseline JPEG, in strips, or smaller",
                      bytes >> 20, most_ >> 20));
    }
    process_.Take(bytes);
    return absl::OkStatus();
  }
  void Return(uint64_t bytes) override { process_.Return(bytes); }

 private:
  WaitingBudget& process_;
  const uint64_t most_;
};

}  // namespace millrace
