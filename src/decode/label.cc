#include "decode/label.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

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

/// Length of the UTF-8 sequence at the start of `text`, 0 when it is none (overlong, surrogate, beyond U+10FFFF, cut
/// short).
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;
  if (lead == 0xed && byte(1) > 0x9f) return 0;
  if (lead == 0xf0 && byte(1) < 0x90) return 0;
  if (lead == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
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
  for (size_t i = 0; i < text.size();) {
    const size_t length = SequenceLength(text.substr(i));
    if (length == 0) {
      return absl::DataLossError(fmt::format("the label {} is not UTF-8 at byte {}", Quote(text), i));
    }
    i += length;
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
