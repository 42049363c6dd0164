#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace millrace {

/// Parses "256MiB", "1.5GiB", "64k", "100MB" or "4096" into bytes. KiB, MiB, GiB, TiB and the bare letters k, M, G, T
/// are powers of 1024; kB, MB, GB, TB are powers of 1000. InvalidArgument otherwise.
absl::StatusOr<uint64_t> ParseSize(std::string_view text);

/// Returns "512 B", "1.5 KiB", "256.0 MiB".
std::string FormatSize(uint64_t bytes);

}  // namespace millrace
