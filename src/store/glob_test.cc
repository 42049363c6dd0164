#include "store/glob.h"

#include <gtest/gtest.h>

#include <random>

namespace millrace {
namespace {

TEST(Glob, Forms) {
  struct Case {
    const char* pattern;
    const char* text;
    bool matches;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"", "", true},
           {"", "a", false},
           {"*.tar", "a.tar", true},
           {"*.tar", "a/b.tar", false},
           {"*.tar", ".tar", true},
           {"**.tar", "a/b.tar", true},
           {"a/**/c", "a/c", true},
           {"a/**/c", "a/b/b/c", true},
           {"a/**/c", "a/bc", false},
           {"**/c", "c", true},
           {"**/c", "x/c", true},
           {"**/c", "xc", false},
           {"a**/c", "ab/b/c", true},
           {"a**/c", "ac", false},
           {"a/**", "a/", true},
           {"a/**", "a", false},
           {"?", "/", false},
           {"?", "\xe2\x82\xac", true},
           {"?", "\xff", true},
           {"??", "\xe2\x82", true},
           {"[a-c]x", "bx", true},
           {"[a-c]x", "dx", false},
           {"[!a-c]x", "dx", true},
           {"[^a-c]x", "ax", false},
           {"[!a]", "/", false},
           {"[]a]", "]", true},
           {"[a", "[a", true},
           {"[a-]", "-", true},
           {"[\\]x]", "]", true},
           {"\\*", "*", true},
           {"\\*", "a", false},
           {"a\\", "a\\", true},
           {"*a*b", "xaab", true},
           {"*a*b", "xa/b", false},
           {"[\xc3\xa0-\xc3\xa9]", "\xc3\xa8", true},
       }) {
    EXPECT_EQ(GlobMatches(c.pattern, c.text), c.matches) << c.pattern << " " << c.text;
  }
}

TEST(Glob, WithOrdinarySlashes) {
  struct Case {
    const char* pattern;
    const char* text;
    bool matches;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"*.tar", "a/b.tar", true},
           {"a*c", "a/b/c", true},
           {"**/c", "a/b/c", true},
           {"**/c", "c", false},
           {"a?b", "a/b", true},
           {"a[!x]b", "a/b", true},
           {"a[/]b", "a/b", true},
           {"c", "a/c", false},
           {"a/*", "a", false},
           {"a/*", "a/b/c", true},
           {"\\*", "a/b", false},
       }) {
    EXPECT_EQ(GlobMatches(c.pattern, c.text, Slash::kIsOrdinary), c.matches) << c.pattern << " " << c.text;
  }
}

// Follows the definition, word for word, by trying everything.
bool Naive(std::string_view pattern, std::string_view text, bool at_part = true) {
  if (pattern.empty()) return text.empty();
  if (at_part && pattern.starts_with("**/")) {
    if (Naive(pattern.substr(3), text, true)) return true;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '/' && Naive(pattern.substr(3), text.substr(i + 1), true)) return true;
    }
    return false;
  }
  if (pattern.starts_with("*")) {
    const bool stars = pattern.starts_with("**");
    for (size_t i = 0;; ++i) {
      if (Naive(pattern.substr(stars ? 2 : 1), text.substr(i), false)) return true;
      if (i == text.size() || (text[i] == '/' && !stars)) return false;
    }
  }
  if (text.empty() || (pattern[0] == '?' ? text[0] == '/' : pattern[0] != text[0])) return false;
  return Naive(pattern.substr(1), text.substr(1), pattern[0] == '/');
}

TEST(Glob, AgreesWithItsDefinition) {
  std::mt19937 random(7);  // NOLINT: the same cases in each run
  const auto word = [&random](std::string_view letters, size_t most) {
    std::string text(random() % (most + 1), ' ');
    for (char& c : text) c = letters[random() % letters.size()];
    return text;
  };
  int matches = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string pattern = word("ab/**?", 8);
    if (pattern.find("***") != std::string::npos) continue;  // as "**", which the definition above does not say
    const std::string text = word("ab/", 8);
    const bool expected = Naive(pattern, text);
    matches += expected ? 1 : 0;
    ASSERT_EQ(GlobMatches(pattern, text), expected) << pattern << " " << text;
    if (expected) {
      ASSERT_TRUE(text.starts_with(GlobLiteralPrefix(pattern))) << pattern << " " << text;
    }
  }
  EXPECT_GT(matches, 1000);
}

TEST(Glob, NoBadCases) {
  std::string pattern;
  for (int i = 0; i < 300; ++i) pattern += "*a";
  EXPECT_FALSE(GlobMatches(pattern + "b", std::string(1024, 'a')));
}

TEST(Glob, LiteralPrefix) {
  EXPECT_EQ(GlobLiteralPrefix("a/b*.c"), "a/b");
  EXPECT_EQ(GlobLiteralPrefix("a\\*b[c]"), "a*b");
  EXPECT_EQ(GlobLiteralPrefix("plain"), "plain");
  EXPECT_EQ(GlobLiteralPrefix("?"), "");
  EXPECT_TRUE(HasWildcard("a?"));
  EXPECT_FALSE(HasWildcard("a]b\\"));
}

}  // namespace
}  // namespace millrace
