#include "decode/label.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/utf8.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kJsonPrefix = "json:";
constexpr std::string_view kJsonTextPrefix = "json-text:";
constexpr std::string_view kWhiteSpace = " \t\r\n";
constexpr size_t kQuoteBytes = 32;

/// The start of the field for a message, with what is not printable ASCII as '?'.
std::string Quote(std::string_view text) {
  std::string quoted(text.substr(0, kQuoteBytes));
  for (char& c : quoted) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return fmt::format("\"{}\"{}", quoted, text.size() > kQuoteBytes ? "..." : "");
}

template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

absl::StatusOr<LabelValue> ParseInt(std::string_view text) {
  std::string_view digits = text;
  digits.remove_prefix(std::min(digits.find_first_not_of(kWhiteSpace), digits.size()));
  digits = digits.substr(0, digits.find_last_not_of(kWhiteSpace) + 1);
  const std::optional<int64_t> value = ParseNumber<int64_t>(digits);
  if (!value) return absl::DataLossError(fmt::format("the label {} is not an integer of 64 bits", Quote(text)));
  return *value;
}

absl::StatusOr<LabelValue> ParseText(std::string_view text) {
  if (const size_t at = FirstNotUtf8(text); at < text.size()) {
    return absl::DataLossError(fmt::format("the label {} is not UTF-8 at byte {}", Quote(text), at));
  }
  return std::string(text);
}

absl::StatusOr<LabelValue> ParseJson(std::string_view text, const LabelSpec& spec) {
  const std::string_view path = spec.json_path;
  const Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return absl::DataLossError(fmt::format("the label {} is not JSON", Quote(text)));
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
          fmt::format("the label {} has no \"{}\" (of the path \"{}\")", Quote(text), name, path));
    }
    node = next;
  }
  if (spec.kind == LabelSpec::Kind::kText) {
    if (node->is_string()) return *node->get_ptr<const std::string*>();
    return absl::DataLossError(fmt::format("the label {} holds no string at \"{}\"", Quote(text), path));
  }
  if (node->is_number_unsigned()) {
    const uint64_t value = *node->get_ptr<const uint64_t*>();
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return static_cast<int64_t>(value);
  } else if (node->is_number_integer()) {
    return *node->get_ptr<const int64_t*>();
  }
  return absl::DataLossError(fmt::format("the label {} holds no integer of 64 bits at \"{}\"", Quote(text), path));
}

}  // namespace

absl::StatusOr<LabelSpec> LabelSpec::Parse(std::string_view text) {
  if (text == "int") return LabelSpec{Kind::kInt, ""};
  if (text == "text") return LabelSpec{Kind::kText, ""};
  for (const auto& [prefix, kind] : {std::pair{kJsonPrefix, Kind::kInt}, std::pair{kJsonTextPrefix, Kind::kText}}) {
    if (text.starts_with(prefix) && text.size() > prefix.size()) {
      return LabelSpec{kind, std::string(text.substr(prefix.size()))};
    }
  }
  return absl::InvalidArgumentError(
      fmt::format("unknown kind of label \"{}\"; use int, text, json:PATH for a whole number in a JSON field "
                  "(json:annotation.label), or "
                  "json-text:PATH for a string",
                  text));
}

absl::StatusOr<LabelValue> ParseLabel(ByteSpan bytes, const LabelSpec& spec) {
  if (bytes.size() > kMaxLabelBytes) {
    return absl::DataLossError(fmt::format("a label of {} bytes; the limit is {}", bytes.size(), kMaxLabelBytes));
  }
  const std::string_view text = AsText(bytes);
  if (!spec.json_path.empty()) return ParseJson(text, spec);
  return spec.kind == LabelSpec::Kind::kText ? ParseText(text) : ParseInt(text);
}

}  // namespace millrace
