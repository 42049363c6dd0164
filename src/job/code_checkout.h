#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace millrace {

/// A repository, and perhaps a branch, tag or commit of it, as `--code` names them.
struct CodeSource {
  std::string url;
  std::string ref;  // "": the default branch
};
/// URL[@REF], where URL is what `git clone` takes; an '@' of its user name is none of a REF.
absl::StatusOr<CodeSource> ParseCodeSource(std::string_view text);

/// Makes `folder` a checkout of the code and returns its commit. The first run of a job decides which one it is, and
/// writes that to the object CODE below its checkpoints; later ones take the same, on any machine. `checkpoint` "":
/// nothing is kept. A clone of the same repository that is in the folder is used. If the URL is one of http or https,
/// its user and password are given to git for requests to that host, and are not kept in `folder`. Blocks; leaves no
/// threads.
absl::StatusOr<std::string> CheckOutCode(const CodeSource& code, const std::string& folder,
                                         const std::string& checkpoint);

}  // namespace millrace
