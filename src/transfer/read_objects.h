#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "store/object_store.h"

namespace millrace {

/// ObjectInfo::size of an object that nobody has asked about yet.
inline constexpr uint64_t kUnknownSize = UINT64_MAX;

/// The contents of whole objects, in this order, with many requests in flight. What is in flight is reserved in
/// `memory`; the result is not, so the caller decides how many it asks for. An object whose size is kUnknownSize costs
/// one more request. Blocking. Errors are those of ObjectReader: the first one ends it.
absl::StatusOr<std::vector<std::string>> ReadObjects(ObjectStore& store, MemoryBudget& memory,
                                                     std::vector<ObjectInfo> objects, const std::stop_token& stop = {});

}  // namespace millrace
