#include "shard/json_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/hex.h"

namespace millrace {

namespace {

constexpr std::string_view kJsonBlanks = " \t\r\n";
constexpr size_t kMaxAdvisedBytes = 64 << 20;  // which are parsed as a whole for a message
constexpr std::string_view kRecords = "to_json(orient=\"records\", lines=True)";

std::string_view WithoutBlanks(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kJsonBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kJsonBlanks) + 1);
}

// Returns the place of the comma or bracket after the first entry of `text`; its size if there is none.
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

size_t NumberLength(std::string_view text) {
  return std::min(text.find_first_not_of("+-.0123456789eE"), text.size());
}

// Returns the length of a number at the beginning that JSON does not know, or no float holds; 0 if there is none.
size_t NoNumberLength(std::string_view text) {
  for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
    if (text.starts_with(word)) return word.size();
  }
  const size_t length = NumberLength(text);
  const std::string number(text.substr(0, length));
  const bool has_exponent =
      length > 0 && number.front() != 'e' && number.front() != 'E' && number.find_first_of("eE") != std::string::npos;
  return has_exponent && std::isinf(std::strtod(number.c_str(), nullptr)) ? length : 0;
}

// Returns the code unit of the escape at the beginning, "\\u" with four hexadecimal digits; 0 if there is none.
uint32_t UnitOf(std::string_view text) {
  uint32_t unit = 0;
  if (text.size() < 6 || !text.starts_with("\\u")) return 0;
  for (const char digit : text.substr(2, 4)) {
    if (HexValue(digit) < 0) return 0;
    unit = unit << 4 | static_cast<uint32_t>(HexValue(digit));
  }
  return unit;
}

// Returns the length of the escape at the beginning, with both of a surrogate pair. `instead` replaces half of a pair,
// which is not a character.
size_t EscapeLength(std::string_view text, std::string_view* instead) {
  const auto is_high = [](uint32_t unit) { return unit >= 0xd800 && unit < 0xdc00; };
  const auto is_low = [](uint32_t unit) { return unit >= 0xdc00 && unit < 0xe000; };
  const uint32_t unit = UnitOf(text);
  if (is_high(unit) && is_low(UnitOf(text.substr(6)))) return 12;
  if (!is_high(unit) && !is_low(unit)) return std::min<size_t>(2, text.size());
  *instead = "\\ufffd";
  return 6;
}

// Returns true for "1.png", "cat/1" and "17", which are not names of members of a row.
bool IsNameOfSample(std::string_view name) {
  return name.find_first_of("./") != name.npos || name.find_first_not_of("0123456789") == name.npos;
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
    return absl::InvalidArgumentError(fmt::format("malformed JSON after entry {} of the array", behind));
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
    std::string_view instead;
    if (quoted && json.front() == '\\') {
      taken = EscapeLength(json, &instead);
    } else if (json.front() == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      taken = NoNumberLength(json);
      instead = taken > 0 ? "null" : "";
      if (taken == 0) taken = std::max<size_t>(1, NumberLength(json));
    }
    plain += instead.empty() ? json.substr(0, taken) : instead;
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
  } else if (table.size() == 1 && table.contains("labels") && table["labels"].is_array()) {
    return "labels in pairs, as in the dataset.json of StyleGAN, have no rows; write each pair in a line of its own: "
           "{\"key\": \"00000/img00000000.png\", \"label\": 6}";
  } else if (IsNameOfSample(table.begin().key()) && (table.begin()->is_number() || table.begin()->is_string())) {
    return fmt::format(
        "if it maps names to labels, write each name in a line of its own: {{\"key\": \"{}\", \"label\": {}}}",
        table.begin().key(), table.begin()->dump());
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
