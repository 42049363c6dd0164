#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "pack/testing/pack_fixture.h"
#include "shard/mds_format.h"
#include "shard/npy.h"
#include "shard/number_type.h"
#include "shard/tar_writer.h"
#include "shard/tfrecord_writer.h"

// Between all formats. tests/shard/test_pack_formats.py has other programs read them.

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr DataKind kFormats[] = {DataKind::kTar, DataKind::kTfRecord, DataKind::kRecordIo, DataKind::kMds};

class PackFormats : public testing::PackTest, public ::testing::WithParamInterface<DataKind> {
 protected:
  // One image and a class each, so that every format can hold them; some hold RecordIO's magic number.
  void PutImages(const std::string& uri, int count, uint64_t seed = 1) {
    Rng rng(seed);
    for (int i = 0; i < count; ++i) {
      std::string data = "\xff\xd8\xff\xe0";
      const uint64_t length = rng.Below(3000);
      for (uint64_t j = 0; j < length; ++j) data.push_back(static_cast<char>(rng.Next()));
      if (i % 5 == 0) data.append((4 - data.size() % 4) % 4, 'x').append("\x0a\x23\xd7\xce tail");
      Put(uri, fmt::format("{}/{:03}.jpg", i % 3 == 0 ? "cat" : "dog", i), data);
    }
  }
  absl::StatusOr<PackReport> RunAs(DataKind format, const std::string& from, const std::string& to,
                                   uint64_t shard_bytes = 20'000, std::vector<FieldChoice> fields = {}) {
    PackOptions options;
    options.format = format;
    options.shard_bytes = shard_bytes;
    options.fields = std::move(fields);
    return Run(from, to, options);
  }
  // Returns the values of all samples, by name, in index order.
  std::vector<std::map<std::string, std::string>> Values(const std::string& uri) {
    std::vector<std::map<std::string, std::string>> all;
    const auto dataset = Open(uri);
    if (dataset == nullptr) return all;
    IndexedSample sample;
    for (uint64_t i = 0; i < dataset->index().size(); ++i) {
      EXPECT_TRUE(dataset->index().Lookup(i, &sample).ok());
      auto& values = all.emplace_back();
      for (const IndexedField& field : sample.fields)
        values[std::string(field.name)] = ValueOf(*dataset, sample, field);
    }
    return all;
  }
};

INSTANTIATE_TEST_SUITE_P(All, PackFormats, ::testing::ValuesIn(kFormats),
                         [](const auto& test) { return std::string(KindName(test.param)); });

