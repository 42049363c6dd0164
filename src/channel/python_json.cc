#include "channel/python_json.h"

#include <fmt/format.h>
#include <locale.h>
#include <wctype.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/utf8.h"

namespace millrace {

namespace {

constexpr size_t kMaxDepth = 200;
constexpr size_t kMaxDigits = 4300;  // of an integer: sys.get_int_max_str_digits()

// ---- Reading

/// Reads one text. Each function takes a part of it, and returns nullopt if Python would raise.
class PythonJsonReader {
 public:
  explicit PythonJsonReader(std::string_view text) : text_(text) {}

  std::optional<PythonJson> Read() {
    std::optional<PythonJson> value = Value(0);
    SkipSpace();
    return text_.empty() ? std::move(value) : std::nullopt;
  }

 private:
  void SkipSpace() { text_.remove_prefix(std::min(text_.find_first_not_of(" \t\n\r"), text_.size())); }

  bool Take(std::string_view word) {
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }

  /// Takes white space, and the character if it is next.
  bool TakeNext(char c) {
    SkipSpace();
    return Take(std::string_view(&c, 1));
  }

  std::optional<PythonJson> Value(size_t depth) {
    SkipSpace();
    if (text_.empty() || depth > kMaxDepth) return std::nullopt;
    if (text_.front() == '"') return String();
    if (Take("[")) return Array(depth);
    if (Take("{")) return Object(depth);
    if (Take("null")) return PythonJson(nullptr);
    if (Take("true")) return PythonJson(true);
    if (Take("false")) return PythonJson(false);
    if (Take("NaN")) return PythonJson(std::numeric_limits<double>::quiet_NaN());
    if (Take("Infinity")) return PythonJson(std::numeric_limits<double>::infinity());
    if (Take("-Infinity")) return PythonJson(-std::numeric_limits<double>::infinity());
    return Number();
  }

  std::optional<PythonJson> String() {
    size_t end = 1;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    const std::string_view literal = text_.substr(0, end + 1);
    PythonJson value = PythonJson::parse(literal, nullptr, /*allow_exceptions=*/false);
    if (!value.is_string()) return std::nullopt;
    text_.remove_prefix(literal.size());
    return value;
  }

  std::optional<PythonJson> Array(size_t depth) {
    PythonJson array = PythonJson::array();
    if (TakeNext(']')) return array;
    do {
      std::optional<PythonJson> item = Value(depth + 1);
      if (!item) return std::nullopt;
      array.push_back(*std::move(item));
    } while (TakeNext(','));
    return TakeNext(']') ? std::optional(std::move(array)) : std::nullopt;
  }

  std::optional<PythonJson> Object(size_t depth) {
    PythonJson object = PythonJson::object();
    if (TakeNext('}')) return object;
    do {
      SkipSpace();
      if (!text_.starts_with('"')) return std::nullopt;
      const std::optional<PythonJson> key = String();
      if (!key || !TakeNext(':')) return std::nullopt;
      std::optional<PythonJson> item = Value(depth + 1);
      if (!item) return std::nullopt;
      object[key->get_ref<const std::string&>()] = *std::move(item);  // of two with one name, the last one counts
    } while (TakeNext(','));
    return TakeNext('}') ? std::optional(std::move(object)) : std::nullopt;
  }

  /// Returns the number of digits from this one on.
  size_t Digits(size_t from) const {
    return std::min(text_.find_first_not_of("0123456789", from), text_.size()) - std::min(from, text_.size());
  }

  std::optional<PythonJson> Number() {
    const size_t first = text_.front() == '-' ? 1 : 0;
    const size_t whole = text_.substr(first).starts_with('0') ? 1 : Digits(first);
    if (whole == 0) return std::nullopt;
    size_t end = first + whole;
    bool is_float = false;
    if (text_.substr(end).starts_with('.') && Digits(end + 1) > 0) {
      end += 1 + Digits(end + 1);
      is_float = true;
    }
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      const size_t sign = end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-') ? 1 : 0;
      if (const size_t digits = Digits(end + 1 + sign); digits > 0) {
        end += 1 + sign + digits;
        is_float = true;
      }
    }
    const std::string_view number = text_.substr(0, end);
    text_.remove_prefix(end);
    if (is_float) {
      double value = 0;
      return absl::SimpleAtod({number.data(), number.size()}, &value) ? std::optional<PythonJson>(value) : std::nullopt;
    }
    int64_t value = 0;
    if (std::from_chars(number.data(), number.data() + number.size(), value).ec == std::errc()) return value;
    if (whole > kMaxDigits) return std::nullopt;
    return PythonJson::binary({number.begin(), number.end()});
  }

  std::string_view text_;  // what is left
};

// ---- Text

uint32_t CodePoint(std::string_view sequence) {
  const auto first = static_cast<unsigned char>(sequence.front());
  if (sequence.size() == 1) return first;
  uint32_t point = first & (0xFFU >> (sequence.size() + 1));
  for (const char c : sequence.substr(1)) point = point << 6 | (static_cast<unsigned char>(c) & 0x3FU);
  return point;
}

std::string Encoded(uint32_t point) {
  if (point < 0x80) return {static_cast<char>(point)};
  const size_t size = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
  std::string text(size, '\0');
  for (size_t i = size - 1; i > 0; --i, point >>= 6) text[i] = static_cast<char>(0x80U | (point & 0x3FU));
  text[0] = static_cast<char>((0xF0U << (4 - size)) | point);
  return text;
}

/// Returns the characters of UTF-8 text, each as its bytes.
std::vector<std::string_view> Characters(std::string_view text) {
  std::vector<std::string_view> characters;
  while (!text.empty()) {
    characters.push_back(text.substr(0, std::max<size_t>(1, Utf8SequenceLength(text))));
    text.remove_prefix(characters.back().size());
  }
  return characters;
}

// ---- Values as Python spells them

/// Writes the shortest digits that mean this number, as repr() does.
std::string PythonFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  constexpr double kLeastPlain = 1e-4;
  constexpr double kLeastWithExponent = 1e16;
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= kLeastPlain && size < kLeastWithExponent);
  std::array<char, 400> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  std::string text(digits.data(), end);
  return plain && text.find('.') == std::string::npos ? text + ".0" : text;
}

