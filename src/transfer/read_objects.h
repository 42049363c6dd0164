#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "store/object_store.h"

namespace millrace {

/// This is the ObjectInfo::size of an object that nobody has asked about yet.
inline constexpr uint64_t kUnknownSize = UINT64_MAX;

/// Returns the contents of whole objects, in this order, with many requests in flight. The bytes in flight are reserved
/// in `memory`. The result is not, so the caller decides how many it requests. An object whose size is kUnknownSize
/// costs one more request. Blocking. Errors are those of ObjectReader: the first one ends it.
absl::StatusOr<std::vector<std::string>> ReadObjects(ObjectStore& store, MemoryBudget& memory,
                                                     std::vector<ObjectInfo> objects, const std::stop_token& stop = {});

}  // namespace millrace
