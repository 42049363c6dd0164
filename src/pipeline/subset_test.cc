#include "pipeline/subset.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "dataset/index_writer.h"
#include "pipeline/source.h"
#include "shard/tar_writer.h"
#include "store/blocking.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Provides raw objects in memory: three classes, spans of 1 to 40 bytes.
class SubsetTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kSamples = 500;

  SubsetTest() : runtime_({.io_threads = 1, .cpu_threads = 3}), stores_(runtime_) {
    const Location data = *stores_.Open("mem://data");
    const char* classes[] = {"cat", "dog", "eel"};
    for (uint64_t i = 0; i < kSamples; ++i) {
      const std::string name = fmt::format("{}/{:04}.{}", classes[i % 3], i, i % 5 == 0 ? "png" : "jpg");
      EXPECT_TRUE(PutBlocking(*data.store, name, AsBytes(std::string(1 + i % 40, 'x'))).ok());
    }
    dataset_ = *Dataset::Open(runtime_, stores_, "mem://data");
  }

  IndexedSample Entry(uint64_t sample) const {
    IndexedSample entry;
    EXPECT_TRUE(dataset_->index().Lookup(sample, &entry).ok());
    return entry;
  }
  std::vector<uint64_t> Members(const Subset& subset) const {
    std::vector<uint64_t> members;
    for (uint64_t rank = 0; rank < subset.size(); ++rank) members.push_back(subset.SampleAt(rank));
    return members;
  }
  template <typename Meets>
  std::vector<uint64_t> Those(Meets meets) const {
    std::vector<uint64_t> members;
    for (uint64_t sample = 0; sample < kSamples; ++sample) {
      if (meets(sample, Entry(sample))) members.push_back(sample);
    }
    return members;
  }

  Runtime runtime_;
  Stores stores_;
  std::unique_ptr<Dataset> dataset_;
};

TEST_F(SubsetTest, EachConditionTakesThoseThatMeetIt) {
  const KeyRange keys = SplitKeys(std::vector{0.3, 0.7}, 5)->front();
  EXPECT_EQ(Members(*Where(runtime_, *dataset_, {.keys = keys})),
            Those([&](uint64_t, const IndexedSample& entry) { return keys.Takes(entry.key); }));
  Filter filter;
  filter.classes = {"eel", "cat"};
  EXPECT_EQ(Members(*Where(runtime_, *dataset_, filter)),
            Those([](uint64_t, const IndexedSample& entry) { return !entry.key.starts_with("dog/"); }));
  EXPECT_EQ(
      Members(*Where(runtime_, *dataset_, {.min_bytes = 10, .max_bytes = 20})),
      Those([](uint64_t, const IndexedSample& entry) { return entry.span.length >= 10 && entry.span.length <= 20; }));
  EXPECT_EQ(Members(*Where(runtime_, *dataset_, {.has = {"png"}})),
            Those([](uint64_t, const IndexedSample& entry) { return entry.fields.back().name == "png"; }));
  Selection::Builder numbers(kSamples);
  for (uint64_t sample = 7; sample < kSamples; sample += 11) numbers.Add(sample);
  filter = {.samples = std::make_shared<const Selection>(std::move(numbers).Finish())};
  EXPECT_EQ(Members(*Where(runtime_, *dataset_, filter)),
            Those([](uint64_t sample, const IndexedSample&) { return sample % 11 == 7; }));
}

