#include "cli/bulk_report.h"

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

std::string CopiedText(const BulkReport& copied, uint64_t indexes) {
  std::string doubts;
  if (copied.unverified > 0) doubts = fmt::format("{} without a checksum to verify", copied.unverified);
  if (copied.read_twice > 0) {
    doubts += fmt::format("{}{} without a checksum, read twice", doubts.empty() ? "" : "; ", copied.read_twice);
  }
  std::string text = "copied " + Counted(copied.objects, "object");
  if (!doubts.empty()) text += fmt::format(" ({})", doubts);
  if (indexes > 0) text += indexes == 1 ? " and the index" : fmt::format(" and {} indexes", indexes);
  return text;
}

uint64_t CarryIndexes(std::string_view command, IndexCarrier& indexes, bool changed, const std::stop_token& stop) {
  const IndexCarrier::Report report = indexes.Carry(changed, stop);
  for (const absl::Status& failure : report.failures)
    PrintError("millrace {}: warning: {}\n", command, Printable(ToStd(failure.message())));
  return report.carried;
}

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
