#include "dataset/path_columns.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/str_split.h"
#include "shard/sample_name.h"
#include "store/joined_objects.h"

namespace millrace {

absl::StatusOr<std::vector<PathColumn>> ParsePathColumns(std::string_view text) {
  std::vector<PathColumn> columns;
  const std::vector<absl::string_view> parts = absl::StrSplit(ToAbsl(text), ',');
  const bool several = parts.size() > 1 && std::all_of(parts.begin(), parts.end(), [](absl::string_view part) {
                         return part.find('=') != absl::string_view::npos;
                       });
  if (!several) return columns;
  const auto wrong = [](absl::string_view part, std::string_view what) {
    return absl::InvalidArgumentError(
        fmt::format("'{}' {}; columns of paths are named by image=COLUMN,mask=COLUMN", ToStd(part), what));
  };
  if (parts.size() > kMaxJoinedObjects)
    return wrong(parts.front(),
                 fmt::format("is one of {} columns, and at most {} are joined", parts.size(), kMaxJoinedObjects));
  for (const absl::string_view part : parts) {
    const size_t equals = part.find('=');
    PathColumn next{.field = std::string(part.substr(0, equals)), .column = std::string(part.substr(equals + 1))};
    if (next.field.empty() || next.field.size() > kMaxNameBytes || next.column.empty())
      return wrong(part, "lacks a name");
    if (next.field == kClassField) return wrong(part, "is the field of the class");
    for (const PathColumn& other : columns) {
      if (other.field == next.field || other.column == next.column) return wrong(part, "is there twice");
    }
    columns.push_back(std::move(next));
  }
  return columns;
}

}  // namespace millrace
