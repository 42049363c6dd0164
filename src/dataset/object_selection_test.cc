#include "dataset/object_selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Expanded(std::string_view text) {
  const auto texts = ExpandBraces(text);
  return texts.ok() ? *texts : std::vector<std::string>{texts.status().ToString()};
}

TEST(ExpandBraces, WritesOutAsAShellDoes) {
  EXPECT_THAT(Expanded("plain"), ElementsAre("plain"));
  EXPECT_THAT(Expanded(""), ElementsAre(""));
  EXPECT_THAT(Expanded("a{b,c}d"), ElementsAre("abd", "acd"));
  EXPECT_THAT(Expanded("{a,b}{1,2}"), ElementsAre("a1", "a2", "b1", "b2"));
  EXPECT_THAT(Expanded("x{a,b{1,2},}y"), ElementsAre("xay", "xb1y", "xb2y", "xy"));
  EXPECT_THAT(Expanded("s-{008..011}.tar"), ElementsAre("s-008.tar", "s-009.tar", "s-010.tar", "s-011.tar"));
  EXPECT_THAT(Expanded("{8..11}"), ElementsAre("8", "9", "10", "11"));
  EXPECT_THAT(Expanded("{3..1}"), ElementsAre("3", "2", "1"));
  EXPECT_THAT(Expanded("{7..007}"), ElementsAre("007"));
}

TEST(ExpandBraces, OtherBracesStay) {
  for (const std::string text : {"{}", "{x}", "a{b", "a}b", "{1..}", "{a..c}", "{1..2", "\\{a,b\\}", "{-1..1}", "x\\"})
    EXPECT_THAT(Expanded(text), ElementsAre(text));
  EXPECT_THAT(Expanded("{{a,b}"), ElementsAre("{a", "{b"));
  EXPECT_THAT(Expanded("{a\\,b,c}"), ElementsAre("a\\,b", "c"));
}

