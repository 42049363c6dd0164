#pragma once

#include <cstdint>
#include <memory>

#include "devstore/storage.h"

namespace millrace {

/// Objects in memory, up to `limit_bytes` of content; a write that exceeds it is refused with InternalError.
std::unique_ptr<Storage> MakeMemStorage(uint64_t limit_bytes);

}  // namespace millrace
