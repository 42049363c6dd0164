#pragma once

#include <string>

#include "base/status.h"
#include "pipeline/loader.h"

namespace millrace::cli {

/// Returns the output of `feed --explain`: JSON in one line, or text. `cache_bytes` is the size that a cache will have
/// on disk or in memory; 0 means that there is no cache.
absl::StatusOr<std::string> ExplainFeed(const Source& source, const LoaderOptions& options, uint64_t cache_bytes,
                                        bool json);

}  // namespace millrace::cli
