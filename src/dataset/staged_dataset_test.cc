#include "dataset/staged_dataset.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "dataset/testing/data_place.h"
#include "shard/tar_writer.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::string StagedTar(int shard, int samples) {
  std::string out;
  for (int i = 0; i < samples; ++i) {
    const std::string text = fmt::format("sample {} of {}", i, shard);
    EXPECT_TRUE(AppendTarHeader(out, fmt::format("{}-{}.txt", shard, i), text.size()).ok());
    out += text;
    AppendTarPadding(out, text.size());
  }
  AppendTarEnd(out);
  return out;
}

class StagedDatasetTest : public ::testing::TestWithParam<std::string>, protected testing::DataPlace {
 protected:
  StagedDatasetTest() : DataPlace(GetParam()) {
    for (int i = 0; i < 5; ++i) Put(i, i == 3 ? 0 : 2 + i);
  }
  void Put(int shard, int samples) { PutAt(fmt::format("set/{:02}.tar", shard), StagedTar(shard, samples)); }
  std::unique_ptr<StagedDataset> Open() {
    absl::StatusOr<std::unique_ptr<StagedDataset>> staged =
        StagedDataset::Open(runtime_, stores_, Uri("set"), options_);
    EXPECT_TRUE(staged.ok()) << staged.status();
    return staged.ok() ? *std::move(staged) : nullptr;
  }
  static std::vector<std::string> ReadSome(StagedDataset& staged, const std::vector<uint64_t>& places) {
    const absl::StatusOr<std::unique_ptr<Dataset>> some = staged.OpenSome(places);
    EXPECT_TRUE(some.ok()) << some.status();
    return some.ok() ? Read(**some) : std::vector<std::string>();
  }
};

INSTANTIATE_TEST_SUITE_P(Stores, StagedDatasetTest, ::testing::Values("mem", "file"),
                         [](const auto& i) { return i.param; });

TEST_P(StagedDatasetTest, SomeShardsAreADataSetOfTheirOwn) {
  const auto staged = Open();
  EXPECT_EQ(staged->shards().size(), 5u);
  std::vector<std::string> all;
  for (const std::vector<uint64_t>& places : {std::vector<uint64_t>{1, 4}, {0, 2}}) {
    const std::vector<std::string> some = ReadSome(*staged, places);
    EXPECT_EQ(some.size(), places[0] == 1 ? 9u : 6u);
    all.insert(all.end(), some.begin(), some.end());
  }
  EXPECT_EQ(staged->indexed_shards(), 4u);
  EXPECT_FALSE(ExistsAt("set/.millrace/index"));
  std::sort(all.begin(), all.end());
  std::vector<std::string> expected = Read(**OpenAt("set"));
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(all, expected);
}

TEST_P(StagedDatasetTest, ShardsWithoutSamplesAreNone) {
  const auto staged = Open();
  EXPECT_TRUE(ReadSome(*staged, {3}).empty());
}

TEST_P(StagedDatasetTest, WhatWasOpenedIsNotReadAgain) {
  const std::vector<std::string> first = ReadSome(*Open(), {0, 4});
  const auto again = Open();
  EXPECT_EQ(ReadSome(*again, {0, 4}), first);
  EXPECT_EQ(again->indexed_shards(), 0u);
  EXPECT_EQ(ReadSome(*again, {0, 1, 4}).size(), 11u);
  EXPECT_EQ(again->indexed_shards(), 1u);
}

TEST_P(StagedDatasetTest, TheIndexFollowsFromItsStages) {
  const auto staged = Open();
  for (uint64_t i = 0; i < 5; ++i) ReadSome(*staged, {i});
  const absl::StatusOr<std::unique_ptr<Dataset>> whole = staged->OpenAll();
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ((*whole)->built()->reused_objects, 5u);
  EXPECT_EQ((*whole)->index().size(), 15u);
}

TEST_P(StagedDatasetTest, AnIndexSavesReading) {
  const std::vector<std::string> before = ReadSome(*Open(), {1, 2});
  const uint64_t fingerprint = Open()->listing_fingerprint();
  ASSERT_TRUE(OpenAt("set").ok());
  const auto staged = Open();
  EXPECT_EQ(staged->listing_fingerprint(), fingerprint);
  EXPECT_EQ(ReadSome(*staged, {1, 2}), before);
  EXPECT_EQ(ReadSome(*staged, {0, 3, 4}).size(), 8u);
  EXPECT_EQ(staged->indexed_shards(), 0u);
}

