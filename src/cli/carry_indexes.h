#pragma once

#include <cstdint>
#include <stop_token>
#include <string_view>

#include "dataset/index_carrier.h"

namespace millrace::cli {

/// Runs IndexCarrier::Carry, with a warning on stderr for each index that stays behind. Returns how many came along.
uint64_t CarryIndexes(std::string_view command, IndexCarrier& indexes, bool changed, const std::stop_token& stop);

}  // namespace millrace::cli
