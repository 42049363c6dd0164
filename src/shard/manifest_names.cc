#include "shard/manifest_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "absl/strings/ascii.h"

namespace millrace {

namespace {

constexpr std::string_view kPathNames[] = {"path",      "file",       "filename", "file_name",  "filepath",
                                           "file_path", "key",        "image",    "image_path", "uri",
                                           "url",       "source-ref", "s3_uri"};
constexpr std::string_view kKeyNames[] = {"key", "__key__", "id", "image_id", "sample"};
constexpr std::string_view kLabelNames[] = {"cls", "label", "class"};

// Returns the first of `wanted` that there is among `names`.
template <size_t N>
std::optional<size_t> FirstOf(const std::string_view (&wanted)[N], const std::vector<std::string>& names) {
  for (const std::string_view name : wanted) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (LowerName(names[i]) == name) return i;
    }
  }
  return std::nullopt;
}

// Returns the place of the column of that name, or of the first of `usual`. Returns nullopt if there is none of these;
// a column that is named must be there.
template <size_t N>
absl::StatusOr<std::optional<size_t>> FindColumn(const std::string& named, const std::string_view (&usual)[N],
                                                 const std::vector<std::string>& names) {
  if (named.empty()) return FirstOf(usual, names);
  const auto found = std::find(names.begin(), names.end(), named);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  return absl::InvalidArgumentError(fmt::format("there is no '{}' among {}", named, fmt::join(names, ", ")));
}

}  // namespace

std::string LowerName(std::string_view name) {
  return absl::AsciiStrToLower(ToAbsl(name));
}

std::string_view TrimCell(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

absl::StatusOr<std::optional<size_t>> FindNameColumn(const ManifestColumns& columns,
                                                     const std::vector<std::string>& names) {
  if (columns.rows == RowsName::kKeys && columns.path.empty()) {
    if (const std::optional<size_t> key = FirstOf(kKeyNames, names)) return key;
  }
  return FindColumn(columns.path, kPathNames, names);
}

absl::StatusOr<std::optional<size_t>> FindLabelColumn(const ManifestColumns& columns,
                                                      const std::vector<std::string>& names) {
  return FindColumn(columns.label, kLabelNames, names);
}

std::optional<size_t> UsualLabelColumn(const std::vector<std::string>& names) {
  return FirstOf(kLabelNames, names);
}

std::string NoNameColumn(const ManifestColumns& columns, std::string_view of, const std::vector<std::string>& names) {
  if (columns.rows == RowsName::kObjects) {
    return fmt::format(
        "none of the {} ({}) names the objects; call that one 'path', or say which one it is: `millrace "
        "index --path-column X`, in Python Dataset(uri, path_column=\"X\")",
        of, fmt::join(names, ", "));
  }
  return fmt::format(
      "none of the {} ({}) is the key of the samples; call that one 'key', or say which one it is: "
      "--key-column X, in Python Labels(uri, key_column=\"X\")",
      of, fmt::join(names, ", "));
}

absl::Status CheckLabelName(const std::vector<std::string>& names, size_t label, uint64_t line, std::string_view word) {
  const std::string wanted = LowerName(names[label]);
  for (size_t i = 0; i < names.size(); ++i) {
    if (i == label || LowerName(names[i]) != wanted) continue;
    return WrongLine(line,
                     fmt::format("'{}' and '{}' may both be the label; rename one", names[std::min(i, label)],
                                 names[std::max(i, label)]),
                     word);
  }
  return absl::OkStatus();
}

absl::Status FinishLabels(const LabelKinds& labels, Manifest* manifest) {
  manifest->float_labels = labels.AreFloats();
  manifest->numeric_labels = labels.AllWhole();
  const LabelKinds::Kind none = labels.NoLabels();
  manifest->nan_labels = {.count = none.count, .line = none.line, .first = none.first};
  return labels.Check();
}

}  // namespace millrace
