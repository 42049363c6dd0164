#include "shard/label_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/number.h"
#include "shard/manifest.h"

namespace millrace {

namespace {

constexpr size_t kMaxShownLabel = 40;

bool IsPaddedNumber(std::string_view label) {
  return label.size() > 1 && label.front() == '0' && label.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

absl::Status WrongLine(uint64_t line, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("line {}: {}", line, what));
}

bool IsIntText(std::string_view text) {
  constexpr size_t kDigits = 18;  // fit into 64 bits
  if (text.starts_with('-')) text.remove_prefix(1);
  if (text.empty() || text.size() > kDigits || (text.front() == '0' && text.size() > 1)) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool IsFloatText(std::string_view text) {
  constexpr size_t kExactDigits = 15;  // any whole number of so many is below 2^53
  constexpr int64_t kMaxExact = int64_t{1} << 53;
  if (IsIntText(text)) {
    if (text.size() <= kExactDigits) return true;
    const int64_t value = ParseNumber<int64_t>(text).value_or(INT64_MAX);
    return value >= -kMaxExact && value <= kMaxExact;
  }
  if (text.find_first_not_of("-0123456789") == std::string_view::npos) return false;
  const std::optional<double> value = ParseNumber<double>(text);
  return value && std::isfinite(*value);
}

void LabelKinds::Kind::Add(std::string_view label, uint64_t at) {
  if (count++ > 0) return;
  line = at;
  first = label.substr(0, kMaxShownLabel);
}

void LabelKinds::Add(std::string_view label, uint64_t line, bool quoted) {
  if (label.empty()) return;
  all_quoted_ = all_quoted_ && quoted;
  if (IsWholeNumber(label)) return whole_.Add(label, line);
  if (!ParseNumber<double>(label.starts_with('+') ? label.substr(1) : label)) return texts_.Add(label, line);
  all_float_ = all_float_ && IsFloatText(label);
  (IsPaddedNumber(label) ? padded_ : odd_).Add(label, line);
}

absl::Status LabelKinds::Check() const {
  if (texts_.count > 0) return all_quoted_ && odd_.count == 0 ? absl::OkStatus() : CheckTexts();
  const Kind& wrong = odd_.line == 0 || (padded_.line != 0 && padded_.line < odd_.line) ? padded_ : odd_;
  if (wrong.count == 0) return absl::OkStatus();
  return WrongLine(
      wrong.line,
      fmt::format("the label '{}' is a number, but not that of a class (such as 0 or 12); write such a number, or "
                  "rename the column to make it a plain field",
                  wrong.first));
}

// Names and numbers in one column: the rarer ones are taken for the mistake.
absl::Status LabelKinds::CheckTexts() const {
  const bool padded_is_rare = padded_.count <= texts_.count;
  const Kind& plain = odd_.line == 0 || (whole_.line != 0 && whole_.line < odd_.line) ? whole_ : odd_;
  const Kind& numbers = plain.count == 0 && !padded_is_rare ? padded_ : plain;
  if (numbers.count == 0) return absl::OkStatus();
  constexpr std::string_view kRemedy =
      "Write numbers in all lines or names in all lines. Leave the cell of a sample without a class empty. If the "
      "numbers are names, write the file as JSON lines with each label in quotes";
  if (texts_.count <= whole_.count + odd_.count + (padded_is_rare ? 0 : padded_.count)) {
    return WrongLine(texts_.line, fmt::format("the label '{}' is no number, and that of line {} is ('{}'). {}",
                                              texts_.first, numbers.line, numbers.first, kRemedy));
  }
  return WrongLine(numbers.line, fmt::format("the label '{}' is a number, and that of line {} is a name ('{}'). {}",
                                             numbers.first, texts_.line, texts_.first, kRemedy));
}

}  // namespace millrace
