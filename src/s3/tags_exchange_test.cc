#include "s3/tags_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "s3/testing/exchange_fixture.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class TagsExchangeTest : public ExchangeTest {
 protected:
  absl::StatusOr<ObjectTags> Tags(ExchangeDriver::Store store) {
    return Run<absl::StatusOr<ObjectTags>>(std::move(store), [](S3Context& context, auto done) {
      return std::make_unique<TagsExchange>(context, "bucket", "key", std::move(done));
    });
  }
};

TEST_F(TagsExchangeTest, ReadsThemInTheStoresOrder) {
  const auto tags = Tags(InTurn(
      {{.status = 200,
        .headers = {},
        .body = "<Tagging><TagSet><Tag><Key>team</Key><Value>a &amp; b</Value></Tag><Tag><Key>empty</Key><Value/>"
                "</Tag></TagSet></Tagging>"}}));
  ASSERT_TRUE(tags.ok()) << tags.status();
  EXPECT_THAT(*tags, ElementsAre(Pair("team", "a & b"), Pair("empty", "")));
  EXPECT_EQ(requests_[0].head.method, "GET");
  EXPECT_EQ(requests_[0].head.target, "/bucket/key?tagging=");
}

TEST_F(TagsExchangeTest, AStoreWithoutTagsHasNone) {
  for (const ScriptedAnswer& answer :
       {Error(404, "NoSuchTagSet"), Error(501, "NotImplemented"), Error(405, "MethodNotAllowed"),
        ScriptedAnswer{.status = 200, .headers = {}, .body = "<Tagging><TagSet/></Tagging>"},
        ScriptedAnswer{.status = 200, .headers = {}, .body = ""}}) {
    const auto tags = Tags(InTurn({answer}));
    ASSERT_TRUE(tags.ok()) << tags.status();
    EXPECT_THAT(*tags, IsEmpty());
  }
}

TEST_F(TagsExchangeTest, WhatIsForbiddenIsAnError) {
  EXPECT_TRUE(absl::IsPermissionDenied(Tags(InTurn({Error(403, "AccessDenied")})).status()));
  EXPECT_TRUE(absl::IsNotFound(Tags(InTurn({Error(404, "NoSuchKey")})).status()));
}

TEST_F(TagsExchangeTest, AnAnswerThatIsNoTagsIsAskedForAgain) {
  const ScriptedAnswer odd = {.status = 200, .headers = {}, .body = "<html/>"};
  const ScriptedAnswer nameless = {
      .status = 200, .headers = {}, .body = "<Tagging><TagSet><Tag><Value>v</Value></Tag></TagSet></Tagging>"};
  const ScriptedAnswer good = {.status = 200, .headers = {}, .body = "<Tagging><TagSet/></Tagging>"};
  EXPECT_TRUE(Tags(InTurn({odd, nameless, good})).ok());
  EXPECT_EQ(requests_.size(), 3u);
}

}  // namespace
}  // namespace millrace
