#include "cli/copied_text.h"

#include <fmt/format.h>

#include "base/counted.h"

namespace millrace::cli {

std::string CopiedText(const BulkReport& copied) {
  std::string doubts;
  if (copied.unverified > 0) doubts = fmt::format("{} without a checksum to verify", copied.unverified);
  if (copied.read_twice > 0) {
    doubts += fmt::format("{}{} without a checksum, read twice", doubts.empty() ? "" : "; ", copied.read_twice);
  }
  const std::string text = "copied " + Counted(copied.objects, "object");
  return doubts.empty() ? text : fmt::format("{} ({})", text, doubts);
}

}  // namespace millrace::cli
