#pragma once

#include <stop_token>
#include <string_view>

#include "store/stores.h"
#include "store/uri.h"

namespace millrace {

/// Says how IsFolder treats a link to a folder.
enum class Links { kFollow, kKeep };

/// Returns true if it names an existing folder of the file system. Returns false if it cannot be accessed: opening it
/// says why.
bool IsFolder(const ParsedUri& uri, Links links);

/// Finds the object. NotFound says so if objects are below its name, which --recursive would `use` ("copy"), or
/// if it is the bucket that is missing. Cancelled soon after a stop is requested.
absl::StatusOr<ObjectInfo> FindObject(const Location& location, std::string_view use, const std::stop_token& stop);

/// Does the same for a command that reads one object: NotFound says how to see those below it, or whose names begin so.
absl::StatusOr<ObjectInfo> FindOneObject(const Location& location);

}  // namespace millrace
