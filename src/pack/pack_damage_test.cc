#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataset/sample_objects.h"
#include "pack/pack_job.h"
#include "pack/testing/pack_fixture.h"
#include "shard/npy.h"
#include "shard/number_type.h"
#include "shard/tar_writer.h"
#include "shard/tfrecord_writer.h"

// Sources that are damaged, or that a format cannot hold.

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::PackTest;

class PackDamageTest : public PackTest {
 protected:
  static std::string TarOf(int first, int count) {
    std::string tar;
    for (int i = first; i < first + count; ++i) {
      EXPECT_TRUE(AppendTarHeader(tar, fmt::format("{:03}.txt", i), 3).ok());
      tar += "abc";
      AppendTarPadding(tar, 3);
    }
    AppendTarEnd(tar);
    return tar;
  }
  // Writes two shards of three samples, one of which has lost its last two.
  void PutTruncated(const std::string& uri) {
    Put(uri, "a.tar", TarOf(0, 3));
    Put(uri, "b.tar", TarOf(3, 3).substr(0, 1024 + 700));
  }
  void IndexWithout(const std::string& uri) {
    OpenOptions options;
    options.skip_bad = true;
    const auto dataset = Dataset::Open(runtime_, stores_, uri, options);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    ASSERT_EQ((*dataset)->index().size(), 4u);
  }
  static PackOptions SkipBad() {
    PackOptions options;
    options.skip_bad = true;
    return options;
  }
};

TEST_F(PackDamageTest, SamplesThatTheIndexLacksAreNotLeftOutSilently) {
  PutTruncated("mem://s/in");
  IndexWithout("mem://s/in");
  const absl::Status refused = Run("mem://s/in", "mem://s/out").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.ToString(), AllOf(HasSubstr("mem://s/in/b.tar"), HasSubstr("--skip-bad")));
  EXPECT_THAT(Keys("mem://s/out"), IsEmpty());

  auto report = Run("mem://s/in", "mem://s/out", SkipBad());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 4u);
  EXPECT_THAT(report->skipped, IsEmpty());
  EXPECT_THAT(report->incomplete_objects, ElementsAre("b.tar"));
  const std::string listed = ReadKey("mem://s/out", ".millrace/skipped");
  EXPECT_THAT(listed, AllOf(HasSubstr("\"object\":\"b.tar\""), HasSubstr("\"why\":")));
  EXPECT_THAT(*SkippedFromJsonLines(listed), IsEmpty()) << "it names no sample";

  report = Run("mem://s/in", "mem://s/out", SkipBad());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->already_packed);
  EXPECT_THAT(report->incomplete_objects, ElementsAre("b.tar"));
  EXPECT_EQ(Run("mem://s/in", "mem://s/out").status().code(), absl::StatusCode::kFailedPrecondition);
}

// Errors that follow from the shapes of samples are reported before anything is written.
TEST_F(PackDamageTest, KnownValuesThatAFormatCannotHold) {
  Put("mem://s/in", "cat/1.jpg", "meow");
  Put("mem://s/in", "dog/2.jpg", "wow");
  const auto refused = [&](DataKind format, uint64_t number, const char* words) {
    PackOptions options;
    options.format = format;
    options.classes = ClassMap{{"cat", 1}, {"dog", number}};
    const absl::Status status = Run("mem://s/in", "mem://s/out", options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(status.ToString(), AllOf(HasSubstr("'dog/2'"), HasSubstr("'cls'"), HasSubstr(words)));
    EXPECT_THAT(status.ToString(), AllOf(HasSubstr("--field"), HasSubstr("--format")));
    EXPECT_THAT(Keys("mem://s/out"), IsEmpty());
  };
  refused(DataKind::kMds, uint64_t{1} << 63, "9223372036854775808");
  refused(DataKind::kRecordIo, (1 << 24) + 1, "16777217");
}

TEST_F(PackDamageTest, EmptySequencesDoNotFitMds) {
  std::string idx = "MMIDIDX";  // Megatron's: two sequences of uint16, the first of them empty
  idx.append(2, '\0');
  AppendLe(idx, uint64_t{1});
  idx.push_back(8);
  AppendLe(idx, uint64_t{2});
  AppendLe(idx, uint64_t{3});
  for (const uint32_t length : {0, 3}) AppendLe(idx, length);
  for (const uint64_t offset : {0, 0}) AppendLe(idx, offset);
  for (const uint64_t document : {0, 1, 2}) AppendLe(idx, document);
  Put("mem://s/in", "a.bin", "abcdef");
  Put("mem://s/in", "a.idx", idx);
  PackOptions options;
  options.format = DataKind::kMds;
  const absl::Status status = Run("mem://s/in", "mem://s/out", options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("array without values"));
  EXPECT_THAT(Keys("mem://s/out"), IsEmpty());
}

// Errors that follow only from values are found when the values are read; then --skip-bad helps.
TEST_F(PackDamageTest, ValuesThatAFormatCannotHoldAreLeftOut) {
  constexpr int kSamples = 40;
  std::string shard;
  for (int i = 0; i < kSamples; ++i) {
    std::string ids;
    const std::vector<uint64_t> shape = {static_cast<uint64_t>(i == 7 || i == 30 ? 0 : 2)};
    AppendNpyHead(ids, *ParseNumberType("i8"), shape);
    ids.append(shape[0] * sizeof(int64_t), 'x');
    const std::string label = i == 20 ? "16777217" : "3";
    const std::vector<ValueField> fields = {{.name = "ids", .type = FieldType::kNdarray, .value = AsBytes(ids)},
                                            {.name = "cls", .type = FieldType::kInt, .value = AsBytes(label)}};
    std::string example;
    ASSERT_TRUE(AppendTfExample(example, fmt::format("{:04}", i), fields).ok());
    ASSERT_TRUE(AppendTfRecord(shard, AsBytes(example)).ok());
  }
  Put("mem://s/in", "a.tfrecord", shard);
  for (const auto& [format, bad, words] :
       {std::tuple{DataKind::kMds, 2u, "'ids'"}, {DataKind::kRecordIo, 1u, "'cls'"}}) {
    PackOptions options;
    options.format = format;
    options.shard_bytes = 2'000;
    const std::string to = fmt::format("mem://s/{}", KindName(format));
    const absl::Status refused = Run("mem://s/in", to, options).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(refused.ToString(), AllOf(HasSubstr(words), HasSubstr("--skip-bad"), HasSubstr("--field")));
    options.skip_bad = true;
    const auto report = Run("mem://s/in", to, options);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->skipped.size(), bad);
    EXPECT_THAT(report->skipped[0].why, HasSubstr(words));
    EXPECT_EQ(Open(to)->index().size(), kSamples - bad);
  }
}

