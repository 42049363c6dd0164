#include "dataset/shard_outlines.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "dataset/index_builder.h"
#include "dataset/testing/data_place.h"
#include "s3/error.h"
#include "shard/mds_writer.h"
#include "shard/testing/tar_builder.h"
#include "store/blocking.h"
#include "store/testing/scripted_store.h"

namespace millrace {
namespace {

using testing::End;
using ::testing::HasSubstr;
using testing::Member;
using testing::WdsIndexOf;

constexpr uint64_t kMemory = 64 << 20;

/// Returns a tar shard with samples of a `bin` of 20 kB and more and, with `classes`, a `cls`.
std::string TarShard(int first, int samples, bool classes = false) {
  std::string shard;
  for (int i = first; i < first + samples; ++i) {
    const std::string key = fmt::format("s/{:05}", i);
    shard += Member(key + ".bin", std::string(20'000 + i, static_cast<char>('a' + i % 26)));
    shard += Member(key + ".txt", fmt::format("text {}", i));
    if (classes) shard += Member(key + ".cls", fmt::format("{}", i % 3));
  }
  return shard + End();
}

/// Returns all facts in an index about its samples, except for CRCs and labels.
std::vector<std::string> TextsOf(const Index& index) {
  std::vector<std::string> texts = {fmt::format("{:016x} {}", index.fingerprint(), index.objects())};
  IndexedSample sample;
  for (uint64_t i = 0; i < index.size(); ++i) {
    EXPECT_TRUE(index.Lookup(i, &sample).ok());
    std::string& text = texts.emplace_back(
        fmt::format("{} {} {}+{}", sample.key, sample.object, sample.span.offset, sample.span.length));
    for (const IndexedField& field : sample.fields)
      text += fmt::format(" {}@{}+{} {}", field.name, field.offset, field.length, field.encoding);
  }
  return texts;
}

class ShardOutlinesTest : public ::testing::Test {
 protected:
  void Put(const std::string& name, const std::string& bytes) {
    ASSERT_TRUE(PutBlocking(store_, "set/" + name, AsBytes(bytes)).ok());
    bytes_[name] = bytes;
  }

  /// Returns the index, or a text that begins with "error".
  std::string Build(bool outlines, uint64_t memory = kMemory) {
    Runtime runtime(RuntimeOptions{.io_threads = 1, .cpu_threads = 1, .memory_bytes = memory});
    const Location data{.store = &store_, .prefix = "set"};
    options_.outlines = outlines;
    const size_t before = store_.gets().size();
    const auto built = BuildIndex(
        runtime, data, [this] { return target_.Write("index", {}); }, options_);
    const std::vector<GetOptions> gets = store_.gets();
    read_bytes_ = 0;
    for (size_t i = before; i < gets.size(); ++i) read_bytes_ += gets[i].range.length;
    gets_ = gets.size() - before;
    if (!built.ok()) return "error " + built.status().ToString();
    report_ = built->report;
    EXPECT_EQ(runtime.memory().used(), 0U);
    return *ReadAll(target_, "index", 1 << 30);
  }

  /// Builds without reading the shards, and compares the result with that of reading them.
  void ExpectOutlined(uint64_t shards) {
    const std::string read = Build(false);
    uint64_t all = 0;
    for (const auto& [name, bytes] : bytes_) all += bytes.size();
    EXPECT_GE(read_bytes_ + (1 << 20), all);
    const std::string outlined = Build(true);
    EXPECT_EQ(report_.outlined_objects, shards);
    EXPECT_LT(read_bytes_, all / 4);
    const auto one = Index::FromBytes(read);
    const auto other = Index::FromBytes(outlined);
    ASSERT_TRUE(one.ok() && other.ok()) << read.substr(0, 200) << outlined.substr(0, 200);
    EXPECT_EQ(TextsOf(**other), TextsOf(**one));
    EXPECT_EQ((*one)->samples_without_crc(), 0U);
    EXPECT_EQ((*other)->samples_without_crc(), (*other)->size());
  }

  /// Builds with the notes, and expects the same as without them.
  void ExpectRead(const std::string& what) {
    const std::string read = Build(false);
    EXPECT_TRUE(Build(true) == read) << what;
    EXPECT_EQ(report_.outlined_objects, 0U) << what;
  }

  BuildOptions options_;
  BuildReport report_;
  ScriptedStore store_;
  MemoryStore target_{"target"};
  std::map<std::string, std::string> bytes_;
  uint64_t gets_ = 0;
  uint64_t read_bytes_ = 0;
};

TEST_F(ShardOutlinesTest, TarByTheIndexesOfDali) {
  for (int i = 0; i < 5; ++i) {
    const std::string shard = TarShard(i * 50, 50);
    Put(fmt::format("{}.tar", i), shard);
    Put(fmt::format("{}.{}", i, i % 2 == 0 ? "idx" : "tar.idx"), WdsIndexOf(shard));
  }
  ExpectOutlined(5);
  EXPECT_EQ(gets_, 15U) << "the index, the head and the tail of each shard";
}

// Some shards have an index, and some of these fit.
TEST_F(ShardOutlinesTest, AnIndexThatDoesNotFitIsLikeNone) {
  const std::string shard = TarShard(0, 60);
  const std::string index = WdsIndexOf(shard);
  Put("a.tar", TarShard(100, 50));
  Put("b.tar", shard);
  Put("b.idx", index);
  const std::string read = Build(false);
  const std::string some = Build(true);
  EXPECT_EQ(report_.outlined_objects, 1U);
  const std::unique_ptr<Index> found = *Index::FromBytes(some);
  EXPECT_EQ(TextsOf(*found), TextsOf(**Index::FromBytes(read)));
  EXPECT_EQ(found->samples_without_crc(), 60U);

  Put("b.idx", index.substr(0, index.size() / 2));
  ExpectRead("it is cut");
  Put("b.idx", WdsIndexOf(TarShard(1, 60)));
  ExpectRead("it is that of another shard");
  Put("b.idx", WdsIndexOf(TarShard(0, 59)));
  ExpectRead("a sample was added since");
  Put("b.idx", WdsIndexOf(TarShard(0, 61)));
  ExpectRead("a sample was removed since");
  Put("b.idx", "");
  ExpectRead("it is empty");
  Put("b.idx", index);
  store_.on_get = [](const GetOptions& options, int, absl::AnyInvocable<void()> get, GetCallback& done) {
    if (options.range.length > 10'000) return get();
    done(absl::UnavailableError("the index cannot be read"));
  };
  ExpectRead("it cannot be read");
}

TEST_F(ShardOutlinesTest, ADamagedShardIsFoundWhereItsIndexFitsNot) {
  std::string shard = TarShard(0, 60);
  Put("a.idx", WdsIndexOf(shard));
  shard[200] ^= 1;
  Put("a.tar", shard);
  const std::string error = Build(false);
  EXPECT_THAT(error, HasSubstr("error DATA_LOSS"));
  EXPECT_EQ(Build(true), error);
}

TEST_F(ShardOutlinesTest, ClassesAreReadIfTheyAreWanted) {
  const std::string shard = TarShard(0, 60, true);
  Put("a.tar", shard);
  Put("a.idx", WdsIndexOf(shard));
  ExpectOutlined(1);
  const std::string outlined = Build(true);
  const std::unique_ptr<Index> index = *Index::FromBytes(outlined);
  EXPECT_TRUE(index->classes_unread());
  EXPECT_FALSE(TellsAll(*index, {.classes = true}));
  EXPECT_FALSE(TellsAll(*index, {.all = true}));
  EXPECT_TRUE(TellsAll(*index, {}));
  options_.raw.classes = true;
  options_.reuse = index.get();
  EXPECT_TRUE(Build(true) == Build(false));
  const std::unique_ptr<Index> with_classes = *Index::FromBytes(*ReadAll(target_, "index", 1 << 30));
  EXPECT_EQ(with_classes->class_counts().size(), 3U);
  EXPECT_EQ(with_classes->fingerprint(), index->fingerprint());
}

TEST_F(ShardOutlinesTest, ShardsWithoutClassesTakeTheirTurnWithLittleMemory) {
  for (int i = 0; i < 40; ++i) {
    const std::string shard = TarShard(i * 20, 20);
    Put(fmt::format("{:02}.tar", i), shard);
    Put(fmt::format("{:02}.idx", i), WdsIndexOf(shard));
  }
  options_.raw.classes = true;
  const std::string outlined = Build(true);
  EXPECT_EQ(report_.outlined_objects, 40U);
  EXPECT_EQ(Build(true, 1 << 20), outlined);
  EXPECT_EQ(report_.outlined_objects, 40U);
}

/// An MDS data set of shards with these columns.
class MdsOutlinesTest : public ShardOutlinesTest {
 protected:
  struct Column {
    std::string name;
    FieldType type;
  };

  void PutShards(const std::vector<Column>& columns, int shards, std::string_view key) {
    std::vector<MdsColumn> stored;
    for (const Column& column : columns) stored.push_back(MdsColumnFor(column.name, column.type, ""));
    if (!key.empty()) stored.push_back({.name = std::string(kKeyColumn), .encoding = "str", .fixed_size = 0});
    std::sort(stored.begin(), stored.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    for (int shard = 0; shard < shards; ++shard) {
      std::string body;
      std::vector<uint32_t> offsets;
      const std::string config = ConfigOf(stored);
      const auto head = static_cast<uint32_t>(4 + 4 * (kSamples + 1) + config.size());
      for (int i = 0; i < kSamples; ++i) {
        offsets.push_back(head + static_cast<uint32_t>(body.size()));
        std::string sizes;
        std::string values;
        for (const MdsColumn& column : stored) {
          const std::string value = column.name == kKeyColumn ? fmt::format("{}{}", key, i)
                                    : column.fixed_size > 0   ? std::string(8, '\x01')
                                                              : std::string(15'000 + i % 7, 'v');
          if (column.fixed_size == 0) AppendLe(sizes, static_cast<uint32_t>(value.size()));
          values += value;
        }
        body += sizes + values;
      }
      offsets.push_back(head + static_cast<uint32_t>(body.size()));
      std::string bytes;
      AppendLe(bytes, static_cast<uint32_t>(kSamples));
      for (const uint32_t offset : offsets) AppendLe(bytes, offset);
      bytes += config + body;
      const std::string name = fmt::format("shard.{:05}.mds", shard);
      entries_.push_back({.name = name, .bytes = bytes.size(), .samples = kSamples});
      Put(name, bytes);
    }
    columns_ = stored;
    PutIndex();
  }
  static std::string ConfigOf(const std::vector<MdsColumn>& columns) {
    std::string names;
    std::string encodings;
    std::string sizes;
    for (const MdsColumn& column : columns) {
      const std::string_view comma = names.empty() ? "" : ", ";
      names += fmt::format("{}\"{}\"", comma, column.name);
      encodings += fmt::format("{}\"{}\"", comma, column.encoding);
      sizes += fmt::format("{}{}", comma, column.fixed_size == 0 ? "null" : fmt::format("{}", column.fixed_size));
    }
    return fmt::format(
        R"({{"column_encodings": [{}], "column_names": [{}], "column_sizes": [{}], "format": "mds", "version": 2}})",
        encodings, names, sizes);
  }
  void PutIndex() { Put("index.json", MdsIndexJson(columns_, entries_)); }

  static constexpr int kSamples = 60;
  std::vector<MdsShardEntry> entries_;
  std::vector<MdsColumn> columns_;
};

TEST_F(MdsOutlinesTest, MdsByTheHeadsOfItsShards) {
  PutShards({{"cls", FieldType::kInt}, {"jpg", FieldType::kBytes}, {"weight", FieldType::kFloat}}, 4, "");
  ExpectOutlined(4);
  EXPECT_EQ(gets_, 6U) << "the head of each shard, and index.json: once for them, and once for the comparison";
}

TEST_F(MdsOutlinesTest, OneColumn) {
  PutShards({{"jpg", FieldType::kBytes}}, 2, "");
  ExpectOutlined(2);
}

TEST_F(MdsOutlinesTest, WhatTheHeadDoesNotTellIsRead) {
  PutShards({{"jpg", FieldType::kBytes}, {"txt", FieldType::kText}}, 2, "");
  ExpectRead("two columns of any size");
}

TEST_F(MdsOutlinesTest, KeysAreRead) {
  PutShards({{"cls", FieldType::kInt}, {"jpg", FieldType::kBytes}}, 2, "key-");
  ExpectRead("a column of keys");
}

TEST_F(MdsOutlinesTest, AnIndexJsonThatIsNotOfTheseShards) {
  PutShards({{"jpg", FieldType::kBytes}}, 2, "");
  entries_[1].samples = kSamples - 1;
  PutIndex();
  const std::string some = Build(true);
  EXPECT_EQ(report_.outlined_objects, 1U);
  EXPECT_EQ(TextsOf(**Index::FromBytes(some)), TextsOf(**Index::FromBytes(Build(false))));
  ++entries_[1].bytes;
  PutIndex();
  EXPECT_THAT(Build(true), HasSubstr("error DATA_LOSS"));
}

/// Provides reading from shards whose index was made without reading them.
class OutlinedReads : public testing::DataPlace, public ::testing::Test {
 protected:
  OutlinedReads() : DataPlace("mem") {}

  /// Returns a sample as the loader reads it.
  absl::StatusOr<std::string> ReadOne(const Dataset& dataset, uint64_t number) {
    IndexedSample sample;
    EXPECT_TRUE(dataset.index().Lookup(number, &sample).ok());
    return ReadRange(dataset, sample.span);
  }
  static absl::StatusOr<std::string> ReadRange(const Dataset& dataset, ByteRange range) {
    IndexedObject object;
    EXPECT_TRUE(dataset.index().LookupObject(0, &object).ok());
    std::string bytes(range.length, '\0');
    GetOptions get;
    get.range = range;
    get.if_match = object.etag;
    const auto got = GetBlocking(dataset.store(), dataset.StoreKey(object.key), AsWritableBytes(bytes), std::move(get));
    if (!got.ok()) return got.status();
    return bytes;
  }
};

TEST_F(OutlinedReads, HeadersAreVerifiedAsSamplesAreRead) {
  const std::string shard = TarShard(0, 60);
  PutAt("set/a.tar", shard);
  const std::unique_ptr<Dataset> read = *OpenAt("set");
  EXPECT_EQ(read->index().samples_without_crc(), 0U);

  // The index is that of a shard with other files in the middle, of the same sizes: neither end shows it.
  std::string other = shard;
  const std::vector<TarMember> members = *testing::ReadMembers(shard);
  const auto rename = [&](const std::string& from, const std::string& to) {
    const auto member =
        std::find_if(members.begin(), members.end(), [&](const TarMember& one) { return one.name == from; });
    ASSERT_NE(member, members.end());
    other.replace(member->data_offset - 512, 512, Member(to, std::string(member->size, 'x')).substr(0, 512));
  };
  rename("s/00020.bin", "s/00021.bin");
  rename("s/00030.txt", "s/00031.txt");
  PutAt("other/a.tar", other);
  PutAt("other/a.idx", WdsIndexOf(shard));
  const std::unique_ptr<Dataset> outlined = *OpenAt("other");
  ASSERT_EQ(outlined->index().samples_without_crc(), 60U);
  ASSERT_EQ(outlined->index().fingerprint(), read->index().fingerprint());
  for (uint64_t i = 0; i < 60; ++i) {
    const absl::StatusOr<std::string> bytes = ReadOne(*outlined, i);
    EXPECT_EQ(bytes.ok(), i != 20 && i != 30) << i << bytes.status();
    if (bytes.ok()) continue;
    EXPECT_TRUE(absl::IsFailedPrecondition(bytes.status()));
    EXPECT_THAT(std::string(bytes.status().message()), HasSubstr("millrace index --full"));
    EXPECT_EQ(S3CodeOf(bytes.status()), "IndexMismatch");
  }
  // Runs of several samples, and a field alone.
  IndexedSample first;
  IndexedSample last;
  ASSERT_TRUE(outlined->index().Lookup(10, &first).ok() && outlined->index().Lookup(19, &last).ok());
  EXPECT_TRUE(ReadRange(*outlined, {first.span.offset, last.span.end() - first.span.offset}).ok());
  ASSERT_TRUE(outlined->index().Lookup(22, &last).ok());
  EXPECT_FALSE(ReadRange(*outlined, {first.span.offset, last.span.end() - first.span.offset}).ok());
  ASSERT_TRUE(outlined->index().Lookup(30, &first).ok());
  for (const IndexedField& field : first.fields) {
    const auto alone = ReadRange(*outlined, {first.span.offset + field.offset, field.length});
    EXPECT_EQ(alone.ok(), field.name == "bin") << field.name;
  }
}

TEST_F(OutlinedReads, AreThoseOfAnIndexThatWasRead) {
  const std::string shard = TarShard(0, 60, true);
  PutAt("read/a.tar", shard);
  PutAt("set/a.tar", shard);
  PutAt("set/a.idx", WdsIndexOf(shard));
  const std::unique_ptr<Dataset> outlined = *OpenAt("set");
  ASSERT_EQ(outlined->index().samples_without_crc(), 60U);
  const std::unique_ptr<Dataset> read = *OpenAt("read");
  EXPECT_EQ(Read(*outlined), Read(*read));
  EXPECT_EQ(Read(*outlined), Read(*read)) << "headers that are known are not read again";
  options_.raw.classes = true;
  const std::unique_ptr<Dataset> classes = *OpenAt("set");
  EXPECT_EQ(classes->index().samples_without_crc(), 0U);
  EXPECT_EQ(classes->index().class_counts().size(), 3U);
}

}  // namespace
}  // namespace millrace
