#include "store/glob.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace millrace {

namespace {

struct Token {
  enum class Kind { kCharacter, kAny, kSet, kStar, kStars, kFolders };
  Kind kind = Kind::kCharacter;
  uint32_t character = 0;
  bool negated = false;                               // of kSet
  std::vector<std::pair<uint32_t, uint32_t>> ranges;  // of kSet
};

constexpr uint32_t kRawByte = 0x8000'0000;  // marks a byte that is no UTF-8

uint32_t TakeCharacter(std::string_view* text) {
  const auto byte = [text](size_t at) { return static_cast<unsigned char>((*text)[at]); };
  const unsigned char lead = byte(0);
  const size_t length = lead < 0xC2 || lead >= 0xF5 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t character = length == 1 ? lead : lead & (0x7FU >> length);
  bool good = text->size() >= length && (lead < 0x80 || length > 1);
  for (size_t k = 1; good && k < length; ++k) {
    good = (byte(k) & 0xC0) == 0x80;
    character = character << 6 | (byte(k) & 0x3F);
  }
  text->remove_prefix(good ? length : 1);
  return good ? character : kRawByte | lead;
}

std::vector<uint32_t> Characters(std::string_view text) {
  std::vector<uint32_t> characters;
  characters.reserve(text.size());
  while (!text.empty()) characters.push_back(TakeCharacter(&text));
  return characters;
}

// Reads the set that begins after its '['; returns nullopt if it does not end.
std::optional<Token> TakeSet(std::string_view* pattern) {
  std::string_view rest = *pattern;
  Token set{.kind = Token::Kind::kSet};
  if (!rest.empty() && (rest.front() == '!' || rest.front() == '^')) {
    set.negated = true;
    rest.remove_prefix(1);
  }
  const auto take = [&rest] {
    if (rest.size() > 1 && rest.front() == '\\') rest.remove_prefix(1);
    return TakeCharacter(&rest);
  };
  // A ']' in the first place is a member.
  for (bool first = true; !rest.empty() && (first || rest.front() != ']'); first = false) {
    const uint32_t low = take();
    uint32_t high = low;
    if (rest.size() > 1 && rest[0] == '-' && rest[1] != ']') {
      rest.remove_prefix(1);
      high = take();
    }
    set.ranges.emplace_back(low, high);
  }
  if (rest.empty()) return std::nullopt;
  rest.remove_prefix(1);
  *pattern = rest;
  return set;
}

Token TakeStars(std::string_view* pattern, bool at_part, Slash slash) {
  size_t stars = 0;
  while (stars < pattern->size() && (*pattern)[stars] == '*') ++stars;
  pattern->remove_prefix(stars);
  if (slash == Slash::kIsOrdinary) return {.kind = Token::Kind::kStars};
  if (stars == 1) return {.kind = Token::Kind::kStar};
  if (!at_part || !pattern->starts_with('/')) return {.kind = Token::Kind::kStars};
  pattern->remove_prefix(1);
  return {.kind = Token::Kind::kFolders};
}

std::vector<Token> Parse(std::string_view pattern, Slash slash) {
  std::vector<Token> tokens;
  bool at_part = true;  // at the start, or after a '/'
  while (!pattern.empty()) {
    const char c = pattern.front();
    if (c == '*') {
      tokens.push_back(TakeStars(&pattern, at_part, slash));
      at_part = tokens.back().kind == Token::Kind::kFolders;
      continue;
    }
    if (c == '[') {
      std::string_view rest = pattern.substr(1);
      if (std::optional<Token> set = TakeSet(&rest)) {
        tokens.push_back(*std::move(set));
        pattern = rest;
        at_part = false;
        continue;
      }
    }
    if (c == '?') {
      pattern.remove_prefix(1);
      tokens.push_back({.kind = Token::Kind::kAny});
      at_part = false;
      continue;
    }
    if (c == '\\' && pattern.size() > 1) pattern.remove_prefix(1);
    tokens.push_back({.kind = Token::Kind::kCharacter, .character = TakeCharacter(&pattern)});
    at_part = tokens.back().character == '/';
  }
  return tokens;
}

bool Takes(const Token& token, uint32_t character, Slash slash) {
  if (token.kind == Token::Kind::kCharacter) return token.character == character;
  if (character == '/' && slash == Slash::kSeparates) return false;
  if (token.kind == Token::Kind::kAny) return true;
  const bool member = std::any_of(token.ranges.begin(), token.ranges.end(), [character](const auto& range) {
    return range.first <= character && character <= range.second;
  });
  return member != token.negated;
}

}  // namespace

bool HasWildcard(std::string_view text) {
  return text.find_first_of("*?[") != std::string_view::npos;
}

// Follows all places of the pattern that the text read so far may have led to, at once: no backtracking, no bad cases.
bool GlobMatches(std::string_view pattern, std::string_view text, Slash slash) {
  using Kind = Token::Kind;
  const std::vector<Token> tokens = Parse(pattern, slash);
  std::vector<char> places(tokens.size() + 1, 0);
  places[0] = 1;
  // Passes over tokens that may match nothing.
  const auto skip = [&tokens](std::vector<char>& at) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const Kind kind = tokens[i].kind;
      // Inside of kFolders (2) it cannot end before a '/'.
      if (at[i] == 1 && (kind == Kind::kStar || kind == Kind::kStars || kind == Kind::kFolders)) at[i + 1] = 1;
    }
  };
  skip(places);
  std::vector<char> next(places.size());
  for (const uint32_t character : Characters(text)) {
    std::fill(next.begin(), next.end(), 0);
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (places[i] == 0) continue;
      switch (tokens[i].kind) {
        case Kind::kStar:
          if (character != '/') next[i] = 1;
          break;
        case Kind::kStars:
          next[i] = 1;
          break;
        case Kind::kFolders:
          next[i] = character == '/' ? 1 : 2;
          break;
        default:
          if (Takes(tokens[i], character, slash)) next[i + 1] = 1;
      }
    }
    skip(next);
    places.swap(next);
  }
  return places.back() != 0;
}

std::string GlobLiteralPrefix(std::string_view pattern) {
  std::string prefix;
  for (size_t i = 0; i < pattern.size() && !HasWildcard(pattern.substr(i, 1)); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
    prefix += pattern[i];
  }
  return prefix;
}

}  // namespace millrace
