#include "cli/carry_indexes.h"

#include <fmt/format.h>


#include "cli/console.h"

namespace millrace::cli {

uint64_t CarryIndexes(std::string_view command, IndexCarrier& indexes, bool changed, const std::stop_token& stop) {
  const IndexCarrier::Report report = indexes.Carry(changed, stop);
  for (const absl::Status& failure : report.failures)
    PrintError("millrace {}: warning: {}\n", command, Printable(ToStd(failure.message())));
  return report.carried;
}

}  // namespace millrace::cli
