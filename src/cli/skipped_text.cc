#include "cli/skipped_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/counted.h"
#include "cli/console.h"

namespace millrace::cli {

namespace {

constexpr size_t kShownNames = 10;  // of a reason

}  // namespace

std::string SkippedText(const SkippedObjects& skipped) {
  if (skipped.count() == 0) return {};
  std::string text =
      fmt::format("{} {} passed over:\n", Counted(skipped.count(), "object"), skipped.count() == 1 ? "was" : "were");
  for (const SkippedObjects::Group& group : skipped.Grouped(kShownNames)) {
    const std::string more =
        group.count > group.first.size() ? fmt::format(" and {} more", group.count - group.first.size()) : "";
    text += fmt::format("  {} ({}): {}{}\n", group.why, group.count,
                        Printable(fmt::format("{}", fmt::join(group.first, ", "))), more);
  }
  if (skipped.count() > skipped.named().size())
    text += fmt::format("  and {}\n", Counted(skipped.count() - skipped.named().size(), "more object"));
  return text;
}

JsonObject SkippedJson(const SkippedObjects& skipped) {
  JsonArray named;
  for (const SkippedObject& object : skipped.named()) named.Add(JSON_OF(Named("object", object.key), object.why));
  return {{"objects", skipped.count()}, {"named", named}};
}

}  // namespace millrace::cli
