#include "cli/copied_text.h"

#include <fmt/format.h>

#include "base/counted.h"

namespace millrace::cli {

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

}  // namespace millrace::cli
