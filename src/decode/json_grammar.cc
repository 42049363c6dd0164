#include "decode/json_grammar.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/hex.h"
#include "base/utf8.h"

namespace millrace {
namespace {

constexpr size_t kMostDigits = 4300;  // of a whole number, for Python's int()
constexpr size_t kMostLevels = 500;   // of nesting; Python's recursion ends at 1,000, of which the program takes some

/// Says how many bytes a character has, and whether the first one is its highest.
struct Encoding {
  size_t bytes = 1;
  bool big = false;
  size_t mark = 0;  // bytes of the byte order mark
};

// Returns the same encoding as json.detect_encoding.
Encoding EncodingOf(std::string_view text) {
  using std::string_view_literals::operator""sv;
  if (text.starts_with("\0\0\xfe\xff"sv)) return {.bytes = 4, .big = true, .mark = 4};
  if (text.starts_with("\xff\xfe\0\0"sv)) return {.bytes = 4, .big = false, .mark = 4};
  if (text.starts_with("\xfe\xff"sv)) return {.bytes = 2, .big = true, .mark = 2};
  if (text.starts_with("\xff\xfe"sv)) return {.bytes = 2, .big = false, .mark = 2};
  if (text.starts_with("\xef\xbb\xbf"sv)) return {.bytes = 1, .big = false, .mark = 3};
  if (text.size() >= 4) {
    if (text[0] == '\0') return {.bytes = text[1] != '\0' ? 2u : 4u, .big = true, .mark = 0};
    if (text[1] == '\0') return {.bytes = text[2] != '\0' || text[3] != '\0' ? 2u : 4u, .big = false, .mark = 0};
  } else if (text.size() == 2) {
    if (text[0] == '\0') return {.bytes = 2, .big = true, .mark = 0};
    if (text[1] == '\0') return {.bytes = 2, .big = false, .mark = 0};
  }
  return {};
}

// Returns one byte for each character, "?" for those above ASCII, which only strings hold; nullopt if these are not
// characters.
std::optional<std::string> AsAscii(std::string_view text, const Encoding& encoding) {
  constexpr uint32_t kMostCharacter = 0x10FFFF;
  if (text.size() % encoding.bytes != 0) return std::nullopt;
  std::string ascii;
  ascii.reserve(text.size() / encoding.bytes);
  for (size_t at = 0; at < text.size(); at += encoding.bytes) {
    uint32_t character = 0;
    for (size_t i = 0; i < encoding.bytes; ++i) {
      const size_t place = encoding.big ? i : encoding.bytes - 1 - i;
      character = character << 8 | static_cast<uint8_t>(text[at + place]);
    }
    if (character > kMostCharacter) return std::nullopt;
    ascii.push_back(character < 0x80 ? static_cast<char>(character) : '?');
  }
  return ascii;
}

class JsonGrammar {
 public:
  explicit JsonGrammar(std::string_view text) : text_(text) {}

  bool IsDocument() {
    std::string open;  // the brackets around what comes next
    while (true) {
      SkipBlanks();
      if (open.size() == kMostLevels && IsBracket()) return false;
      if (Takes('{')) {
        SkipBlanks();
        if (!Takes('}')) {
          open.push_back('{');
          if (!Name()) return false;
          continue;
        }
      } else if (Takes('[')) {
        SkipBlanks();
        if (!Takes(']')) {
          open.push_back('[');
          continue;
        }
      } else if (!Scalar()) {
        return false;
      }
      // A value has ended.
      SkipBlanks();
      while (!open.empty() && Takes(open.back() == '{' ? '}' : ']')) {
        open.pop_back();
        SkipBlanks();
      }
      if (open.empty()) return at_ == text_.size();
      if (!Takes(',')) return false;
      SkipBlanks();
      if (open.back() == '{' && !Name()) return false;
    }
  }

 private:
  bool IsBracket() const { return at_ < text_.size() && (text_[at_] == '{' || text_[at_] == '['); }

  bool Takes(char c) {
    const bool is_there = at_ < text_.size() && text_[at_] == c;
    at_ += is_there ? 1 : 0;
    return is_there;
  }

  bool Takes(std::string_view word) {
    const bool is_there = text_.substr(at_).starts_with(word);
    at_ += is_there ? word.size() : 0;
    return is_there;
  }

  void SkipBlanks() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

  // Parses the name of a member, and the colon.
  bool Name() {
    if (!String()) return false;
    SkipBlanks();
    return Takes(':');
  }

  bool Scalar() {
    if (at_ < text_.size() && text_[at_] == '"') return String();
    for (const std::string_view word : {"null", "true", "false", "NaN", "Infinity", "-Infinity"}) {
      if (Takes(word)) return true;
    }
    return Number();
  }

  size_t Digits() {
    const size_t end = std::min(text_.find_first_not_of("0123456789", at_), text_.size());
    const size_t digits = end - at_;
    at_ = end;
    return digits;
  }

  bool Number() {
    Takes('-');
    const bool zero = at_ < text_.size() && text_[at_] == '0';
    const size_t digits = Digits();
    if (digits == 0 || (zero && digits > 1)) return false;
    bool whole = true;
    if (Takes('.')) {
      whole = false;
      if (Digits() == 0) return false;
    }
    if (Takes('e') || Takes('E')) {
      whole = false;
      if (!Takes('-')) Takes('+');
      if (Digits() == 0) return false;
    }
    return !whole || digits <= kMostDigits;
  }

  bool String() {
    if (!Takes('"')) return false;
    while (at_ < text_.size()) {
      const auto c = static_cast<uint8_t>(text_[at_]);
      if (c == '"') return Takes('"');
      if (c < 0x20 || (c == '\\' && !Escape())) return false;
      if (c != '\\' && !Character()) return false;
    }
    return false;
  }

  bool Escape() {
    ++at_;
    if (at_ == text_.size()) return false;
    const char c = text_[at_++];
    if (c != 'u') return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
    if (text_.size() - at_ < 4) return false;
    const std::string_view digits = text_.substr(at_, 4);
    at_ += 4;
    return std::all_of(digits.begin(), digits.end(), [](char digit) { return HexValue(digit) >= 0; });
  }

  // Parses a character of UTF-8, be it half of a surrogate pair, as Python's "surrogatepass" takes it.
  bool Character() {
    const std::string_view rest = text_.substr(at_);
    size_t length = Utf8SequenceLength(rest);
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(rest[i]); };
    if (length == 0 && rest.size() >= 3 && byte(0) == 0xed && (byte(1) & 0xc0) == 0x80 && (byte(2) & 0xc0) == 0x80)
      length = 3;
    at_ += length;
    return length > 0;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

bool IsPythonJson(ByteSpan bytes) {
  std::string_view text = AsText(bytes);
  const Encoding encoding = EncodingOf(text);
  text.remove_prefix(encoding.mark);
  if (encoding.bytes == 1) return JsonGrammar(text).IsDocument();
  const std::optional<std::string> ascii = AsAscii(text, encoding);
  return ascii && JsonGrammar(*ascii).IsDocument();
}

}  // namespace millrace
