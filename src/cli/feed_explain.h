#pragma once

#include <string>

#include "base/status.h"
#include "pipeline/loader.h"

namespace millrace::cli {

/// What `feed --explain` prints: JSON in one line, or text.
/// `cache_bytes`: of the disk, or of memory, that a cache will have; 0: there is none.
absl::StatusOr<std::string> ExplainFeed(const Source& source, const LoaderOptions& options, uint64_t cache_bytes,
                                        bool json);

}  // namespace millrace::cli
