#include "cli/name_filter.h"

#include <algorithm>

#include "store/glob.h"

namespace millrace::cli {

std::function<NameFilters()> AddNameFilters(const Command& command) {
  const auto given =
      command.AddInOrder({{"--exclude", "Leave out what matches; repeatable"},
                          {"--include", "Take what matches, even if an earlier --exclude matches it; repeatable"}},
                         "GLOB");
  return [given] {
    NameFilters filters;
    for (const auto& [name, pattern] : given()) filters.push_back({name == "--include", pattern});
    return filters;
  };
}

bool IsWanted(const NameFilters& filters, std::string_view name) {
  const auto last = std::find_if(filters.rbegin(), filters.rend(), [name](const NameFilter& filter) {
    return GlobMatches(filter.pattern, name, Slash::kIsOrdinary);
  });
  return last == filters.rend() || last->include;
}

}  // namespace millrace::cli
