#include "cli/mount_recover.h"

#include <fmt/format.h>

#include <vector>

#include "absl/time/time.h"
#include "base/shell_word.h"
#include "base/size.h"
#include "cli/console.h"
#include "mount/staging.h"

namespace millrace::cli {

absl::Status PrintLeftFiles(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::vector<LeftFile> files, StagingFolder::ListLeft(folder));
  if (files.empty()) PrintError("millrace mount: no files were left in {}\n", Printable(folder));
  std::string text;
  for (const LeftFile& file : files) {
    const std::string when =
        absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(file.modified_ms), absl::LocalTimeZone());
    const std::string& why = file.record.why;
    text += fmt::format("{}  {}  {}\n  {}\n", Printable(file.record.uri), FormatSize(file.record.size), when,
                        why.empty() ? "the mount ended before the file was closed" : Printable(why));
    if (file.is_whole) {
      text += fmt::format("  millrace cp {} {} && rm {}\n", ShellWord(file.path), ShellWord(file.record.uri),
                          ShellWord(file.path));
    } else {
      text += fmt::format("  in part: the missing bytes are in the version {}; the others are in {}\n",
                          Printable(file.record.base), Printable(file.path));
    }
  }
  return WriteStdout(text);
}

}  // namespace millrace::cli