/// Python shows these by number: controls, separators and what has no glyph, of those that occur.
bool IsPrintable(uint32_t point) {
  constexpr std::array<std::pair<uint32_t, uint32_t>, 15> kHidden = {{{0x0, 0x1F},
                                                                      {0x7F, 0xA0},
                                                                      {0xAD, 0xAD},
                                                                      {0x600, 0x605},
                                                                      {0x61C, 0x61C},
                                                                      {0x6DD, 0x6DD},
                                                                      {0x1680, 0x1680},
                                                                      {0x180E, 0x180E},
                                                                      {0x2000, 0x200F},
                                                                      {0x2028, 0x202F},
                                                                      {0x205F, 0x206F},
                                                                      {0x3000, 0x3000},
                                                                      {0xE000, 0xF8FF},
                                                                      {0xFEFF, 0xFEFF},
                                                                      {0xFFF0, 0xFFFB}}};
  return point < 0xE0000 && std::ranges::none_of(kHidden, [point](const auto& range) {
           return point >= range.first && point <= range.second;
         });
}

std::string PythonQuoted(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const std::string_view sequence : Characters(text)) {
    const uint32_t point = CodePoint(sequence);
    if (const size_t known = std::string_view("\n\r\t\\").find(sequence); known != std::string_view::npos) {
      out += '\\';
      out += "nrt\\"[known];
    } else if (sequence.front() == quote) {
      out += '\\';
      out += quote;
    } else if (IsPrintable(point)) {
      out += sequence;
    } else if (point < 0x100) {
      out += fmt::format("\\x{:02x}", point);
    } else {
      out += point < 0x10000 ? fmt::format("\\u{:04x}", point) : fmt::format("\\U{:08x}", point);
    }
  }
  return out + quote;
}

std::string DigitsOf(const PythonJson& integer) {
  const auto& bytes = integer.get_binary();
  return {bytes.begin(), bytes.end()};
}

/// Writes a value as str() prints it; `quoted`: as repr() does.
std::string TextOrQuoted(const PythonJson& value, bool quoted) {
  std::string text;
  const auto list = [&](char open, char close, const auto& each) {
    text += open;
    bool first = true;
    for (const auto& item : value.items()) {
      if (!first) text += ", ";
      first = false;
      each(item);
    }
    return text + close;
  };
  switch (value.type()) {
    case PythonJson::value_t::null:
      return "None";
    case PythonJson::value_t::boolean:
      return value.get<bool>() ? "True" : "False";
    case PythonJson::value_t::string:
      return quoted ? PythonQuoted(value.get_ref<const std::string&>()) : value.get<std::string>();
    case PythonJson::value_t::array:
      return list('[', ']', [&](const auto& item) { text += TextOrQuoted(item.value(), true); });
    case PythonJson::value_t::object:
      return list('{', '}', [&](const auto& item) {
        text += fmt::format("{}: {}", PythonQuoted(item.key()), TextOrQuoted(item.value(), true));
      });
    case PythonJson::value_t::number_float:
      return PythonFloat(value.get<double>());
    case PythonJson::value_t::binary:
      return DigitsOf(value);
    default:
      return value.dump();
  }
}

}  // namespace

std::optional<PythonJson> ParsePythonJson(std::string_view text) {
  return PythonJsonReader(text).Read();
}

std::string DumpPythonJson(const PythonJson& value) {
  std::string text;
  switch (value.type()) {
    case PythonJson::value_t::array:
      for (const PythonJson& item : value) text += (text.empty() ? "" : ",") + DumpPythonJson(item);
      return "[" + text + "]";
    case PythonJson::value_t::object: {
      std::map<std::string, const PythonJson*> members;
      for (const auto& [key, item] : value.items()) members.emplace(key, &item);
      for (const auto& [key, item] : members)
        text += fmt::format("{}{}:{}", text.empty() ? "" : ",", DumpPythonJson(key), DumpPythonJson(*item));
      return "{" + text + "}";
    }
    case PythonJson::value_t::number_float: {
      const auto number = value.get<double>();
      if (std::isnan(number)) return "NaN";
      if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
      return PythonFloat(number);
    }
    case PythonJson::value_t::binary:
      return DigitsOf(value);
    default:
      return value.dump(-1, ' ', /*ensure_ascii=*/true);
  }
}

std::string PythonText(const PythonJson& value) {
  return TextOrQuoted(value, false);
}

std::string PythonUpper(std::string_view text) {
  constexpr uint32_t kSharpS = 0xDF;
  static const locale_t kUnicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);  // a part of glibc
  std::string upper;
  for (const std::string_view character : Characters(text)) {
    const uint32_t point = CodePoint(character);
    if (point == kSharpS) {
      upper += "SS";
    } else if (point < 0x80) {
      upper += static_cast<char>(point >= 'a' && point <= 'z' ? point - 'a' + 'A' : point);
    } else {
      upper += kUnicode == nullptr ? std::string(character) : Encoded(towupper_l(point, kUnicode));
    }
  }
  return upper;
}

}  // namespace millrace
