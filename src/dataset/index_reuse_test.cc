#include "dataset/index_reuse.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <map>
#include <tuple>
#include <vector>

#include "base/crypto.h"
#include "base/rng.h"
#include "dataset/index_builder.h"
#include "dataset/string_writer.h"
#include "dataset/testing/index_model.h"
#include "shard/mds_writer.h"
#include "shard/shard_encoder.h"
#include "store/blocking.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// A data set that changes, of every kind and in stores with ETags of their own.
class IndexReuseTest : public ::testing::TestWithParam<std::tuple<std::string, DataKind>> {
 protected:
  IndexReuseTest()
      : kind_(std::get<1>(GetParam())),
        root_(fs::path(::testing::TempDir()) / fmt::format("reuse-{}-{}", getpid(), RandomHex(6))) {
    data_ = *stores_.Open(std::get<0>(GetParam()) == "mem" ? "mem://data/set" : (root_ / "set").string());
  }
  ~IndexReuseTest() override { fs::remove_all(root_); }

  // Returns keys in the order of the numbers. Folders of raw objects are their classes, and are shared by some.
  std::string KeyOf(int number) const {
    switch (kind_) {
      case DataKind::kRawObjects:
        return fmt::format("c{:02}/{:04}.jpg", number / 7, number);
      case DataKind::kTar:
        return fmt::format("s{:04}.tar", number);
      case DataKind::kTfRecord:
        return fmt::format("s{:04}.tfrecord", number);
      case DataKind::kRecordIo:
        return fmt::format("s{:04}.rec", number);
      case DataKind::kMds:
        return fmt::format("s{:04}.mds", number);
      case DataKind::kTokens:
        break;  // token_files_test
    }
    return "";
  }

  std::string Random(uint64_t bytes) {
    std::string data(bytes, '\0');
    for (char& c : data) c = static_cast<char>(rng_.Next());
    return data;
  }
  static SampleShape ShapeOf(std::string key, std::string_view label, std::string_view image) {
    return {.key = std::move(key),
            .fields = {{.name = "cls", .length = label.size(), .type = FieldType::kInt, .image = {}},
                       {.name = "jpg", .length = image.size(), .type = FieldType::kBytes, .image = "jpeg"}}};
  }

  // Labels come and go with the shards, so that the order in which classes are met changes.
  std::string NewObject(int number) {
    if (kind_ == DataKind::kRawObjects) return Random(rng_.Below(3000));
    std::string out;
    const auto sink = [&out](ByteSpan bytes) { return out.append(AsText(bytes)), absl::OkStatus(); };
    const auto encoder = *MakeShardEncoder(kind_, ShapeOf("k", "1", "x"));
    EXPECT_TRUE(encoder->Begin(sink).ok());
    samples_[number] = 12 + rng_.Below(48);
    for (uint64_t i = 0; i < samples_[number]; ++i) {
      const std::string label = fmt::format("{}", rng_.Below(3) + (rng_.Below(9) == 0 ? 100 * rng_.Below(30) : 0));
      const std::string image = "\xff\xd8\xff" + Random(rng_.Below(500));
      EXPECT_TRUE(encoder->BeginSample(ShapeOf(fmt::format("{}-{}", number, i), label, image), sink).ok());
      EXPECT_TRUE(encoder->Add(AsBytes(label + image), sink).ok());
    }
    EXPECT_TRUE(encoder->End(sink).ok());
    return out;
  }
  void Put(int number) {
    const std::string object = NewObject(number);
    sizes_[number] = object.size();
    ASSERT_TRUE(PutBlocking(*data_.store, data_.Key(KeyOf(number)), AsBytes(object)).ok());
  }
  void Remove(int number) {
    sizes_.erase(number);
    ASSERT_TRUE(DeleteBlocking(*data_.store, data_.Key(KeyOf(number))).ok());
  }
  // The companion of MDS lists the shards, and changes with them.
  void PutCompanion() {
    if (kind_ != DataKind::kMds) return;
    std::vector<MdsShardEntry> entries;
    for (const auto& [number, size] : sizes_)
      entries.push_back({.name = KeyOf(number), .bytes = size, .samples = samples_[number]});
    const std::string json = MdsIndexJson(*MdsColumnsOf(ShapeOf("k", "1", "x")), entries);
    ASSERT_TRUE(PutBlocking(*data_.store, data_.Key("index.json"), AsBytes(json)).ok());
  }