TEST_P(PackFormats, ValuesSurviveThereAndBack) {
  PutImages("mem://s/raw", 60);
  const auto report = RunAs(GetParam(), "mem://s/raw", "mem://s/out");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 60u);
  EXPECT_GT(report->shards, 3u);
  EXPECT_EQ(report->without_image, 0u);
  const auto packed = Open("mem://s/out");
  ASSERT_NE(packed, nullptr);
  EXPECT_EQ(packed->index().kind(), GetParam());
  EXPECT_EQ(Values("mem://s/out"), Values("mem://s/raw"));
  EXPECT_EQ(packed->index().class_counts().size(), 2u);
  for (uint64_t i = 0; i < packed->index().objects(); ++i) {
    IndexedObject object;
    ASSERT_TRUE(packed->index().LookupObject(static_cast<uint32_t>(i), &object).ok());
    EXPECT_LE(object.size, 20'000u + 100) << "about";
  }
  const bool keeps_keys = GetParam() != DataKind::kRecordIo;
  EXPECT_EQ(Digest("mem://s/out") == Digest("mem://s/raw"), keeps_keys);
  for (const DataKind back : kFormats) {
    const std::string to = fmt::format("mem://s/back-{}", KindName(back));
    const auto again = RunAs(back, "mem://s/out", to, 30'000);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(Values(to), Values("mem://s/raw")) << KindName(back);
    EXPECT_EQ(Digest(to) == Digest("mem://s/raw"), keeps_keys && back != DataKind::kRecordIo) << KindName(back);
  }
}

TEST_P(PackFormats, TheIndexIsTheOneThatIndexingWouldBuild) {
  PutImages("mem://s/raw", 40);
  ASSERT_TRUE(RunAs(GetParam(), "mem://s/raw", "mem://s/out").ok());
  const std::string packed = ReadKey("mem://s/out", ".millrace/index");
  OpenOptions options;
  options.rebuild = true;
  options.reuse = false;  // what it was written from must not matter
  const auto rebuilt = Dataset::Open(runtime_, stores_, "mem://s/out", options);
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
  EXPECT_EQ(ReadKey("mem://s/out", ".millrace/index"), packed);
}

TEST_P(PackFormats, TheSameBytesWhoeverWritesThem) {
  PutImages("mem://s/raw", 60);
  ASSERT_TRUE(RunAs(GetParam(), "mem://s/raw", "mem://s/one").ok());
  PackOptions options;
  options.format = GetParam();
  options.shard_bytes = 20'000;
  options.parts = 2;
  ASSERT_FALSE(Run("mem://s/raw", "mem://s/two", options)->complete);
  options.parts = 1;  // continues what the other has begun
  const auto report = Run("mem://s/raw", "mem://s/two", options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(report->shards_kept, 0u);
  EXPECT_EQ(Shards("mem://s/two"), Shards("mem://s/one"));
  ASSERT_EQ(Keys("mem://s/two").size(), Keys("mem://s/one").size());
  if (GetParam() == DataKind::kMds) {
    EXPECT_EQ(ReadKey("mem://s/one", "index.json"), ReadKey("mem://s/two", "index.json"));
  }
  if (GetParam() == DataKind::kRecordIo) {
    EXPECT_EQ(ReadKey("mem://s/one", "shard-000001.idx"), ReadKey("mem://s/two", "shard-000001.idx"));
  }
}

// The memory for a shard's entries in the index is set apart beforehand.
TEST_P(PackFormats, FragmentsAreNoLargerThanPlanned) {
  PutImages("mem://s/raw", 300);
  const auto dataset = Open("mem://s/raw");
  const auto view = SampleView::Of(dataset->index(), {}, std::nullopt);
  ASSERT_TRUE(view.ok()) << view.status();
  IndexedSample sample;
  PackedSample first;
  ASSERT_TRUE(dataset->index().Lookup(0, &sample).ok());
  ASSERT_TRUE(ShapeOf(sample, *view, &first).ok());
  const auto encoder = MakeShardEncoder(GetParam(), first.shape);
  const auto plan = MakePackPlan(dataset->index(), SampleOrder(300), *view, **encoder, 100'000);
  ASSERT_TRUE(plan.ok()) << plan.status();
  PackOptions options;
  options.format = GetParam();
  options.shard_bytes = 100'000;
  options.parts = 2;
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/out", options).ok());
  uint64_t largest = 0;
  const auto location = stores_.Open("mem://s/out");
  const auto fragments = ListAll(*location->store, "out/.millrace/pack-");
  for (const ObjectInfo& fragment : *fragments) largest = std::max(largest, fragment.size);
  constexpr uint64_t kHead = 200;  // the shard's name and ETag
  EXPECT_GT(largest, kHead);
  EXPECT_LE(largest, plan->most_entries + kHead);
  EXPECT_LE(plan->most_entries, 4 * largest) << "and not many times as much";
}

// A shard of very many samples takes more memory than there is, before anything is written.
TEST_P(PackFormats, MemoryForVeryManySamples) {
  constexpr int kSamples = 10'000;
  std::string shard;
  for (int i = 0; i < kSamples; ++i) {
    std::string example;
    const std::vector<ValueField> fields = {{.name = "x", .type = FieldType::kBytes, .value = AsBytes("x")}};
    ASSERT_TRUE(AppendTfExample(example, fmt::format("{:06}", i), fields).ok());
    ASSERT_TRUE(AppendTfRecord(shard, AsBytes(example)).ok());
  }
  Put("mem://s/tf", "a.tfrecord", shard);
  const absl::Status status = RunAs(GetParam(), "mem://s/tf", "mem://s/out", 1 << 30).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("--memory, or lower --shard-size"));
  EXPECT_THAT(Keys("mem://s/out"), ::testing::IsEmpty());
  const auto report = RunAs(GetParam(), "mem://s/tf", "mem://s/out", 16 << 10);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, uint64_t{kSamples});
}

TEST_P(PackFormats, ForceReplacesShardsOfAllFormats) {
  PutImages("mem://s/raw", 20);
  ASSERT_TRUE(RunAs(GetParam(), "mem://s/raw", "mem://s/out").ok());
  for (const DataKind other : kFormats) {
    PackOptions options;
    options.format = other;
    EXPECT_FALSE(Run("mem://s/raw", "mem://s/out", options).ok()) << "of another format or size";
    options.force = true;
    const auto report = Run("mem://s/raw", "mem://s/out", options);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(Values("mem://s/out").size(), 20u);
    for (const std::string& key : Keys("mem://s/out")) {
      const bool is_shard = key.find("shard-") != std::string::npos && !key.ends_with(".idx");
      EXPECT_TRUE(!is_shard || key.ends_with(ShardSuffix(other))) << key;
    }
  }
}

TEST_P(PackFormats, CompanionsAreForeignWithoutTheirShards) {
  Put("mem://s/in", "1.jpg", "x");
  for (const char* name : {"index.json", "shard-000000.idx"}) {
    Put("mem://s/out", name, "mine");
    PackOptions options;
    options.format = GetParam();
    for (const bool force : {false, true}) {
      options.force = force;
      EXPECT_EQ(Run("mem://s/in", "mem://s/out", options).status().code(), absl::StatusCode::kAlreadyExists) << name;
    }
    EXPECT_EQ(ReadKey("mem://s/out", name), "mine");
    const auto location = stores_.Open("mem://s/out");
    ASSERT_TRUE(DeleteBlocking(*location->store, location->Key(name)).ok());
  }
}

// Fields as people have them, in TFRecords of TensorFlow.
class PackTyped : public PackFormats {
 protected:
  void PutTfRecord(const std::string& uri, int count) {
    std::string shard;
    for (int i = 0; i < count; ++i) {
      std::string boxes;
      const std::vector<uint64_t> shape = {static_cast<uint64_t>(i % 4)};
      AppendNpyHead(boxes, *ParseNumberType("f4"), shape);
      for (int j = 0; j < i % 4; ++j) boxes.append("\0\0\x80\x3f", 4);
      const std::string image = "\xff\xd8\xff" + std::string(1000 + i, static_cast<char>(i));
      const std::string label = fmt::format("{}", i % 7), score = "0.5", text = fmt::format("größe {}", i);
      const std::vector<ValueField> fields = {
          {.name = "image/encoded", .type = FieldType::kBytes, .value = AsBytes(image)},
          {.name = "image/class/label", .type = FieldType::kInt, .value = AsBytes(label)},
          {.name = "score", .type = FieldType::kFloat, .value = AsBytes(score)},
          {.name = "boxes", .type = i % 4 == 1 ? FieldType::kBytes : FieldType::kNdarray, .value = AsBytes(boxes)},
          {.name = "text", .type = FieldType::kBytes, .value = AsBytes(text)}};
      std::string example;
      ASSERT_TRUE(AppendTfExample(example, fmt::format("s/{:04}", i), fields).ok());
      ASSERT_TRUE(AppendTfRecord(shard, AsBytes(example)).ok());
    }
    Put(uri, "train-00000-of-00001.tfrecord", shard);
  }
};

TEST_F(PackTyped, NamesThatTarCannotHoldAreChosenAnew) {
  PutTfRecord("mem://s/tf", 30);
  const absl::Status refused = RunAs(DataKind::kTar, "mem://s/tf", "mem://s/out").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.ToString(), HasSubstr("--field image/encoded=NAME"));
  EXPECT_THAT(Keys("mem://s/out"), ::testing::IsEmpty());
  const auto report =
      RunAs(DataKind::kTar, "mem://s/tf", "mem://s/out", 20'000,
            {{"image/encoded", "jpg"}, {"image/class/label", "cls"}, {"boxes", "npy"}, {"score", "score"}});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->without_image, 0u);
  const auto before = Values("mem://s/tf"), after = Values("mem://s/out");
  ASSERT_EQ(after.size(), 30u);
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].size(), 4u);
    EXPECT_EQ(after[i].at("jpg"), before[i].at("image/encoded"));
    EXPECT_EQ(after[i].at("cls"), before[i].at("image/class/label"));
    EXPECT_EQ(after[i].at("npy"), before[i].at("boxes"));
    EXPECT_EQ(after[i].at("score"), "0.5");
  }
  EXPECT_EQ(Open("mem://s/out")->index().class_counts().size(), 7u);
  OpenOptions rebuild;
  rebuild.rebuild = true;
  rebuild.reuse = false;
  const std::string index = ReadKey("mem://s/out", ".millrace/index");
  ASSERT_TRUE(Dataset::Open(runtime_, stores_, "mem://s/out", rebuild).ok());
  EXPECT_EQ(ReadKey("mem://s/out", ".millrace/index"), index);
}

