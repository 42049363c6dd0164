#include "shard/wids_index.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(WidsIndex, HasTheSamplesOfShards) {
  const auto shards = ParseWidsIndex(
      R"({"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": [
          {"url": "a/0.tar", "md5sum": "x", "nsamples": 7, "filesize": 10240},
          {"url": "https://host/1.tar", "nsamples": 0}]})");
  ASSERT_TRUE(shards.ok()) << shards.status();
  ASSERT_EQ(shards->size(), 2u);
  EXPECT_EQ(shards->front().url, "a/0.tar");
  EXPECT_EQ(shards->front().samples, 7u);
  EXPECT_EQ(shards->back().samples, 0u);
}

TEST(WidsIndex, RefusesOtherTexts) {
  for (const char* const text : {"", "{", "[]", "7", R"({"shardlist": []})", R"({"wids_version": 1})",
                                 R"({"wids_version": 1, "shardlist": [{"url": "0.tar"}]})",
                                 R"({"wids_version": 1, "shardlist": [{"url": "0.tar", "nsamples": -1}]})",
                                 R"({"wids_version": 1, "shardlist": [{"url": 3, "nsamples": 1}]})",
                                 R"({"wids_version": 1, "shardlist": {}})"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseWidsIndex(text).status())) << text;
  }
}

}  // namespace
}  // namespace millrace
