#include "shard/tar_key.h"

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"

namespace millrace {
namespace {

TEST(TarKey, DotsOfTheLastComponentAreEscaped) {
  EXPECT_EQ(EscapeTarKey("a.b/scan.2024.1"), "a.b/scan%2E2024%2E1");
  EXPECT_EQ(EscapeTarKey("50%"), "50%");
  EXPECT_EQ(EscapeTarKey("%20/%2E/x"), "%20/%2E/x");
  EXPECT_EQ(EscapeTarKey("a%2Eb"), "a%252Eb");
  EXPECT_EQ(EscapeTarKey("a%252Eb"), "a%25252Eb");
  EXPECT_EQ(UnescapeTarKey("a%2Eb/c%2Ed%252Ee%2ef%2"), "a%2Eb/c.d%2Ee%2ef%2");
}

TEST(TarKey, UnderscoresAtTheBeginningAreEscaped) {
  EXPECT_EQ(EscapeTarKey("__background__/7"), "%5F_background__/7");
  EXPECT_EQ(EscapeTarKey("a/__b__/__c__"), "a/__b__/__c__");
  EXPECT_EQ(EscapeTarKey("_a"), "_a");
  EXPECT_EQ(EscapeTarKey("%5F_a/%5F_b"), "%255F_a/%5F_b");
  EXPECT_EQ(UnescapeTarKey("%255F_a/%5F_b"), "%5F_a/%5F_b");
  EXPECT_EQ(UnescapeTarKey("%5F_"), "__");
}

TEST(TarKey, UnescapeUndoesEscape) {
  Rng rng(HashKey(7, {1}));
  constexpr std::string_view kPieces[] = {"%",  "2",  "5",   "E", "e", ".",   "/",
                                          "25", "2E", "%2E", "a", "_", "5F_", "%5F_"};
  std::set<std::string> keys, escaped;
  for (int i = 0; i < 20'000; ++i) {
    std::string key;
    for (uint64_t n = rng.Below(8); n > 0; --n) key += kPieces[rng.Below(std::size(kPieces))];
    const std::string there = EscapeTarKey(key);
    EXPECT_EQ(there.find('.', there.rfind('/') + 1), std::string::npos) << key;
    EXPECT_FALSE(there.starts_with("__")) << key;
    EXPECT_EQ(UnescapeTarKey(there), key);
    keys.insert(key);
    escaped.insert(there);
  }
  EXPECT_EQ(keys.size(), escaped.size());
}

}  // namespace
}  // namespace millrace