TEST_F(PackTyped, AllFieldsKeepTheirTypes) {
  PutTfRecord("mem://s/tf", 30);
  ASSERT_TRUE(RunAs(DataKind::kTfRecord, "mem://s/tf", "mem://s/again", 10'000).ok());
  EXPECT_EQ(Digest("mem://s/again"), Digest("mem://s/tf"));
  const auto mds =
      RunAs(DataKind::kMds, "mem://s/tf", "mem://s/mds", 10'000,
            {{"image/encoded", "image"}, {"image/class/label", "cls"}, {"score", "score"}, {"text", "text"}});
  ASSERT_TRUE(mds.ok()) << mds.status();
  const auto before = Values("mem://s/tf"), after = Values("mem://s/mds");
  ASSERT_EQ(after.size(), 30u);
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].at("image"), before[i].at("image/encoded"));
    EXPECT_EQ(after[i].at("cls"), before[i].at("image/class/label"));
    EXPECT_EQ(after[i].at("score"), before[i].at("score"));
  }
  const std::string columns = ReadKey("mem://s/mds", "index.json");
  EXPECT_THAT(columns, HasSubstr(R"("column_names":["__key__","cls","image","score","text"])"));
  EXPECT_THAT(columns, HasSubstr(R"("column_encodings":["str","int","jpeg","float64","bytes"])"));
}