TEST_F(SubsetTest, ASplitOfEqualKeysMustBeMeant) {
  const Location data = *stores_.Open("mem://patients");
  for (int shard = 0; shard < 5; ++shard) {
    std::string tar;
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(AppendTarHeader(tar, fmt::format("{:03}.txt", i), 1).ok());
      tar += "x";
      AppendTarPadding(tar, 1);
    }
    AppendTarEnd(tar);
    EXPECT_TRUE(PutBlocking(*data.store, fmt::format("{}.tar", shard), AsBytes(tar)).ok());
  }
  const auto patients = *Dataset::Open(runtime_, stores_, "mem://patients");
  const KeyRange keys = SplitKeys(std::vector{0.5, 0.5}, 5)->front();
  const absl::Status refused = Where(runtime_, *patients, {.keys = keys}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.ToString(), HasSubstr("only about 20 of 100 samples"));
  const auto half = Where(runtime_, *patients, {.keys = keys, .key_groups = true});
  ASSERT_TRUE(half.ok()) << half.status();
  EXPECT_EQ(half->size() % 5, 0u);
}

TEST_F(SubsetTest, ConditionsOfASubsetAreConditionsTogether) {
  Filter cats;
  cats.classes = {"cat"};
  const Filter large{.min_bytes = 15};
  Filter both = cats;
  both.min_bytes = 15;
  const Subset one = *Where(runtime_, *Where(runtime_, *dataset_, cats), large);
  const Subset other = *Where(runtime_, *Where(runtime_, *dataset_, large), cats);
  const Subset together = *Where(runtime_, *dataset_, both);
  EXPECT_EQ(Members(one), Members(together));
  EXPECT_EQ(one.fingerprint(), together.fingerprint());
  EXPECT_EQ(other.fingerprint(), together.fingerprint());
  EXPECT_NE(one.fingerprint(), dataset_->index().fingerprint());
  uint64_t bytes = 0;
  for (const uint64_t sample : Members(one)) bytes += Entry(sample).span.length;
  EXPECT_EQ(one.total_bytes, bytes);
}

TEST_F(SubsetTest, AllSamplesAreTheDataSetItself) {
  const Subset all = *Where(runtime_, *dataset_, {});
  EXPECT_EQ(all.size(), kSamples);
  EXPECT_EQ(all.selection, nullptr);
  EXPECT_EQ(all.fingerprint(), dataset_->index().fingerprint());
  EXPECT_EQ(all.total_bytes, dataset_->index().total_bytes());
  EXPECT_THAT(Members(*Where(runtime_, *dataset_, {.min_bytes = 1000})), IsEmpty());
}

TEST_F(SubsetTest, ASplitDealsEverySampleOnce) {
  std::set<uint64_t> seen;
  const std::vector<KeyRange> parts =
      *SplitKeys(std::vector{0.5, 0.25, 0.25}, 1);  // named: a range-for does not keep it alive
  for (const KeyRange& keys : parts) {
    for (const uint64_t sample : Members(*Where(runtime_, *dataset_, {.keys = keys}))) {
      EXPECT_TRUE(seen.insert(sample).second);
    }
  }
  EXPECT_EQ(seen.size(), kSamples);
}

TEST_F(SubsetTest, ClassesAreGroups) {
  const std::vector<Subset> classes = *ByClass(runtime_, *Where(runtime_, *dataset_, {.max_bytes = 30}));
  ASSERT_EQ(classes.size(), 3u);
  const char* names[] = {"cat/", "dog/", "eel/"};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Members(classes[i]), Those([&](uint64_t, const IndexedSample& entry) {
                return entry.key.starts_with(names[i]) && entry.span.length <= 30;
              }));
  }
}

