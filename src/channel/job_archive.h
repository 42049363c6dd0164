#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "store/object_store.h"

namespace millrace {

/// Writes all that a folder has as one object, a tar that gzip has compressed, as SageMaker keeps models; links are
/// followed no further than tar does. The names in it begin below the folder. Nothing is kept on the disk. The object
/// appears whole or not at all. Returns its size, nullopt if the folder has nothing or is not there.
///
/// Runs the program `tar`. Blocking; Cancelled soon after a stop. FailedPrecondition if tar cannot read something.
absl::StatusOr<std::optional<uint64_t>> SaveArchive(const std::string& folder, ObjectStore& store,
                                                    const std::string& key, const std::stop_token& stop);

}  // namespace millrace
