#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "base/status.h"

namespace millrace {

/// Describes a file of a folder that is not an object: listings pass it over.
struct OtherFile {
  enum class Kind {
    kTemporary,  // of a writer that is at work, or was killed (base/atomic_file.h)
    kPipe,
    kSocket,
    kDevice,
    kBrokenLink,  // what it leads to does not exist, or it leads to itself
    kLoop,        // a link to a folder that it is in
  };
  Kind kind = Kind::kTemporary;
  std::string name;  // below the folder
  uint64_t size = 0;
  int64_t modified_ms = 0;  // since 1970
};

/// Returns "a pipe", "a link that leads nowhere", ...
std::string_view KindText(OtherFile::Kind kind);

struct OtherFilesOptions {
  bool recursive = true;
  bool follow_links = true;  // to folders, as listings do; else they are passed over
  std::stop_token stop;
};

/// Calls `each` with the other files of `folder` (a path that ends with '/'), that is those that are not objects, until
/// one call fails. Each folder's files come in the order of their names. Files that cannot be read are passed over:
/// listings say why. Blocking. Returns Cancelled soon after a stop is requested.
absl::Status ForEachOtherFile(const std::string& folder, const OtherFilesOptions& options,
                              absl::FunctionRef<absl::Status(const OtherFile&)> each);

}  // namespace millrace