TEST_F(SubsetTest, ClassesOfShardsAreTheNumbersInCls) {
  std::string shard;
  const char* labels[] = {"10", "9", "", "10", "9 ", "x"};
  for (size_t i = 0; i < std::size(labels); ++i) {
    const std::string_view label = labels[i];
    EXPECT_TRUE(AppendTarHeader(shard, fmt::format("{}.cls", i), label.size()).ok());
    shard += label;
    AppendTarPadding(shard, label.size());
  }
  AppendTarEnd(shard);
  const Location data = *stores_.Open("mem://shards");
  ASSERT_TRUE(PutBlocking(*data.store, "a.tar", AsBytes(shard)).ok());
  const auto shards = *Dataset::Open(runtime_, stores_, "mem://shards");
  const std::vector<Subset> classes = *ByClass(runtime_, *shards);
  ASSERT_EQ(classes.size(), 2u);
  EXPECT_EQ(Members(classes[0]), (std::vector<uint64_t>{1, 4})) << "9 comes before 10";
  EXPECT_EQ(Members(classes[1]), (std::vector<uint64_t>{0, 3}));
  Filter filter;
  filter.classes = {"10"};
  EXPECT_EQ(Members(*Where(runtime_, *shards, filter)), (std::vector<uint64_t>{0, 3}));
  filter.classes = {"x"};
  EXPECT_THAT(Where(runtime_, *shards, filter).status().ToString(),
              HasSubstr("no class 'x'; its 2 classes are: 9, 10"));
}

TEST_F(SubsetTest, WithoutClassesThatIsSaid) {
  std::string shard;
  EXPECT_TRUE(AppendTarHeader(shard, "0.jpg", 0).ok());
  AppendTarEnd(shard);
  const Location data = *stores_.Open("mem://bare");
  ASSERT_TRUE(PutBlocking(*data.store, "a.tar", AsBytes(shard)).ok());
  const auto bare = *Dataset::Open(runtime_, stores_, "mem://bare");
  const absl::Status status = ByClass(runtime_, *bare).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.ToString(), HasSubstr("the index knows no classes"));
}

TEST_F(SubsetTest, ASourceNumbersItsItemsThrough) {
  const std::vector<Subset> classes = *ByClass(runtime_, *dataset_);
  const Source source(classes);
  EXPECT_EQ(source.size(), kSamples);
  EXPECT_EQ(source.total_bytes(), dataset_->index().total_bytes());
  EXPECT_EQ(source.uri(), "mem://data");
  uint64_t item = 0;
  for (size_t part = 0; part < 3; ++part) {
    EXPECT_EQ(source.FirstOf(part), item);
    for (uint64_t rank = 0; rank < classes[part].size(); ++rank, ++item) {
      EXPECT_EQ(source.Find(item).part, part);
      EXPECT_EQ(source.Find(item).rank, rank);
      EXPECT_EQ(source.SampleOf(item), classes[part].SampleAt(rank));
    }
  }
}

