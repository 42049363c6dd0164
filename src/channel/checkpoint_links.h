#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"
#include "s3/object.h"

/// Links in a folder of checkpoints stay links: on a store `latest -> step-20` is a small object,
/// "latest.millrace-link", whose bytes are "step-20". If links were followed, `latest` would become a folder with the
/// files of all steps that it has ever named.

namespace millrace {

inline constexpr std::string_view kLinkSuffix = ".millrace-link";
inline constexpr size_t kMaxLinkBytes = 4096;

struct CheckpointLink {
  std::string target;       // relative to the folder of the link
  int64_t modified_ms = 0;  // of the link itself
};

/// Maps the names of links below the folder to the links.
using CheckpointLinks = std::map<std::string, CheckpointLink, std::less<>>;

/// Finds the links below `folder` that lead to a place in it, also if nothing is there. Links that lead elsewhere do
/// not count: their targets do not exist on another machine, so the bytes are sent. Blocking. If the folder does not
/// exist, the map is empty. Folders that cannot be read, such as those that a program removes meanwhile, are passed
/// over.
CheckpointLinks FindLinks(const std::string& folder);

/// Returns true if `name` below `folder` is such a link. FindLinks may miss one that a program replaces meanwhile.
bool IsLinkWithin(const std::string& folder, const std::string& name);

/// Returns true if `name` is one of these links, or is behind one.
bool IsBehindLink(const CheckpointLinks& links, std::string_view name);

/// Returns true if there is a file `name` below `folder` that is not reached by a link to a place in it. (A program may
/// have made such a link since FindLinks, and removed it.)
bool IsFileOfItsOwn(const std::string& folder, const std::string& name);

/// Makes the link `name` below `folder`, and the folders above it. A link that is there is replaced unless it is newer;
/// a file or folder stays. Returns whether it was made. InvalidArgument if it would lead out of the folder.
absl::StatusOr<bool> RestoreLink(const std::string& folder, const std::string& name, const CheckpointLink& link);

}  // namespace millrace
