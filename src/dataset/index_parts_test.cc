#include "dataset/index_parts.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "dataset/index_builder.h"
#include "dataset/index_share.h"
#include "dataset/part_collector.h"
#include "dataset/string_writer.h"
#include "dataset/testing/data_place.h"
#include "shard/tar_writer.h"
#include "store/blocking.h"
#include "store/joined_store.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::string TarOf(int shard, int samples) {
  std::string out;
  for (int i = 0; i < samples; ++i) {
    const std::string label = fmt::format("{}", i % 3);
    EXPECT_TRUE(AppendTarHeader(out, fmt::format("{}-{}.cls", shard, i), label.size()).ok());
    out += label;
    AppendTarPadding(out, label.size());
  }
  AppendTarEnd(out);
  return out;
}

class IndexPartsTest : public ::testing::TestWithParam<std::string>, protected testing::DataPlace {
 protected:
  IndexPartsTest() : DataPlace(GetParam()) { options_.part_bytes = 1; }

  static std::string NameOf(int shard) { return fmt::format("{:02}.tar", shard); }
  void Put(int shard, int samples) { PutAt("set/" + NameOf(shard), TarOf(shard, samples)); }
  void PutShards(int count) {
    for (int i = 0; i < count; ++i) Put(i, i % 4 == 3 ? 0 : 2 + i);
  }

  std::vector<std::string> PartKeys() {
    const Location place = *stores_.Open(Uri("set"));
    const std::vector<ObjectInfo> parts = *ListAll(*place.store, place.Key(".millrace/index.part-"));
    std::vector<std::string> keys;
    for (const ObjectInfo& part : parts) keys.push_back(part.key);
    return keys;
  }
  std::string IndexBytes() {
    const Location place = *stores_.Open(Uri("set"));
    return ReadAll(*place.store, place.Key(".millrace/index"), 1 << 20).value_or("");
  }
  std::string FullIndex() {
    std::string bytes;
    const DatasetPlace place(*stores_.Open(Uri("set")));
    const auto open = [&bytes] { return std::make_unique<StringWriter>(&bytes); };
    EXPECT_TRUE(BuildIndex(runtime_, place, open, {.skip_bad = options_.skip_bad}).ok());
    return bytes;
  }

  // Ends the build as a kill does, once that many parts are kept.
  void BuildUntil(size_t parts_kept) {
    DatasetPlace place = *FindObjects(stores_, Uri("set"));
    JoinedStore joined(*place.store);
    place.store = &joined;
    IndexParts parts(stores_, place, options_.cache_folder);
    std::string bytes;
    size_t kept = 0;
    BuildOptions build;
    build.part_bytes = 1;
    build.keep_part = [&](std::string_view part) -> absl::Status {
      RETURN_IF_ERROR(parts.Keep(part, /*for_others=*/false));
      return ++kept == parts_kept ? absl::CancelledError("enough") : absl::OkStatus();
    };
    const auto built = BuildIndex(
        runtime_, place, [&] { return std::make_unique<StringWriter>(&bytes); }, build);
    EXPECT_TRUE(absl::IsCancelled(built.status())) << built.status();
  }

  absl::StatusOr<IndexShareReport> BuildShare(uint64_t part, uint64_t parts) {
    OpenOptions options = options_;
    options.share = {.part = part, .parts = parts};
    return BuildIndexShare(runtime_, stores_, Uri("set"), options);
  }
  std::unique_ptr<Dataset> Merge() {
    OpenOptions options = options_;
    options.rebuild = true;
    absl::StatusOr<std::unique_ptr<Dataset>> merged = Dataset::Open(runtime_, stores_, Uri("set"), options);
    EXPECT_TRUE(merged.ok()) << merged.status();
    return merged.ok() ? *std::move(merged) : nullptr;
  }
};

INSTANTIATE_TEST_SUITE_P(Stores, IndexPartsTest, ::testing::Values("mem", "file"),
                         [](const auto& i) { return i.param; });

