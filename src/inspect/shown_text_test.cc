#include "inspect/shown_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/utf8.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

// Each character is one wide.
double Characters(const std::string& text) {
  double width = 0;
  for (size_t at = 0; at < text.size(); at += Utf8SequenceLength(std::string_view(text).substr(at))) ++width;
  return width;
}

TEST(ShownText, KeepsWhatCanBeShown) {
  EXPECT_EQ(ShownText("größe 7\n\xf0\x9f\x90\x88", 100), "größe 7\n\xf0\x9f\x90\x88");
  EXPECT_EQ(ShownText("", 100), "");
}

TEST(ShownText, ReplacesTheRest) {
  EXPECT_EQ(ShownText(std::string_view("a\0b\tc\x7f", 6), 100), "a b c ");
  EXPECT_EQ(ShownText("a\xff\xc3z", 100), "a��z");
  EXPECT_EQ(ShownText("\xed\xa0\x80", 100), "���") << "a surrogate";
}

TEST(ShownText, CutsLongTextBetweenCharacters) {
  EXPECT_EQ(ShownText("abcdef", 3), "abc…");
  EXPECT_EQ(ShownText("ää", 1), "ä…");
}

TEST(ShownText, AnyBytesBecomeUtf8) {
  Rng rng(HashKey(2, {1}));
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(rng.Below(40), '\0');
    for (char& c : bytes) c = static_cast<char>(rng.Below(3) == 0 ? 0xf0 | rng.Below(16) : rng.Next());
    const std::string shown = ShownText(bytes, 30);
    EXPECT_EQ(FirstNotUtf8(shown), shown.size());
  }
}

TEST(LooksLikeText, TellsTextFromOtherBytes) {
  EXPECT_TRUE(LooksLikeText("a caption, größer\r\n", false));
  EXPECT_TRUE(LooksLikeText("", false));
  EXPECT_FALSE(LooksLikeText("\x93NUMPY", false));
  EXPECT_FALSE(LooksLikeText(std::string_view("a\0", 2), false));
  EXPECT_FALSE(LooksLikeText("gr\xc3", false));
  EXPECT_TRUE(LooksLikeText("gr\xc3", true)) << "cut within a character";
  EXPECT_FALSE(LooksLikeText("\xc3grr…", true));
}

TEST(FitText, CutsEitherEnd) {
  EXPECT_EQ(FitText("abcdef", 6, CutEnd::kBack, Characters), "abcdef");
  EXPECT_EQ(FitText("abcdef", 4, CutEnd::kBack, Characters), "abc…");
  EXPECT_EQ(FitText("abcdef", 4, CutEnd::kFront, Characters), "…def");
  EXPECT_EQ(FitText("äöüß", 3, CutEnd::kFront, Characters), "…üß");
  EXPECT_EQ(FitText("abc", 0.5, CutEnd::kBack, Characters), "…") << "not even that fits";
}

TEST(WrapText, BreaksAtSpacesAndWithinLongWords) {
  EXPECT_THAT(WrapText("the quick brown fox", 9, 9, Characters), ElementsAre("the quick", "brown fox"));
  EXPECT_THAT(WrapText("abcdefghij kl", 4, 9, Characters), ElementsAre("abcd", "efgh", "ij", "kl"));
  EXPECT_THAT(WrapText("a\n\nb", 4, 9, Characters), ElementsAre("a", "", "b"));
  EXPECT_THAT(WrapText("", 4, 9, Characters), ElementsAre());
  EXPECT_THAT(WrapText("ab", 0.5, 9, Characters), ElementsAre("a", "b")) << "a character a line at least";
}

TEST(WrapText, EndsWithAnEllipsisWhereMoreFollows) {
  EXPECT_THAT(WrapText("the quick brown fox", 9, 1, Characters), ElementsAre("the quic…"));
  EXPECT_THAT(WrapText("one\ntwo\nthree", 9, 2, Characters), ElementsAre("one", "two…"));
  EXPECT_THAT(WrapText("one\ntwo\n", 9, 2, Characters), ElementsAre("one", "two"));
}

}  // namespace
}  // namespace millrace
