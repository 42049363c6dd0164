#include "store/piece_ledger.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {

absl::Status PieceLedger::CheckAll(std::string_view uri) const {
  std::lock_guard lock(mutex_);
  const auto missing = std::find(written_.begin(), written_.end(), false);
  if (missing == written_.end()) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format("{}: cannot be committed: piece {} of {} was not written", uri,
                                                   missing - written_.begin() + 1, written_.size()));
}

}  // namespace millrace
