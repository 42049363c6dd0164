#include "shard/label_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "absl/strings/match.h"
#include "base/number.h"
#include "shard/manifest.h"

namespace millrace {

namespace {

constexpr size_t kMaxShownLabel = 40;

bool IsPaddedNumber(std::string_view label) {
  return label.size() > 1 && label.front() == '0' && label.find_first_not_of("0123456789") == std::string_view::npos;
}

// Returns true for "3,5", "1,000" and "1.000,5": digits with commas, as people write numbers, or lists of them.
bool HasDecimalComma(std::string_view label) {
  if (label.starts_with('-') || label.starts_with('+')) label.remove_prefix(1);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (label.find(',') == label.npos || !is_digit(label.front()) || !is_digit(label.back())) return false;
  return std::all_of(label.begin(), label.end(), [&](char c) { return is_digit(c) || c == ',' || c == '.'; });
}

// A second sign is not one.
std::string_view WithoutSign(std::string_view text) {
  const bool has_sign = text.starts_with('+') || text.starts_with('-');
  return has_sign && text.size() > 1 && text[1] != '+' && text[1] != '-' ? text.substr(1) : text;
}

}  // namespace

absl::Status WrongLine(uint64_t line, std::string_view what, std::string_view word) {
  return absl::InvalidArgumentError(fmt::format("{} {}: {}", word, line, what));
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

bool IsNanText(std::string_view text) {
  return absl::EqualsIgnoreCase(ToAbsl(WithoutSign(text)), "nan");
}

bool IsFloatCell(std::string_view text) {
  const std::string_view number = WithoutSign(text);
  if (IsNanText(text)) return true;
  for (const char* infinite : {"inf", "infinity"}) {
    if (absl::EqualsIgnoreCase(ToAbsl(number), infinite)) return true;
  }
  return IsFloatText(text.starts_with('+') ? number : text);
}

std::optional<double> ParseFloatCell(std::string_view text) {
  const std::string_view number = WithoutSign(text);
  return ParseNumber<double>(text.starts_with('+') ? number : text);
}

bool IsMissingWord(std::string_view text) {
  constexpr std::string_view kWords[] = {"N/A",  "n/a",  "NA",      "<NA>",   "#N/A",     "#N/A N/A", "#NA",
                                         "NULL", "null", "-1.#IND", "1.#IND", "-1.#QNAN", "1.#QNAN",  "None"};
  return std::find(std::begin(kWords), std::end(kWords), text) != std::end(kWords);
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
  if (!ParseNumber<double>(label.starts_with('+') ? label.substr(1) : label)) {
    if (HasDecimalComma(label)) comma_.Add(label, line);
    return texts_.Add(label, line);
  }
  if (may_be_floats_ && IsNanText(label)) return nan_.Add(label, line);
  if (!IsFloatText(label)) no_float_.Add(label, line);
  (IsPaddedNumber(label) ? padded_ : odd_).Add(label, line);
}

absl::Status LabelKinds::Check() const {
  if (comma_.count > 0 && comma_.count == texts_.count && !all_quoted_) {
    return WrongLine(
        comma_.line,
        fmt::format("the label '{}' has a comma: write a number with a decimal point and without separators "
                    "of thousands, and one label for each sample. If these are names, write the file as "
                    "JSON lines with each label in quotes",
                    comma_.first),
        word_);
  }
  if (texts_.count > 0) return all_quoted_ && odd_.count + nan_.count == 0 ? absl::OkStatus() : CheckTexts();
  if (may_be_floats_) return CheckFloats();
  const Kind& wrong = odd_.line == 0 || (padded_.line != 0 && padded_.line < odd_.line) ? padded_ : odd_;
  if (wrong.count == 0) return absl::OkStatus();
  return WrongLine(
      wrong.line,
      fmt::format("the label '{}' is a number, but not that of a class (such as 0 or 12); write such a number, or "
                  "rename the column to make it a plain field",
                  wrong.first),
      word_);
}

// Checks numbers alone, which may be floats.
absl::Status LabelKinds::CheckFloats() const {
  const bool only_nan = nan_.count > 0 && whole_.count + odd_.count + padded_.count == 0;
  const Kind& wrong = only_nan ? nan_ : no_float_;
  if (AreFloats() || wrong.count == 0) return absl::OkStatus();
  const bool all_digits = wrong.first.find_first_not_of("-0123456789") == std::string::npos;
  std::string_view why = "not one as it is usually written";
  if (only_nan) {
    why = "no label has another value";
  } else if (IsFloatCell(wrong.first) && !IsFloatText(wrong.first)) {
    why = "not a finite one";
  } else if (all_digits && !IsPaddedNumber(wrong.first)) {
    why = "it has more digits than a class (18) and than a float holds";
  }
  const bool unusual = !only_nan && (IsPaddedNumber(wrong.first) || wrong.first.starts_with('+'));
  const std::string_view remedy =
      unusual ? "write it without a plus and without zeros in front or, if it is a name, write the file as JSON lines "
                "with each label in quotes"
              : "leave the cell empty if the sample has no label, and give missing=\"drop\" (--missing-labels drop)";
  return WrongLine(wrong.line, fmt::format("the label '{}' is a number, but {}; {}", wrong.first, why, remedy), word_);
}

// Names and numbers in one column: the rarer ones are taken for the mistake.
absl::Status LabelKinds::CheckTexts() const {
  const bool padded_is_rare = padded_.count <= texts_.count;
  const Kind& odd = odd_.count > 0 ? odd_ : nan_;
  const Kind& plain = odd.line == 0 || (whole_.line != 0 && whole_.line < odd.line) ? whole_ : odd;
  const Kind& numbers = plain.count == 0 && !padded_is_rare ? padded_ : plain;
  if (numbers.count == 0) return absl::OkStatus();
  constexpr std::string_view kRemedy =
      "Write numbers in all lines or names in all lines. Leave the cell of a sample without a class empty. If the "
      "numbers are names, write the file as JSON lines with each label in quotes";
  if (texts_.count <= whole_.count + odd.count + (padded_is_rare ? 0 : padded_.count)) {
    return WrongLine(texts_.line,
                     fmt::format("the label '{}' is no number, and that of {} {} is ('{}'). {}", texts_.first, word_,
                                 numbers.line, numbers.first, kRemedy),
                     word_);
  }
  return WrongLine(numbers.line,
                   fmt::format("the label '{}' is a number, and that of {} {} is a name ('{}'). {}", numbers.first,
                               word_, texts_.line, texts_.first, kRemedy),
                   word_);
}

}  // namespace millrace