/// Provides an index alone, of so many samples that several threads walk it.
class ManyGroupsTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kSamples = 1'300'000;
  static constexpr uint64_t kObjectSamples = 100;  // so many objects that opening does not look for them
  static constexpr uint32_t kGroups = 5000;        // too many for a builder each

  ManyGroupsTest() : runtime_({.io_threads = 1, .cpu_threads = 3}), stores_(runtime_) {
    const Location data = *stores_.Open("mem://many");
    IndexWriter writer(DataKind::kTar, *data.store->Write(data.Key(".millrace/index"), {}));
    for (uint64_t sample = 0; sample < kSamples; ++sample) {
      const std::string key = fmt::format("{:08}", sample);
      const uint64_t number = sample % kObjectSamples;
      const NewSampleField fields[] = {{.name = "bin", .offset = 512 + number * 1024, .length = BytesOf(sample)}};
      EXPECT_TRUE(writer.AddSample({.key = key, .fields = fields, .crc32c = 0, .label = {}}).ok());
      if (number + 1 < kObjectSamples) continue;
      EXPECT_TRUE(writer.AddObject({.key = fmt::format("{:08}.tar", sample), .size = 200'000, .etag = "e"}).ok());
    }
    EXPECT_TRUE(writer.Finish().ok());
    dataset_ = *Dataset::Open(runtime_, stores_, "mem://many");
  }

  static uint64_t BytesOf(uint64_t sample) { return 1 + sample % 512; }
  /// Some groups have many samples, some a stretch, most few, the last ones none; some samples are of no group.
  static std::optional<uint32_t> GroupOfRank(uint64_t rank) {
    if (rank % 7 == 0) return std::nullopt;
    if (rank % 3 == 0) return 17;
    if (rank / 1000 % 50 == 0) return static_cast<uint32_t>(rank / 50'000);
    return static_cast<uint32_t>(Mix64(rank) % (kGroups - 100));
  }

  /// Compares the result with plain lists.
  void ExpectDealt(const Subset& of, uint32_t groups) {
    const absl::StatusOr<std::vector<Subset>> dealt =
        GroupBy(runtime_, of, groups, [](uint64_t rank, const IndexedSample& /*entry*/) { return GroupOfRank(rank); });
    ASSERT_TRUE(dealt.ok()) << dealt.status();
    ASSERT_EQ(dealt->size(), groups);
    std::vector<Selection::Builder> builders(groups, Selection::Builder(kSamples));
    std::vector<uint64_t> bytes(groups);
    for (uint64_t rank = 0; rank < of.size(); ++rank) {
      const std::optional<uint32_t> group = GroupOfRank(rank);
      if (!group) continue;
      const uint64_t sample = of.SampleAt(rank);
      builders[*group].Add(sample);
      bytes[*group] += BytesOf(sample);
    }
    for (uint32_t group = 0; group < groups; ++group) {
      const Selection expected = std::move(builders[group]).Finish();
      const Subset& found = (*dealt)[group];
      ASSERT_EQ(found.total_bytes, bytes[group]);
      ASSERT_EQ(found.size(), expected.size());
      ASSERT_EQ(found.selection->fingerprint(), expected.fingerprint());
      for (uint64_t rank = 0; rank < expected.size(); ++rank) ASSERT_EQ(found.SampleAt(rank), expected.At(rank));
    }
  }

  Runtime runtime_;
  Stores stores_;
  std::unique_ptr<Dataset> dataset_;
};

TEST_F(ManyGroupsTest, AreDealtAsFewAre) {
  ExpectDealt(*dataset_, kGroups);
  Selection::Builder some(kSamples);
  for (uint64_t sample = 100; sample < kSamples - 70'000; sample += 1 + sample / 5 % 4) some.Add(sample);
  const Subset subset(*dataset_, std::move(some).Finish(), 0);
  ExpectDealt(subset, kGroups);
  // One group of all samples is the data set.
  const std::vector<Subset> all =
      *GroupBy(runtime_, *dataset_, kGroups, [](uint64_t, const IndexedSample&) { return 3; });
  EXPECT_EQ(all[3].fingerprint(), dataset_->index().fingerprint());
  EXPECT_EQ(all[2].size(), 0u);
}

TEST_F(ManyGroupsTest, OfSamplesThatDoNotStayIsAnError) {
  for (const std::optional<uint32_t> later : {std::optional<uint32_t>(1), std::optional<uint32_t>()}) {
    std::atomic<uint64_t> calls = 0;
    const auto changing = [&](uint64_t, const IndexedSample&) { return calls++ < kSamples + 1000 ? 0 : later; };
    const absl::Status status = GroupBy(runtime_, *dataset_, kGroups, changing).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(status.ToString(), HasSubstr("mem://many: the groups of samples changed"));
  }
}

TEST_F(SubsetTest, RefusesWhatTheDataSetLacks) {
  Filter filter;
  filter.classes = {"cow"};
  const auto message = [&](const Filter& wrong) {
    const absl::Status status = Where(runtime_, *dataset_, wrong).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message(filter), HasSubstr("no class 'cow'; its 3 classes are: cat, dog, eel"));
  EXPECT_THAT(message({.has = {"txt"}}), HasSubstr("no field 'txt'"));
  filter = {.samples = std::make_shared<const Selection>(Selection::Builder(3).Finish())};
  EXPECT_THAT(message(filter), HasSubstr("does not fit"));
}

}  // namespace
}  // namespace millrace