TEST_F(PackTyped, ASampleLargerThanAPieceIsConverted) {
  std::string shard, example;
  const std::string image = std::string(50'000, 'i'), label = "3";  // pieces have half as much
  const std::vector<ValueField> fields = {{.name = "image", .type = FieldType::kBytes, .value = AsBytes(image)},
                                          {.name = "cls", .type = FieldType::kInt, .value = AsBytes(label)}};
  ASSERT_TRUE(AppendTfExample(example, "big", fields).ok());
  ASSERT_TRUE(AppendTfRecord(shard, AsBytes(example)).ok());
  Put("mem://s/tf", "a.tfrecord", shard);
  const auto report = RunAs(DataKind::kTar, "mem://s/tf", "mem://s/out");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(Digest("mem://s/out"), Digest("mem://s/tf"));
}

TEST_F(PackTyped, WhatCannotBeHeldIsRefusedBeforeAnythingIsWritten) {
  PutTfRecord("mem://s/tf", 5);
  Put("mem://s/raw", "cat/1.jpg", "x");
  Put("mem://s/raw", "cat/2.png", "x");
  Put("mem://s/raw", "cat/3.txt", "x");
  const auto refused = [&](DataKind format, const std::string& from, std::vector<FieldChoice> fields,
                           const char* words) {
    const absl::Status status = RunAs(format, from, "mem://s/out", 20'000, std::move(fields)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(status.ToString(), HasSubstr(words));
    EXPECT_THAT(Keys("mem://s/out"), ::testing::IsEmpty());
  };
  refused(DataKind::kRecordIo, "mem://s/tf", {}, "one field and maybe a label");
  refused(DataKind::kRecordIo, "mem://s/tf", {{"image/encoded", "jpg"}, {"text", "text"}, {"score", "cls"}},
          "it has 2 fields and 1 label; name those to pack, such as --field jpg --field cls");
  refused(DataKind::kRecordIo, "mem://s/tf", {{"image/encoded", "jpg"}, {"text", "text"}},
          "it has 2 fields and 0 labels; name those to pack, such as --field jpg --field label=cls");
  refused(DataKind::kRecordIo, "mem://s/tf", {{"score", "score"}, {"text", "cls"}}, "not a number");
  refused(DataKind::kMds, "mem://s/raw", {}, "not in the first sample");
  refused(DataKind::kMds, "mem://s/tf", {{"score", "__key__"}}, "__key__");
  refused(DataKind::kTfRecord, "mem://s/tf", {{"score", "__key__"}}, "__key__");
  refused(DataKind::kMds, "mem://s/tf", {{"score", "a"}, {"text", "a"}}, "called 'a'");
  refused(DataKind::kMds, "mem://s/tf", {{"score", "score"}, {"tekst", "text"}}, "no sample has a field 'tekst'");
  refused(DataKind::kMds, "mem://s/raw", {{"jpg", "jpg"}, {"png", "png"}}, "--field png=jpg");
  // The remedy calls it as the source does, also where it has a new name.
  refused(DataKind::kTar, "mem://s/tf", {{"image/encoded", "JPG"}}, "its field 'JPG' under that name");
  refused(DataKind::kTar, "mem://s/tf", {{"image/encoded", "JPG"}}, "--field image/encoded=NAME");
  refused(DataKind::kMds, "mem://s/raw", {{"jpg", "jpg"}, {"png", "other"}}, "--field png=jpg");
}

// Classes as people write them: with a line feed, or as text.
TEST_F(PackTyped, ClassesThatAreNoPlainNumbersStayBytes) {
  Put("mem://s/in", "1.jpg", "x");
  ASSERT_TRUE(Run("mem://s/in", "mem://s/tar").ok());
  for (const char* text : {"3", "3\n", "007", "cat"}) {
    std::string shard;
    for (int i = 0; i < 3; ++i) {
      for (const auto& [field, data] :
           {std::pair<std::string, std::string>{"cls", i == 1 ? text : "4"}, {"jpg", "x"}}) {
        ASSERT_TRUE(AppendTarHeader(shard, fmt::format("{}.{}", i, field), data.size()).ok());
        shard += data;
        AppendTarPadding(shard, data.size());
      }
    }
    AppendTarEnd(shard);
    const std::string from = fmt::format("mem://cls{}/in", std::string(text).size());
    Put(from, "a.tar", shard);
    OpenOptions rebuild;
    rebuild.rebuild = true;
    ASSERT_TRUE(Dataset::Open(runtime_, stores_, from, rebuild).ok());
    const std::string to = fmt::format("mem://cls-{}/out", static_cast<const void*>(text));
    const auto report = RunAs(DataKind::kMds, from, to);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(Values(to), Values(from));
    EXPECT_THAT(ReadKey(to, "index.json"), HasSubstr(std::string(text) == "3" ? R"("int")" : R"("bytes")"));
    EXPECT_EQ(RunAs(DataKind::kRecordIo, from, to + "2").ok(), std::string(text) == "3");
  }
}

TEST_F(PackTyped, MemoryForWholeShards) {
  PutImages("mem://s/raw", 600);
  const absl::Status status = RunAs(DataKind::kMds, "mem://s/raw", "mem://s/out", 1 << 20).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("--memory, or lower --shard-size"));
  EXPECT_THAT(Keys("mem://s/out"), ::testing::IsEmpty());
  EXPECT_TRUE(RunAs(DataKind::kMds, "mem://s/raw", "mem://s/out", 100'000).ok()) << "nothing was begun";
}

// Samples whose stored arrays are none: found when they are converted, that is, after the reading.
TEST_F(PackTyped, WhatCannotBeConvertedIsLeftOut) {
  const std::string json =
      R"({"column_encodings": ["ndarray"], "column_names": ["x"], "column_sizes": [null], "compression": null, )"
      R"("format": "mds", "hashes": [], "version": 2})";
  constexpr size_t kSamples = 40;
  std::string head;
  std::string body;
  const size_t first = 4 * (kSamples + 2) + json.size();
  AppendLe(head, static_cast<uint32_t>(kSamples));
  for (size_t i = 0; i < kSamples; ++i) {
    const std::string array = i == 7 || i == 30 ? "\x07\x04\x01x" : "\x22\x08\x01\x01" + std::string(4, '\x01');
    AppendLe(head, static_cast<uint32_t>(first + body.size()));
    AppendLe(body, static_cast<uint32_t>(array.size()));
    body += array;
  }
  AppendLe(head, static_cast<uint32_t>(first + body.size()));
  Put("mem://s/mds", "shard.00000.mds", head + json + body);
  PackOptions options;
  options.shard_bytes = 2'000;
  const absl::Status refused = Run("mem://s/mds", "mem://s/out", options).status();
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  EXPECT_THAT(refused.ToString(), HasSubstr("field 'x'"));
  options.skip_bad = true;
  const auto report = Run("mem://s/mds", "mem://s/out", options);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->skipped.size(), 2u);
  EXPECT_THAT(report->skipped[0].why, HasSubstr("field 'x'"));
  EXPECT_EQ(Open("mem://s/out")->index().size(), kSamples - 2);
}

}  // namespace
}  // namespace millrace
