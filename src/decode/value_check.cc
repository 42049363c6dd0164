#include "decode/value_check.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_replace.h"
#include "base/utf8.h"

namespace millrace {

namespace {

constexpr size_t kShownBytes = 32;

// With null in place of the numbers that JSON does not know. Words within strings become others, which does not matter
// here.
std::string WithoutSpecialNumbers(std::string_view text) {
  return absl::StrReplaceAll(ToAbsl(text), {{"-Infinity", "null"}, {"Infinity", "null"}, {"NaN", "null"}});
}

}  // namespace

std::string QuotedValue(std::string_view value) {
  std::string shown(value.substr(0, kShownBytes));
  for (char& c : shown) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return fmt::format("\"{}\"{}", shown, value.size() > kShownBytes ? "..." : "");
}

absl::Status CheckText(ByteSpan value) {
  const std::string_view text = AsText(value);
  const size_t at = FirstNotUtf8(text);
  if (at == text.size()) return absl::OkStatus();
  return absl::DataLossError(fmt::format("the text {} is not UTF-8 at byte {}", QuotedValue(text), at));
}

absl::Status CheckJson(ByteSpan value) {
  const std::string_view text = AsText(value);
  if (nlohmann::json::accept(text) || nlohmann::json::accept(WithoutSpecialNumbers(text))) return absl::OkStatus();
  return absl::DataLossError(fmt::format("{} is not JSON", QuotedValue(text)));
}

}  // namespace millrace