  absl::StatusOr<BuildReport> TryBuild(const Index* reuse, std::string* bytes, bool skip_bad = false) {
    bytes->clear();
    const auto open = [bytes] { return std::make_unique<StringWriter>(bytes); };
    ASSIGN_OR_RETURN(const BuiltIndex built,
                     BuildIndex(runtime_, data_, open, {.reuse = reuse, .raw = {.all = true}, .skip_bad = skip_bad}));
    EXPECT_EQ(built.summary.index_bytes, bytes->size());
    return built.report;
  }
  // Brings `index` up to date, and compares the result with that of a full build. Returns the number of objects that
  // were reused.
  uint64_t Update(std::string* index) {
    PutCompanion();
    const auto older = Index::FromBytes(*index);
    EXPECT_TRUE(older.ok() && (*older)->TellsAll() && (*older)->Verify().ok());
    std::string full;
    EXPECT_EQ(TryBuild(nullptr, &full)->reused_objects, 0u);
    const auto report = TryBuild(older->get(), index);
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(*index == full) << "not that of a full build";
    return report.ok() ? report->reused_objects : 0;
  }
  // Returns the keys of the samples of each object.
  static std::vector<std::vector<std::string>> KeysOf(const Index& index) {
    std::vector<std::vector<std::string>> keys(index.objects());
    const auto add = [&keys](uint64_t, const IndexedSample& entry) { keys[entry.object].push_back(entry.key); };
    EXPECT_TRUE(index.Scan(0, index.size(), add).ok());
    return keys;
  }
  void PutMany(int count) {
    for (int i = 0; i < count; ++i) Put(10 * (i + 1));
    PutCompanion();
  }

  const DataKind kind_;
  const fs::path root_;
  Rng rng_{HashKey(10, {60})};
  Runtime runtime_{{.io_threads = 1, .cpu_threads = 1, .memory_bytes = 64 << 20}};
  Stores stores_{runtime_};
  Location data_;
  std::map<int, uint64_t> sizes_;    // of the objects that are there
  std::map<int, uint64_t> samples_;  // of shards
};

constexpr DataKind kShards[] = {DataKind::kTar, DataKind::kTfRecord, DataKind::kRecordIo, DataKind::kMds};
constexpr DataKind kAll[] = {DataKind::kRawObjects, DataKind::kTar, DataKind::kTfRecord, DataKind::kRecordIo,
                             DataKind::kMds};
std::string NameOf(const ::testing::TestParamInfo<std::tuple<std::string, DataKind>>& test) {
  return fmt::format("{}_{}", std::get<0>(test.param), KindName(std::get<1>(test.param)));
}

class ShardReuseTest : public IndexReuseTest {};  // of what is looked into
class MdsReuseTest : public IndexReuseTest {};

const auto kStores = ::testing::Values("mem", "file");
INSTANTIATE_TEST_SUITE_P(All, IndexReuseTest, ::testing::Combine(kStores, ::testing::ValuesIn(kAll)), NameOf);
INSTANTIATE_TEST_SUITE_P(All, ShardReuseTest, ::testing::Combine(kStores, ::testing::ValuesIn(kShards)), NameOf);
INSTANTIATE_TEST_SUITE_P(All, MdsReuseTest, ::testing::Combine(kStores, ::testing::Values(DataKind::kMds)), NameOf);

TEST_P(IndexReuseTest, AddedRemovedAndReplacedAnywhere) {
  PutMany(6);
  std::string index;
  ASSERT_TRUE(TryBuild(nullptr, &index).ok());
  EXPECT_EQ(Update(&index), 6u) << "nothing has changed";
  for (const int added : {5, 35, 75}) {
    Put(added);
    EXPECT_EQ(Update(&index), sizes_.size() - 1) << added;
  }
  for (const int replaced : {5, 30, 75}) {
    Put(replaced);
    EXPECT_EQ(Update(&index), sizes_.size() - 1) << replaced;
  }
  for (const int removed : {75, 30, 5}) {
    Remove(removed);
    EXPECT_EQ(Update(&index), sizes_.size()) << removed;
  }
  for (int i = 1; i <= 3; ++i) {  // all at once
    Put(i);
    Put(80 + i);
  }
  Remove(10);
  Put(40);
  EXPECT_EQ(Update(&index), sizes_.size() - 7);
}