TEST_P(IndexPartsTest, ABuildThatEndedEarlyGoesOnWhereItWas) {
  constexpr int kShards = 7;
  PutShards(kShards);
  const std::string full = FullIndex();
  for (size_t kept = 1; kept <= kShards; ++kept) {
    BuildUntil(kept);
    EXPECT_EQ(PartKeys().size(), kept);
    const auto dataset = OpenAt("set");
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->built()->reused_objects, kept);
    EXPECT_EQ(IndexBytes(), full);
    EXPECT_THAT(PartKeys(), ::testing::IsEmpty());
    DeleteAt("set/.millrace/index");
  }
}

TEST_P(IndexPartsTest, AnInterruptSaysWhatIsKept) {
  PutShards(40);
  std::stop_source stop;
  options_.stop = stop.get_token();
  options_.progress = [&](uint64_t, uint64_t) { stop.request_stop(); };
  const absl::Status status = OpenAt("set").status();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  const size_t kept = PartKeys().size();
  EXPECT_THAT(status.ToString(), HasSubstr(kept == 0   ? "nothing was changed"
                                           : kept == 1 ? "1 shard that was read is not read again"
                                                       : fmt::format("{} shards that were read are not", kept)));
  options_.stop = {};
  options_.progress = nullptr;
  EXPECT_EQ((*OpenAt("set"))->built()->reused_objects, kept);
}

TEST_P(IndexPartsTest, WhatHasChangedSinceIsReadAgain) {
  PutShards(6);
  BuildUntil(4);
  Put(1, 9);
  DeleteAt("set/" + NameOf(2));
  const auto dataset = OpenAt("set");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->built()->reused_objects, 2u);
  EXPECT_EQ(IndexBytes(), FullIndex());
}

TEST_P(IndexPartsTest, ADamagedPartIsNotUsed) {
  PutShards(5);
  BuildUntil(3);
  const std::vector<std::string> parts = PartKeys();
  const Location place = *stores_.Open(Uri("set"));
  std::string bytes = *ReadAll(*place.store, parts[0], 1 << 20);
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(PutBlocking(*place.store, parts[0], AsBytes(bytes)).ok());
  ASSERT_TRUE(PutBlocking(*place.store, parts[1], AsBytes("no index")).ok());
  EXPECT_EQ((*OpenAt("set"))->built()->reused_objects, 1u);
  EXPECT_EQ(IndexBytes(), FullIndex());
  EXPECT_THAT(PartKeys(), ::testing::IsEmpty());
}

