#pragma once

#include <cstdint>

#include "base/waiting_budget.h"
#include "decode/image.h"

namespace millrace {

/// The memory of the process for images that are not decoded row by row, as decoders ask for it. Thread-safe.
class DecodeMemory final : public ImageMemory {
 public:
  explicit DecodeMemory(WaitingBudget& process) : process_(process) {}

  absl::Status Take(uint64_t bytes) override {
    process_.Take(bytes);
    return absl::OkStatus();
  }
  void Return(uint64_t bytes) override { process_.Return(bytes); }

 private:
  WaitingBudget& process_;
};

}  // namespace millrace