TEST(ExpandBraces, AreBounded) {
  EXPECT_EQ(Expanded("{1..100000}").size(), 100'000);
  EXPECT_THAT(Expanded("{1..100001}"), ElementsAre(HasSubstr("more than 100000 names")));
  EXPECT_THAT(Expanded("{1..1000}{1..101}"), ElementsAre(HasSubstr("more than 100000 names")));
  EXPECT_THAT(Expanded("{0..18446744073709551615}"), ElementsAre(HasSubstr("more than 100000 names")));
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep = "{a," + deep + "}";
  EXPECT_THAT(Expanded(deep), ElementsAre(HasSubstr("nested")));
}

// Each of these would take gigabytes.
TEST(ExpandBraces, AreBoundedInBytes) {
  const std::string megabyte(1'000'000, 'a');
  const std::string zeros(1'000'000, '0');
  std::string long_names = "{" + megabyte + ",b}";
  for (int i = 0; i < 12; ++i) long_names += "{c,d}";
  std::string held = "x";  // what each depth holds while the next one is expanded
  for (int i = 0; i < 90; ++i) held = "{" + std::string(30'000, 'a') + "{1..1000}," + held + "}";
  std::string pieces = "{1..100000}";
  for (int i = 0; i < 1000; ++i) pieces += "{" + std::string(30, 'b') + "}";
  for (const std::string& text : {megabyte + "{00000..99999}", "{00000..99999}" + megabyte, "{" + zeros + "..99999}",
                                  megabyte + "{0..9}{0..9}{0..9}", long_names, held, pieces}) {
    const std::vector<std::string> refusal = Expanded(text);
    EXPECT_THAT(refusal, ElementsAre(HasSubstr("more than 64.0 MiB of names")));
    EXPECT_LT(refusal.front().size(), 400);  // what is refused is not repeated in full
  }
  EXPECT_THAT(Expanded("{" + std::string(50'000'000, ',') + "}"), ElementsAre(HasSubstr("more than 100000 names")));
  EXPECT_EQ(Expanded(std::string(500, 'a') + "{1..100000}").size(), 100'000);
  EXPECT_EQ(Expanded(megabyte + "{1,2}").size(), 2);
}

// The end of each of them is searched.
TEST(ExpandBraces, WithoutAnEndAreFew) {
  EXPECT_THAT(Expanded(std::string(1'000'000, '{')), ElementsAre(HasSubstr("nested")));
  EXPECT_THAT(Expanded(std::string(100, '{')), ElementsAre(std::string(100, '{')));
}

ObjectSelection Selected(std::string_view uri) {
  auto selection = ObjectSelection::Parse(uri);
  EXPECT_TRUE(selection.ok()) << selection.status();
  EXPECT_TRUE(selection->has_value()) << uri;
  return **std::move(selection);
}

TEST(ObjectSelection, IsNoneWithoutWildcards) {
  for (const std::string_view uri : {"s3://b/p", "/data/x{y}.tar", "rel/a.tar", "s3://b"})
    EXPECT_FALSE((*ObjectSelection::Parse(uri)).has_value()) << uri;
}

TEST(ObjectSelection, NamesTheFolderThatHoldsAll) {
  const auto folder = [](std::string_view uri) { return Selected(uri).folder(); };
  EXPECT_EQ(folder("s3://b/p/train-*.tar"), "s3://b/p/");
  EXPECT_EQ(folder("s3://b/*.tar"), "s3://b/");
  EXPECT_EQ(folder("s3://b/p/{a,c}/x"), "s3://b/p/");
  EXPECT_EQ(folder("{s3://b/p/q/a,s3://b/p/r}"), "s3://b/p/");
  EXPECT_EQ(folder("/data/*/x"), "/data/");
  EXPECT_EQ(folder("file:///data/*/x"), "/data/");
  EXPECT_EQ(folder("{/data1/a,/data2/b}"), "/");
  EXPECT_THAT(folder("rel/*.tar"), ::testing::EndsWith("/rel/"));
  EXPECT_EQ(folder("mem://m/a\\*b/x*"), "mem://m/a*b/");
}

TEST(ObjectSelection, ContainsWhatIsNamedAndWhatLiesBelow) {
  const ObjectSelection shards = Selected("s3://b/p/train-{00..02}.tar");
  EXPECT_TRUE(shards.Contains("train-01.tar"));
  EXPECT_FALSE(shards.Contains("train-03.tar"));
  EXPECT_FALSE(shards.Contains("train-01.tar.idx"));
  EXPECT_TRUE(shards.Contains("train-01.tar/x"));

  const ObjectSelection glob = Selected("s3://b/p/*/1?.jpg");
  EXPECT_TRUE(glob.Contains("a/10.jpg"));
  EXPECT_TRUE(glob.Contains("a/10.jpg/below"));
  EXPECT_FALSE(glob.Contains("10.jpg"));
  EXPECT_FALSE(glob.Contains("a/b/10.jpg"));
  EXPECT_FALSE(glob.Contains("a/100.jpg"));

  const ObjectSelection deep = Selected("s3://b/p/**/*.jpg");
  EXPECT_TRUE(deep.Contains("1.jpg"));
  EXPECT_TRUE(deep.Contains("a/b/1.jpg"));
  EXPECT_FALSE(deep.Contains("a/b/1.png"));

  const ObjectSelection folders = Selected("s3://b/p/{cat,dog*}/");
  EXPECT_TRUE(folders.Contains("cat/1.jpg"));
  EXPECT_TRUE(folders.Contains("dogs/a/1.jpg"));
  EXPECT_FALSE(folders.Contains("cat"));
  EXPECT_FALSE(folders.Contains("dogs"));
  EXPECT_FALSE(folders.Contains("cats/1.jpg"));

  EXPECT_TRUE(Selected("{s3://b/p/,s3://b/p/x/y}").Contains("anything"));
}

TEST(ObjectSelection, ListsNoMoreThanItMust) {
  const auto prefixes = [](std::string_view uri) { return Selected(uri).prefixes(); };
  EXPECT_THAT(prefixes("s3://b/p/train-*.tar"), ElementsAre("train-"));
  EXPECT_THAT(prefixes("{s3://b/z/1*,s3://b/a,s3://b/a/c}"), ElementsAre("a", "z/1"));
  EXPECT_THAT(prefixes("s3://b/p/train-{0000..0099}.tar"), ElementsAre("train-00"));
  EXPECT_THAT(prefixes("{/data1/a,/data2/b}"), ElementsAre("data1/a", "data2/b"));
}

TEST(ObjectSelection, OfSeveralStoresIsRefused) {
  const auto selection = ObjectSelection::Parse("{s3://a/x,s3://b/x}");
  EXPECT_EQ(selection.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(selection.status().ToString(), HasSubstr("s3://a/ and s3://b/"));
  EXPECT_FALSE(ObjectSelection::Parse("{s3://a/x,/x}").ok());
}

TEST(ObjectSelection, HasAnIdOfItsNames) {
  EXPECT_EQ(Selected("s3://b/{x,y}").Id(), Selected("{s3://b/y,s3://b/x}").Id());
  EXPECT_NE(Selected("s3://b/{x,y}").Id(), Selected("s3://b/{x,z}").Id());
  EXPECT_NE(Selected("s3://b/{x,y}").Id(), Selected("s3://b/{x,y/}").Id());
  EXPECT_NE(Selected("s3://b/x*").Id(), Selected("s3://b/x*/").Id());
}

}  // namespace
}  // namespace millrace
