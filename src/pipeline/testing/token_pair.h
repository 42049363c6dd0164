#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dataset/dataset.h"
#include "store/stores.h"

namespace millrace {

/// Writes a pair of Megatron's files with documents of these lengths to `uri`, and indexes it. Token t of document d is
/// 1 + d * 2^20 + t, as an int32. Fails the test, and returns null, if that does not work.
std::unique_ptr<Dataset> OpenTokenPair(Runtime& runtime, Stores& stores, const std::string& uri,
                                       const std::vector<uint32_t>& lengths);

}  // namespace millrace
