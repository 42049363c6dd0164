#include "decode/value_check.h"

#include <fmt/format.h>

#include <string>

#include "base/utf8.h"
#include "decode/json_grammar.h"

namespace millrace {

namespace {

constexpr size_t kShownBytes = 32;

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
  if (IsPythonJson(value)) return absl::OkStatus();
  return absl::DataLossError(fmt::format("{} is not JSON", QuotedValue(AsText(value))));
}

}  // namespace millrace