TEST_P(StagedDatasetTest, AShardThatChangesAfterTheListingIsRefused) {
  const auto staged = Open();
  Put(1, 7);
  const absl::Status changed = staged->OpenSome({1, 2}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(changed)) << changed;
  EXPECT_THAT(std::string(changed.message()), HasSubstr("'01.tar' was changed"));
  DeleteAt("set/02.tar");
  const absl::Status removed = staged->OpenSome({0, 2}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(removed)) << removed;
  EXPECT_THAT(std::string(removed.message()), HasSubstr("'02.tar' was removed"));
  EXPECT_TRUE(absl::IsFailedPrecondition(staged->OpenSome({2}).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(staged->OpenAll().status()));
}

TEST_P(StagedDatasetTest, AnIndexJsonOfWidsCountsTheSamples) {
  EXPECT_EQ(Open()->counted_samples(), 0u);
  const auto counts = [](int of_last) {
    std::string json = R"({"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": [)";
    for (int i = 0; i < 5; ++i) {
      json += fmt::format(R"({}{{"url": "{}{:02}.tar", "nsamples": {}}})", i == 0 ? "" : ", ",
                          i == 2 ? "https://host/x/" : "", i, i == 4 ? of_last : (i == 3 ? 0 : 2 + i));
    }
    return json + "]}";
  };
  PutAt("set/another.json", R"({"shards": 5})");
  PutAt("set/index.json", counts(6));
  const uint64_t fingerprint = Open()->listing_fingerprint();
  const auto staged = Open();
  EXPECT_EQ(staged->counted_samples(), 15u);
  EXPECT_EQ(staged->Again()->counted_samples(), 15u);
  ReadSome(*staged, {0, 3, 4});
  EXPECT_EQ(staged->counted_samples(), 15u);
  // Its numbers are wrong: that is noticed when a stage is opened.
  PutAt("set/index.json", counts(7));
  const auto wrong = Open();
  EXPECT_EQ(wrong->counted_samples(), 16u);
  EXPECT_EQ(wrong->listing_fingerprint(), fingerprint);
  ReadSome(*wrong, {0, 1});
  EXPECT_EQ(wrong->counted_samples(), 16u);
  EXPECT_EQ(ReadSome(*wrong, {3, 4}).size(), 6u);
  EXPECT_EQ(wrong->counted_samples(), 0u);
  // A shard is not in it.
  Put(7, 1);
  EXPECT_EQ(Open()->counted_samples(), 0u);
  DeleteAt("set/07.tar");
  // So many files are about single shards, and are not read.
  PutAt("set/index.json", counts(6));
  EXPECT_EQ(Open()->counted_samples(), 15u);
  for (int i = 0; i < 3; ++i) PutAt(fmt::format("set/{:02}_stats.json", i), "{}");
  EXPECT_EQ(Open()->counted_samples(), 0u);
}

TEST_P(StagedDatasetTest, RawObjectsAreNotStaged) {
  PutAt("raw/a.jpg", "a");
  const absl::Status refused = StagedDataset::Open(runtime_, stores_, Uri("raw"), options_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
}

TEST_P(StagedDatasetTest, RanksShareTheShardsOfAStage) {
  options_.share = {.part = 1, .parts = 2};
  const auto one = Open();
  options_.share = {.part = 0, .parts = 2};
  const auto other = Open();
  const std::vector<std::string> first = ReadSome(*one, {0, 1, 2});
  EXPECT_EQ(ReadSome(*other, {0, 1, 2}), first);
  EXPECT_EQ(other->indexed_shards(), 0u);
  EXPECT_FALSE(ExistsAt("set/.millrace/index"));
}

TEST_P(StagedDatasetTest, RanksShareTheShardsOfAStageThroughTheCacheFolder) {
  options_.index = IndexUse::kCache;
  options_.share = {.part = 1, .parts = 2};
  const auto one = Open();
  options_.share = {.part = 0, .parts = 2};
  const auto other = Open();
  const std::vector<std::string> first = ReadSome(*one, {0, 1, 2});
  EXPECT_EQ(ReadSome(*other, {0, 1, 2}), first);
  EXPECT_EQ(other->indexed_shards(), 0u);
  const Location place = *stores_.Open(base_);
  EXPECT_EQ(ListAll(*place.store, place.Key("set/.millrace/"))->size(), 0u);
}

}  // namespace
}  // namespace millrace
