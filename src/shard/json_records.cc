#include "shard/json_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace millrace {

namespace {

constexpr std::string_view kJsonBlanks = " \t\r\n";
constexpr size_t kMaxAdvisedBytes = 64 << 20;  // which are parsed as a whole for a message
constexpr std::string_view kRecords = "to_json(orient=\"records\", lines=True)";

std::string_view WithoutBlanks(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kJsonBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kJsonBlanks) + 1);
}

// The place of the comma or bracket behind the first entry of `text`; its size if there is none.
size_t EndOfEntry(std::string_view text) {
  uint64_t depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      i += c == '\\' ? 1 : 0;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (depth == 0 && (c == ',' || c == ']' || c == '}')) {
      return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return text.size();
}

}  // namespace

bool HoldsRecords(std::string_view array) {
  array = WithoutBlanks(array);
  if (!array.starts_with('[')) return false;
  array.remove_prefix(1);
  const std::string first = WithoutNan(array.substr(0, EndOfEntry(array)));
  const nlohmann::json json = nlohmann::json::parse(first, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && !json.empty() && !json.contains("prefix");
}

absl::Status ForEachEntry(std::string_view array,
                          absl::FunctionRef<absl::Status(std::string_view entry, uint64_t number)> each) {
  std::string_view rest = WithoutBlanks(array);
  const auto malformed = [](uint64_t behind) {
    return absl::InvalidArgumentError(fmt::format("malformed JSON behind entry {} of the array", behind));
  };
  if (!rest.starts_with('[')) return malformed(0);
  rest.remove_prefix(1);
  for (uint64_t number = 1;; ++number) {
    const size_t end = EndOfEntry(rest);
    if (end == rest.size() || rest[end] == '}') return malformed(number - 1);
    const bool last = rest[end] == ']';
    const std::string_view entry = WithoutBlanks(rest.substr(0, end));
    rest.remove_prefix(end + 1);
    if (!entry.empty()) RETURN_IF_ERROR(each(entry, number));
    if (entry.empty() && (!last || number > 1)) return malformed(number - 1);
    if (last) return rest.empty() ? absl::OkStatus() : malformed(number);
  }
}

std::string WithoutNan(std::string_view json) {
  std::string plain;
  bool quoted = false;
  while (!json.empty()) {
    size_t taken = 1;
    if (quoted && json.front() == '\\') {
      taken = std::min<size_t>(2, json.size());
    } else if (json.front() == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
        if (!json.starts_with(word)) continue;
        plain += "null";
        json.remove_prefix(word.size());
        taken = 0;
        break;
      }
    }
    plain += json.substr(0, taken);
    json.remove_prefix(taken);
  }
  return plain;
}

std::string AdviceOnTable(std::string_view json) {
  json = WithoutBlanks(json);
  if (json.size() > kMaxAdvisedBytes) return "";
  const nlohmann::json table = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!table.is_object() || table.empty()) return "";
  std::string_view form;
  if (table.contains("data") && table.contains("columns")) {
    form = "split";
  } else if (table.contains("data") && table.contains("schema")) {
    form = "table";
  } else if (std::all_of(table.begin(), table.end(), [](const nlohmann::json& value) { return value.is_object(); })) {
    form = "columns\" or \"index";
  } else if (json.find('\n') != std::string_view::npos) {
    return fmt::format("it is one JSON object over several lines; write each row in a line (in pandas {})", kRecords);
  } else {
    return "";
  }
  return fmt::format("a table as pandas' to_json(orient=\"{}\") writes it has no rows; write it by {}", form, kRecords);
}

}  // namespace millrace