TEST_P(IndexPartsTest, SharesInAnyOrderMakeTheSameIndex) {
  PutShards(8);
  const std::string full = FullIndex();
  std::vector<uint64_t> order = {0, 1, 2};
  do {
    uint64_t missing = 8;
    for (const uint64_t part : order) {
      const auto report = BuildShare(part, 3);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_EQ(report->summary.objects, part == 2 ? 2u : 3u);
      missing -= report->summary.objects;
      EXPECT_EQ(report->missing, missing);
      EXPECT_EQ(report->to_merge, missing == 0);
      EXPECT_EQ(IndexBytes(), "");
    }
    const auto dataset = Merge();
    EXPECT_EQ(dataset->built()->reused_objects, 8u) << "no shard is read again";
    EXPECT_EQ(IndexBytes(), full);
    EXPECT_THAT(PartKeys(), ::testing::IsEmpty());
    const auto again = BuildShare(1, 3);
    EXPECT_TRUE(again.ok() && again->missing == 0 && !again->to_merge);
    DeleteAt("set/.millrace/index");
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_P(IndexPartsTest, SharesBringAnIndexUpToDate) {
  PutShards(6);
  ASSERT_TRUE(OpenAt("set").ok());
  Put(1, 30);
  Put(6, 3);
  DeleteAt("set/" + NameOf(4));
  EXPECT_EQ(BuildShare(0, 2)->missing, 2u);
  EXPECT_TRUE(BuildShare(1, 2)->to_merge);
  EXPECT_EQ(Merge()->built()->reused_objects, 6u);
  EXPECT_EQ(IndexBytes(), FullIndex());
  DeleteAt("set/" + NameOf(5));
  EXPECT_TRUE(BuildShare(0, 2)->to_merge) << "the index has a shard that is gone";
}

TEST_P(IndexPartsTest, AShardThatChangesWhileOthersAreIndexedIsMissing) {
  PutShards(4);
  EXPECT_EQ(BuildShare(0, 2)->missing, 2u);
  Put(2, 5);
  EXPECT_EQ(BuildShare(1, 2)->missing, 1u);
  EXPECT_TRUE(BuildShare(0, 2)->to_merge);
}

TEST_P(IndexPartsTest, MoreSharesThanShards) {
  PutShards(2);
  const auto none = BuildShare(4, 5);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->summary.objects, 0u);
  EXPECT_EQ(none->missing, 2u);
  EXPECT_EQ(BuildShare(0, 5)->missing, 1u);
  EXPECT_TRUE(BuildShare(1, 5)->to_merge);
  EXPECT_TRUE(absl::IsInvalidArgument(BuildShare(5, 5).status()));
}

TEST_P(IndexPartsTest, DamagedShardsAreAnErrorOrLeftOut) {
  PutShards(4);
  const std::string whole = TarOf(2, 9);
  PutAt("set/" + NameOf(2), whole.substr(0, 3000));
  EXPECT_TRUE(absl::IsDataLoss(BuildShare(0, 2).status()));
  options_.skip_bad = true;
  EXPECT_EQ(BuildShare(0, 2)->report.damaged.size(), 1u);
  EXPECT_TRUE(BuildShare(1, 2)->to_merge);
  EXPECT_EQ(Merge()->built()->damaged.size(), 1u);
  EXPECT_EQ(IndexBytes(), FullIndex());
}

TEST_P(IndexPartsTest, OnlyShardsAreShared) {
  PutAt("set/a/1.jpg", "x");
  const absl::Status status = BuildShare(0, 2).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("without --part"));
}

// The ranks of a job each have a share, and work without the ranks that are not there.
TEST_P(IndexPartsTest, ProcessesOpenADataSetTogether) {
  PutShards(9);
  const std::string full = FullIndex();
  for (const std::vector<uint64_t>& there : {std::vector<uint64_t>{0, 1, 2}, {2}, {1, 0}}) {
    std::vector<std::thread> ranks;
    std::vector<absl::Status> opened(there.size());
    for (size_t i = 0; i < there.size(); ++i) {
      ranks.emplace_back([this, i, &there, &opened] {
        OpenOptions options = options_;
        options.share = {.part = there[i], .parts = 3};
        opened[i] = Dataset::Open(runtime_, stores_, Uri("set"), options).status();
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const absl::Status& status : opened) EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(IndexBytes(), full);
    EXPECT_TRUE(OpenAt("set").ok());
    DeleteAt("set/.millrace/index");
    const Location place = *stores_.Open(Uri("set"));
    for (const std::string& part : PartKeys()) ASSERT_TRUE(DeleteBlocking(*place.store, part).ok());
  }
}

TEST_P(IndexPartsTest, ARankReadsOnlyItsShareIfTheOthersHaveReadTheirs) {
  PutShards(9);
  EXPECT_EQ(BuildShare(0, 3)->missing, 6u);
  EXPECT_EQ(BuildShare(2, 3)->missing, 3u);
  const Location place = *stores_.Open(Uri("set"));
  options_.share = {.part = 1, .parts = 3};
  const uint64_t before = place.store->counters().bytes_read;
  const auto dataset = OpenAt("set");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->built()->reused_objects, 9u);
  if (GetParam() == "file") {  // where indexes are mapped, not read
    uint64_t own = 0;
    for (const int shard : {1, 4, 7}) own += HeadBlocking(*place.store, place.Key(NameOf(shard)))->size;
    EXPECT_EQ(place.store->counters().bytes_read - before, own);
  }
}

TEST_P(IndexPartsTest, RawObjectsAreOpenedTogether) {
  PutAt("set/a/1.jpg", "x");
  options_.share = {.part = 1, .parts = 2};
  EXPECT_EQ((*OpenAt("set"))->index().size(), 1u);
}

// A view can only be read, so that nothing is put beside the data.
TEST_P(IndexPartsTest, WhatCannotBePutBesideTheDataIsKeptInTheCacheFolder) {
  if (GetParam() == "mem") GTEST_SKIP() << "memory can always be written to";
  PutShards(4);
  Stores view(stores_, std::nullopt);
  DatasetPlace place = *FindObjects(view, Uri("set"));
  IndexParts parts(view, place, options_.cache_folder);
  std::vector<std::string> made;
  BuildOptions build;
  build.only = [](uint64_t number, const IndexedObject&) { return number % 2 == 0; };
  build.keep_part = [&](std::string_view part) {
    made.emplace_back(part);
    EXPECT_TRUE(absl::IsPermissionDenied(parts.Keep(part, /*for_others=*/true)));
    return parts.Keep(part, /*for_others=*/false);
  };
  std::string bytes;
  ASSERT_TRUE(BuildIndex(
                  runtime_, place, [&] { return std::make_unique<StringWriter>(&bytes); }, build)
                  .ok());
  ASSERT_EQ(made.size(), 1u);
  EXPECT_THAT(PartKeys(), ::testing::IsEmpty());
  const auto found = parts.Find();
  ASSERT_TRUE(found.ok() && found->size() == 1);
  EXPECT_EQ((*found)[0]->objects(), 2u);
  const auto dataset = Dataset::Open(runtime_, view, Uri("set"), options_);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->built()->reused_objects, 2u);
  EXPECT_TRUE(parts.Find()->empty());
}