TEST_P(IndexReuseTest, AnyChanges) {
  PutMany(12);
  std::string index;
  ASSERT_TRUE(TryBuild(nullptr, &index).ok());
  for (int round = 0; round < 12; ++round) {
    for (uint64_t changes = rng_.Below(5); changes > 0; --changes) {
      if (sizes_.size() > 2 && rng_.Below(3) == 0) {
        Remove(std::next(sizes_.begin(), static_cast<ptrdiff_t>(rng_.Below(sizes_.size())))->first);
      } else {
        Put(static_cast<int>(1 + rng_.Below(130)));
      }
    }
    Update(&index);
  }
}

TEST_P(IndexReuseTest, OnlyWhatChangedIsRead) {
  PutMany(8);
  std::string index;
  ASSERT_TRUE(TryBuild(nullptr, &index).ok());
  const auto older = *Index::FromBytes(index);
  Put(40);
  Put(99);
  PutCompanion();
  const uint64_t before = data_.store->counters().bytes_read;
  ASSERT_EQ(TryBuild(older.get(), &index)->reused_objects, 7u);
  uint64_t companion = 0;
  if (kind_ == DataKind::kMds) companion = HeadBlocking(*data_.store, data_.Key("index.json"))->size;
  EXPECT_EQ(data_.store->counters().bytes_read - before, sizes_[40] + sizes_[99] + companion);
}

TEST_P(IndexReuseTest, AnIndexOfAnotherKindHelpsNobody) {
  testing::Model model{.kind = kind_ == DataKind::kTar ? DataKind::kMds : DataKind::kTar, .objects = {}};
  PutMany(2);
  for (const auto& [number, size] : sizes_) {
    const auto info = *HeadBlocking(*data_.store, data_.Key(KeyOf(number)));
    model.objects.push_back({.info = {.key = KeyOf(number), .size = size, .etag = info.etag}, .samples = {}});
  }
  const auto other = *Index::FromBytes(*testing::WriteIndex(model));
  std::string index;
  EXPECT_EQ(TryBuild(other.get(), &index)->reused_objects, 0u);
}

TEST_P(IndexReuseTest, IncompleteObjectsAndThoseWithoutAnEtagAreReadAgain) {
  PutMany(4);
  std::string index;
  ASSERT_TRUE(TryBuild(nullptr, &index).ok());
  const auto sound = *Index::FromBytes(index);
  std::string changed;
  IndexWriter writer(kind_, std::make_unique<StringWriter>(&changed));
  uint64_t block = 0;
  IndexedObject object;
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(sound->ScanObject(i, &block, [&](const NewSample& sample) { return writer.AddSample(sample); }).ok());
    ASSERT_TRUE(sound->LookupObject(i, &object).ok());
    if (i == 1) object.incomplete = true;
    if (i == 2) object.etag.clear();
    ASSERT_TRUE(writer.AddObject(object).ok());
  }
  ASSERT_TRUE(writer.Finish().ok());
  const auto older = *Index::FromBytes(changed);
  std::string again;
  EXPECT_EQ(TryBuild(older.get(), &again)->reused_objects, 2u);
  EXPECT_TRUE(again == index);
}

