#include "cli/passed_over.h"

#include <fmt/format.h>

#include <string>

#include "base/counted.h"
#include "cli/console.h"
#include "transfer/key_pattern.h"
#include "transfer/other_files.h"

namespace millrace::cli {

namespace {

constexpr uint64_t kNamed = 10;

}  // namespace

uint64_t TellPassedOver(const Location& location, const PassedOverOptions& options) {
  if (!location.store->traits().is_folder()) return 0;
  const std::string folder = location.store->Uri(AsFolder(location.prefix));
  uint64_t count = 0;
  const auto tell = [&](const OtherFile& file) {
    if (file.kind == OtherFile::Kind::kTemporary) return absl::OkStatus();
    if (options.wanted && !options.wanted(file.name)) return absl::OkStatus();
    if (++count > kNamed) return absl::OkStatus();
    PrintError("millrace {}: {}{} is {}, which is not {}\n", options.command, Printable(folder), Printable(file.name),
               KindText(file.kind), options.done);
    return absl::OkStatus();
  };
  // Only a stop ends it early, and others report that.
  ForEachOtherFile(folder, {.follow_links = options.follow_links, .stop = options.stop}, tell).IgnoreError();
  if (count > kNamed) {
    PrintError("millrace {}: {} of these kinds {} not {}\n", options.command, Counted(count - kNamed, "more file"),
               count == kNamed + 1 ? "is" : "are", options.done);
  }
  return count;
}

}  // namespace millrace::cli