TEST_P(IndexPartsTest, PartsLieInTheCacheFolderIfTheIndexIsToLieThere) {
  options_.index = IndexUse::kCache;
  for (const uint64_t parts : {1, 2}) {
    PutShards(4);
    PutAt("set/99.tar", TarOf(99, 9).substr(0, 3000));
    options_.share = {.part = 0, .parts = parts};
    EXPECT_TRUE(absl::IsDataLoss(OpenAt("set").status()));
    EXPECT_THAT(PartKeys(), ::testing::IsEmpty());
    DeleteAt("set/99.tar");
    const auto dataset = OpenAt("set");
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->built()->reused_objects, 4u);
    EXPECT_FALSE(ExistsAt("set/.millrace/index"));
    std::filesystem::remove_all(options_.cache_folder);
  }
}

TEST(PartCollector, LeavesOutWhatTheBudgetDoesNotHold) {
  MemoryBudget budget(4 << 20);
  std::vector<std::string> parts;
  PartCollector collector(
      DataKind::kTar, budget,
      [&](std::string_view part) {
        parts.emplace_back(part);
        return absl::OkStatus();
      },
      /*required=*/false);
  const std::vector<NewSampleField> fields = {{.name = "jpg", .offset = 512, .length = 10, .encoding = {}}};
  const auto add = [&](const std::string& key) {
    ASSERT_TRUE(collector.AddSample({.key = key + "/1", .fields = fields, .label = {}}).ok());
    ASSERT_TRUE(collector.AddObject({.key = key, .size = 5000, .etag = "e"}, 10'000).ok());
  };
  add("a");
  Reservation others = budget.TryReserve(budget.limit() - budget.used());
  add("b");  // there is room for it
  EXPECT_EQ(parts.size(), 1u);
  EXPECT_EQ(budget.used(), others.bytes()) << "what is kept needs no memory";
  others = budget.TryReserve(budget.limit() - budget.used());
  Reservation all = budget.TryReserve(budget.limit() - budget.used());
  add("c");
  add("d");
  ASSERT_TRUE(collector.Finish().ok());
  EXPECT_EQ(parts.size(), 1u);
  EXPECT_EQ(collector.kept_objects(), 2u);
  others = {};
  all = {};
  add("e");
  ASSERT_TRUE(collector.Finish().ok());
  ASSERT_EQ(parts.size(), 2u);
  const auto last = *Index::FromBytes(parts[1]);
  EXPECT_EQ(last->objects(), 1u);
  EXPECT_EQ(last->size(), 1u);
}

}  // namespace
}  // namespace millrace