// A part may have been packed with a hole before, by this run or an earlier one.
TEST_F(PackDamageTest, APartTellsWhatItsShardsHold) {
  PutRawObjects("mem://s/raw", 4);
  const auto dataset = Open("mem://s/raw");
  ASSERT_NE(dataset, nullptr);
  IndexedSample sample;
  IndexedObject object;
  ASSERT_TRUE(dataset->index().Lookup(0, &sample).ok());
  ASSERT_TRUE(dataset->index().LookupObject(sample.object, &object).ok());
  Put("mem://s/raw", object.key, "another");
  PackOptions options = SkipBad();
  options.shard_bytes = 20'000;
  options.parts = 2;
  const auto first = Pack(runtime_, stores_, *dataset, "mem://s/out", options);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_FALSE(first->complete);
  ASSERT_EQ(first->skipped.size(), 1u);
  const auto again = Pack(runtime_, stores_, *dataset, "mem://s/out", options);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->shards_kept, again->shards);
  EXPECT_EQ(again->samples, first->samples);
  ASSERT_EQ(again->skipped.size(), 1u);
  EXPECT_EQ(again->skipped[0].key, sample.key);
  uint64_t bytes = 0;
  for (const std::string& key : Keys("mem://s/out")) {
    if (key.starts_with("out/shard-")) bytes += ReadKey("mem://s/out", key.substr(4)).size();
  }
  EXPECT_EQ(again->shard_bytes, bytes);
  options.part = 1;
  const auto whole = Pack(runtime_, stores_, *dataset, "mem://s/out", options);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(whole->complete);
  EXPECT_EQ(whole->samples, 59u);
}

class PackCompanions : public PackDamageTest {
 protected:
  void SetUp() override {
    for (int i = 0; i < 20; ++i) Put("mem://s/in", fmt::format("{:02}.jpg", i), std::string(1000, 'x'));
  }
  absl::StatusOr<PackReport> RunAs(DataKind format, uint64_t parts, bool force = false) {
    PackOptions options;
    options.format = format;
    options.shard_bytes = 5'000;
    options.parts = parts;
    options.force = force;
    return Run("mem://s/in", "mem://s/out", options);
  }
  void Remove(const std::string& name) {
    const auto location = stores_.Open("mem://s/out");
    ASSERT_TRUE(DeleteBlocking(*location->store, location->Key(name)).ok());
  }
};

// Without it other readers see no data set, or cannot find its records.
TEST_F(PackCompanions, APackWithoutWhatBelongsToItIsNotDone) {
  for (const auto& [format, name] :
       {std::pair{DataKind::kMds, "index.json"}, {DataKind::kRecordIo, "shard-000001.idx"}}) {
    ASSERT_TRUE(RunAs(format, 1, /*force=*/true).ok());
    const std::string before = ReadKey("mem://s/out", name);
    EXPECT_TRUE(RunAs(format, 1)->already_packed);
    Remove(name);
    const absl::Status status = RunAs(format, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
    EXPECT_THAT(status.ToString(), AllOf(HasSubstr(name), HasSubstr("--force")));
    ASSERT_TRUE(RunAs(format, 1, /*force=*/true).ok());
    EXPECT_EQ(ReadKey("mem://s/out", name), before);
  }
}

TEST_F(PackCompanions, OneThatGoesWhileItIsPackedIsWrittenAgain) {
  ASSERT_FALSE(RunAs(DataKind::kRecordIo, 2)->complete);
  const std::string before = ReadKey("mem://s/out", "shard-000002.idx");
  const std::string shard = ReadKey("mem://s/out", "shard-000002.rec");
  Remove("shard-000002.idx");
  const auto report = RunAs(DataKind::kRecordIo, 1);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->complete);
  EXPECT_EQ(ReadKey("mem://s/out", "shard-000002.idx"), before);
  EXPECT_EQ(ReadKey("mem://s/out", "shard-000002.rec"), shard);
}

}  // namespace
}  // namespace millrace
