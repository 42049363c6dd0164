#include "decode/label.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/number.h"
#include "base/utf8.h"
#include "decode/value_check.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kJsonPrefix = "json:";
constexpr std::string_view kJsonFloatPrefix = "json-float:";
constexpr std::string_view kJsonTextPrefix = "json-text:";
constexpr std::string_view kWhiteSpace = " \t\r\n";

std::string_view Stripped(std::string_view text) {
  text = WithoutByteOrderMark(text);
  text.remove_prefix(std::min(text.find_first_not_of(kWhiteSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kWhiteSpace) + 1);
}

// Returns the error for a text that is not a number: damage, or another kind of label than was asked for.
absl::Status NoNumber(std::string_view text, std::string_view wanted) {
  if (text.starts_with("\x93NUMPY")) {
    return absl::InvalidArgumentError(
        "the label is an array; deliver the field as one (Python: millrace.Array in fields)");
  }
  const std::string_view value = Stripped(text);
  if ((value.starts_with('{') || value.starts_with('[')) && Json::accept(value)) {
    return absl::InvalidArgumentError(
        fmt::format("the label {} is JSON; say which member is the label (feed: --label-kind json:PATH, "
                    "json-float:PATH or json-text:PATH; Python: millrace.Label(field, path=)), or deliver the field as "
                    "JSON (Python: millrace.Json in fields)",
                    QuotedValue(text)));
  }
  std::string_view advice;
  if (value.empty()) {
    advice = "; leave the field out of samples without a label, and these by dataset.where(has=[...])";
  } else if (ParseNumber<double>(value)) {
    advice = "; for such numbers ask for labels of the kind float (Python: Label(field, \"float\"))";
  } else {
    advice = "; for names ask for labels of the kind text (Python: Label(field, \"text\"))";
  }
  return absl::DataLossError(fmt::format("the label {} is not {}{}", QuotedValue(text), wanted, advice));
}

absl::StatusOr<LabelValue> ParseFloat(std::string_view text) {
  if (const std::optional<double> value = ParseNumber<double>(Stripped(text))) return *value;
  return NoNumber(text, "a number");
}

absl::StatusOr<LabelValue> ParseInt(std::string_view text) {
  if (const std::optional<int64_t> value = ParseNumber<int64_t>(Stripped(text))) return *value;
  const std::optional<double> number = ParseNumber<double>(Stripped(text));
  if (number && *number != std::floor(*number)) {
    return absl::InvalidArgumentError(
        fmt::format("the label {} is a number with a fraction; ask for labels of the kind float", QuotedValue(text)));
  }
  return NoNumber(text, "an integer of 64 bits");
}

absl::StatusOr<LabelValue> ParseText(std::string_view text) {
  if (const size_t at = FirstNotUtf8(text); at < text.size()) {
    return absl::DataLossError(fmt::format("the label {} is not UTF-8 at byte {}", QuotedValue(text), at));
  }
  return std::string(text);
}

absl::StatusOr<LabelValue> ParseJson(std::string_view text, const LabelSpec& spec) {
  const std::string_view path = spec.json_path;
  const Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return absl::DataLossError(fmt::format("the label {} is not JSON", QuotedValue(text)));
  const Json* node = &document;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string_view name = path.substr(begin, end - begin);
    begin = end + 1;
    const Json* next = nullptr;
    if (node->is_object()) {
      const auto found = node->find(name);
      if (found != node->end()) next = &*found;
    } else if (node->is_array()) {
      const std::optional<size_t> item = ParseNumber<size_t>(name);
      if (item && *item < node->size()) next = &(*node)[*item];
    }
    if (next == nullptr) {
      return absl::DataLossError(
          fmt::format("the label {} has no \"{}\" (of the path \"{}\")", QuotedValue(text), name, path));
    }
    node = next;
  }
  if (spec.kind == LabelSpec::Kind::kText) {
    if (node->is_string()) return *node->get_ptr<const std::string*>();
    return absl::DataLossError(fmt::format("the label {} holds no string at \"{}\"", QuotedValue(text), path));
  }
  if (spec.kind == LabelSpec::Kind::kFloat) {
    if (node->is_number()) return node->get<double>();
    return absl::DataLossError(fmt::format("the label {} holds no number at \"{}\"", QuotedValue(text), path));
  }
  if (node->is_number_float()) {
    return absl::InvalidArgumentError(fmt::format(
        "the label {} holds a floating-point number at \"{}\"; ask for labels that are floats (feed: --label-kind "
        "json-float:{}; Python: millrace.Label(field, 'float', path=))",
        QuotedValue(text), path, path));
  }
  if (node->is_number_unsigned()) {
    const uint64_t value = *node->get_ptr<const uint64_t*>();
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return static_cast<int64_t>(value);
  } else if (node->is_number_integer()) {
    return *node->get_ptr<const int64_t*>();
  }
  return absl::DataLossError(
      fmt::format("the label {} holds no integer of 64 bits at \"{}\"", QuotedValue(text), path));
}

}  // namespace

absl::StatusOr<LabelSpec> LabelSpec::Parse(std::string_view text) {
  if (text == "int") return LabelSpec{Kind::kInt, ""};
  if (text == "float") return LabelSpec{Kind::kFloat, ""};
  if (text == "text") return LabelSpec{Kind::kText, ""};
  for (const auto& [prefix, kind] : {std::pair{kJsonPrefix, Kind::kInt}, std::pair{kJsonFloatPrefix, Kind::kFloat},
                                     std::pair{kJsonTextPrefix, Kind::kText}}) {
    if (text.starts_with(prefix) && text.size() > prefix.size()) {
      return LabelSpec{kind, std::string(text.substr(prefix.size()))};
    }
  }
  return absl::InvalidArgumentError(
      fmt::format("unknown kind of label \"{}\"; use int, float, text, json:PATH (a whole number in a JSON field: "
                  "json:annotation.label), json-float:PATH (any number) or json-text:PATH (a string)",
                  text));
}

absl::StatusOr<LabelValue> ParseLabel(ByteSpan bytes, const LabelSpec& spec) {
  if (bytes.size() > kMaxLabelBytes) {
    return absl::DataLossError(fmt::format("a label of {} bytes; the limit is {}", bytes.size(), kMaxLabelBytes));
  }
  const std::string_view text = AsText(bytes);
  if (!spec.json_path.empty()) return ParseJson(text, spec);
  if (spec.kind == LabelSpec::Kind::kText) return ParseText(text);
  return spec.kind == LabelSpec::Kind::kFloat ? ParseFloat(text) : ParseInt(text);
}

}  // namespace millrace
