#pragma once

#include <optional>
#include <string>
#include <string_view>

/// These functions change a cached file so that programs of this machine can use it.

namespace millrace {

/// Triton's group file of a kernel (`__grp__NAME.json`) names the other files of the kernel by absolute paths of the
/// host that compiled them. Returns the text with the paths of this machine: `place` is the place of the group file.
/// Returns nullopt if `path`, that of the CachedFile, is no group file, or if the text is not of the known form.
std::optional<std::string> LocalTritonGroup(std::string_view path, const std::string& place, std::string_view text);

/// If JAX bounds its cache (JAX_COMPILATION_CACHE_MAX_SIZE), it reads the time of use of each entry, and stores nothing
/// while one is missing. Writes that of the entry at `place`, if it is an entry of JAX without one: now. An error is
/// ignored, since the entry itself can be used.
void AddJaxTimeOfUse(std::string_view path, const std::string& place);

}  // namespace millrace