TEST_P(ShardReuseTest, ADamagedShardKeepsWhatComesBefore) {
  PutMany(4);
  std::string index;
  ASSERT_TRUE(TryBuild(nullptr, &index, true).ok());
  std::string strict;
  ASSERT_TRUE(TryBuild(nullptr, &strict).ok());
  EXPECT_TRUE(index == strict) << "there was nothing bad";
  const auto sound = *Index::FromBytes(index);
  const std::vector<std::vector<std::string>> all = KeysOf(*sound);
  const std::string whole = *ReadAll(*data_.store, data_.Key(KeyOf(20)), 1 << 20);
  for (const double share : {0.1, 0.6, 0.9}) {
    const std::string cut = whole.substr(0, static_cast<size_t>(static_cast<double>(whole.size()) * share));
    ASSERT_TRUE(PutBlocking(*data_.store, data_.Key(KeyOf(20)), AsBytes(cut)).ok());
    EXPECT_EQ(TryBuild(nullptr, &index).status().code(), absl::StatusCode::kDataLoss);
    const auto report = TryBuild(nullptr, &index, true);
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->damaged.size(), 1u) << share;
    const DamagedShard& damaged = report->damaged[0];
    EXPECT_EQ(damaged.key, KeyOf(20));
    EXPECT_TRUE(damaged.offset && *damaged.offset <= cut.size());
    EXPECT_THAT(damaged.why, ::testing::Not(HasSubstr("offset ")));
    const auto salvaged = *Index::FromBytes(index);
    std::vector<std::vector<std::string>> expected = all;
    ASSERT_LT(damaged.samples, all[1].size());
    expected[1].resize(damaged.samples);
    EXPECT_EQ(KeysOf(*salvaged), expected);
    EXPECT_TRUE(damaged.samples > 0 || share < 0.5);
    IndexedObject object;
    for (uint32_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(salvaged->LookupObject(i, &object).ok());
      EXPECT_EQ(object.incomplete, i == 1);
    }
    // An incomplete object is read each time.
    for (const Index* older : {sound.get(), salvaged.get()}) {
      std::string updated;
      const auto again = TryBuild(older, &updated, true);
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(again->reused_objects, 3u);
      EXPECT_EQ(again->damaged.size(), 1u);
      EXPECT_TRUE(updated == index);
      EXPECT_EQ(TryBuild(older, &updated).status().code(), absl::StatusCode::kDataLoss);
    }
  }
}

TEST_P(ShardReuseTest, PartsMakeTheSameIndex) {
  PutMany(9);
  Put(25);
  PutCompanion();
  std::string full;
  ASSERT_TRUE(TryBuild(nullptr, &full).ok());
  for (const uint64_t part_bytes : {uint64_t{1}, uint64_t{20'000}, uint64_t{1} << 30}) {
    std::vector<std::string> kept;
    for (uint64_t part = 0; part < 3; ++part) {
      std::string bytes;
      const auto open = [&bytes] { return std::make_unique<StringWriter>(&bytes); };
      const auto keep = [&kept](std::string_view index) { return kept.emplace_back(index), absl::OkStatus(); };
      const auto only = [part](uint64_t number, const IndexedObject&) { return number % 3 == part; };
      const BuildOptions options{.keep_part = keep, .part_bytes = part_bytes, .only = only};
      const auto built = BuildIndex(runtime_, data_, open, options);
      ASSERT_TRUE(built.ok()) << built.status();
      EXPECT_EQ(built->summary.objects, part == 0 ? 4u : 3u);
    }
    EXPECT_EQ(kept.size(), part_bytes == 1 ? 10u : part_bytes == 20'000 ? kept.size() : 3u);
    BuildOptions options;
    std::vector<std::unique_ptr<Index>> parts;
    for (const std::string& part : kept) parts.push_back(*Index::FromBytes(part));
    for (const auto& part : parts) options.parts.push_back(part.get());
    options.reads = false;
    std::string merged;
    const auto open = [&merged] { return std::make_unique<StringWriter>(&merged); };
    const auto built = BuildIndex(runtime_, data_, open, options);
    ASSERT_TRUE(built.ok()) << built.status();
    EXPECT_TRUE(merged == full) << part_bytes;
  }
}

TEST_P(ShardReuseTest, NothingButDamageIsNoDataSet) {
  for (const int number : {10, 20})
    ASSERT_TRUE(PutBlocking(*data_.store, data_.Key(KeyOf(number)), AsBytes("neither a shard nor empty")).ok());
  std::string index;
  const absl::Status status = TryBuild(nullptr, &index, true).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(status.ToString(), HasSubstr(fmt::format("2 damaged shards, the first of them '{}'", KeyOf(10))));
}

TEST_P(MdsReuseTest, TheListOfMdsShardsIsHeldAgainstAllOfThem) {
  PutMany(3);
  std::string index;
  ASSERT_TRUE(TryBuild(nullptr, &index).ok());
  const auto older = *Index::FromBytes(index);
  Remove(20);  // but index.json still lists it
  const absl::Status status = TryBuild(older.get(), &index).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.ToString(), HasSubstr("lists the shard 's0020.mds', which is not there"));
}

}  // namespace
}  // namespace millrace
