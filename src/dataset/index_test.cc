#include "dataset/index.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/crypto.h"
#include "base/hex.h"
#include "base/testing/test_all.h"
#include "dataset/index_format.h"
#include "dataset/testing/index_model.h"
#include "shard/sample_name.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using namespace testing;  // NOLINT: index_model.h

std::string Bytes(const Model& model) {
  absl::StatusOr<std::string> bytes = WriteIndex(model);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.ok() ? *std::move(bytes) : "";
}

std::unique_ptr<Index> Make(const Model& model) {
  auto index = Index::FromBytes(Bytes(model));
  EXPECT_TRUE(index.ok()) << index.status();
  return index.ok() ? *std::move(index) : nullptr;
}

TEST(Index, SameAsANaiveModel) {
  Rng rng(HashKey(10, {1}));
  for (const DataKind kind : {DataKind::kTar, DataKind::kRawObjects, DataKind::kTfRecord, DataKind::kMds}) {
    for (const uint64_t samples : {1, 2, 31, 32, 33, 64, 1000, 3000}) {
      const Model model = RandomModel(kind, samples, rng);
      const auto index = Make(model);
      ASSERT_EQ(Describe(*index), Describe(model)) << samples;
      EXPECT_TRUE(index->Verify().ok());
      EXPECT_EQ(index->kind(), kind);
      EXPECT_EQ(index->file_bytes(), Bytes(model).size());
    }
  }
}

TEST(Index, ValuesAndLabelsOfANaiveModel) {
  Rng rng(HashKey(10, {20}));
  for (const DataKind kind : {DataKind::kTar, DataKind::kRawObjects, DataKind::kRecordIo}) {
    for (const uint64_t samples : {1, 33, 500}) {
      Model model = RandomModel(kind, samples, rng);
      AddValues(&model, rng);
      const auto index = Make(model);
      ASSERT_EQ(Describe(*index), Describe(model)) << samples;
      EXPECT_TRUE(index->Verify().ok());
      EXPECT_TRUE(index->TellsAll());
    }
  }
}

// The samples that ScanObject gives make the same index again.
TEST(Index, ScanObjectTellsAllThatItWasTold) {
  Rng rng(HashKey(10, {21}));
  for (const DataKind kind : {DataKind::kTar, DataKind::kRawObjects, DataKind::kTfRecord}) {
    Model model = RandomModel(kind, 700, rng);
    AddValues(&model, rng);
    const std::string bytes = Bytes(model);
    const auto index = *Index::FromBytes(bytes);
    std::string again;
    IndexWriter writer(kind, std::make_unique<StringWriter>(&again));
    uint64_t block = 0;
    IndexedObject object;
    for (uint32_t i = 0; i < index->objects(); ++i) {
      ASSERT_TRUE(index->ScanObject(i, &block, [&](const NewSample& sample) { return writer.AddSample(sample); }).ok());
      ASSERT_TRUE(index->LookupObject(i, &object).ok());
      ASSERT_TRUE(writer.AddObject(object).ok());
    }
    ASSERT_TRUE(writer.Finish().ok());
    EXPECT_TRUE(again == bytes) << KindName(kind);
  }
}

TEST(Index, FindsObjectsByTheirKeys) {
  Rng rng(HashKey(10, {23}));
  const auto index = Make(RandomModel(DataKind::kTar, 2000, rng));
  IndexedObject object;
  for (uint32_t i = 0; i < index->objects(); ++i) {
    ASSERT_TRUE(index->LookupObject(i, &object).ok());
    EXPECT_EQ(*index->FindObject(object.key), i);
    EXPECT_EQ(*index->FindObject(object.key + '\0'), std::nullopt);
    object.key.pop_back();
    EXPECT_NE(*index->FindObject(object.key), i) << "a part of a key is another one";
  }
  EXPECT_EQ(*index->FindObject(""), std::nullopt);
  EXPECT_EQ(*index->FindObject("\xff\xff"), std::nullopt);
}

TEST(Index, ScanObjectPassesOverObjects) {
  Rng rng(HashKey(10, {22}));
  const Model model = RandomModel(DataKind::kTar, 700, rng);
  const auto index = Make(model);
  for (const uint32_t step : {1, 2, 3, 7}) {
    uint64_t block = 0;
    for (auto i = static_cast<uint32_t>(rng.Below(step)); i < index->objects(); i += step) {
      std::vector<std::string> keys, expected;
      for (const ModelSample& sample : model.objects[i].samples) expected.push_back(sample.key);
      const auto take = [&](const NewSample& sample) { return keys.emplace_back(sample.key), absl::OkStatus(); };
      ASSERT_TRUE(index->ScanObject(i, &block, take).ok());
      EXPECT_EQ(keys, expected) << i;
    }
  }
  uint64_t block = 0;
  const auto stop = [](const NewSample&) { return absl::CancelledError("enough"); };
  uint32_t with_samples = 0;
  while (model.objects[with_samples].samples.empty()) ++with_samples;
  EXPECT_EQ(index->ScanObject(with_samples, &block, stop).code(), absl::StatusCode::kCancelled);
}

TEST(Index, ScanIsLookupOfEach) {
  Rng rng(HashKey(10, {12}));
  const auto index = Make(RandomModel(DataKind::kTar, 300, rng));
  for (const auto& [first, last] :
       std::vector<std::pair<uint64_t, uint64_t>>{{0, 300}, {0, 0}, {5, 6}, {31, 33}, {64, 300}, {299, 300}}) {
    uint64_t next = first;
    ASSERT_TRUE(index
                    ->Scan(first, last,
                           [&](uint64_t sample, const IndexedSample& entry) {
                             IndexedSample expected;
                             ASSERT_TRUE(index->Lookup(sample, &expected).ok());
                             EXPECT_EQ(sample, next++);
                             EXPECT_EQ(entry.key, expected.key);
                             EXPECT_EQ(entry.object, expected.object);
                             EXPECT_EQ(entry.span, expected.span);
                             EXPECT_EQ(entry.crc32c, expected.crc32c);
                             EXPECT_EQ(entry.fields.size(), expected.fields.size());
                           })
                    .ok());
    EXPECT_EQ(next, last);
  }
}

TEST(Index, LookupsInAnyOrderIntoOneSample) {
  Rng rng(HashKey(10, {2}));
  const auto index = Make(RandomModel(DataKind::kTar, 500, rng));
  std::vector<std::string> expected;
  const auto describe = [](const IndexedSample& s) {
    std::string text = fmt::format("{} {} {} {}", s.key, s.object, s.span.offset, s.crc32c.value_or(0));
    for (const IndexedField& f : s.fields) text += fmt::format(" {}@{}+{}", f.name, f.offset, f.length);
    return text;
  };
  for (uint64_t i = 0; i < 500; ++i) {
    IndexedSample fresh;
    ASSERT_TRUE(index->Lookup(i, &fresh).ok());
    expected.push_back(describe(fresh));
  }
  IndexedSample reused;
  for (int round = 0; round < 5000; ++round) {
    const uint64_t i = rng.Below(500);
    ASSERT_TRUE(index->Lookup(i, &reused).ok());
    ASSERT_EQ(describe(reused), expected[i]);
  }
}

TEST(Index, SixteenBytesASampleOfTar) {
  Rng rng(HashKey(10, {3}));
  const std::string bytes = Bytes(UsualModel(100'000, rng));
  EXPECT_LT(static_cast<double>(bytes.size()) / 100'000, 16.0);
}

TEST(Index, EmptyIsValid) {
  const auto index = Make(Model{});
  EXPECT_EQ(index->size(), 0u);
  EXPECT_EQ(index->mean_span_bytes(), 0);
  IndexedSample sample;
  EXPECT_EQ(index->Lookup(0, &sample).code(), absl::StatusCode::kInvalidArgument);
  IndexedObject object;
  EXPECT_EQ(index->LookupObject(0, &object).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Index, FingerprintIsOfSamplesAndOrderOnly) {
  Rng rng(HashKey(10, {4}));
  const Model model = RandomModel(DataKind::kTar, 100, rng);
  const uint64_t fingerprint = Make(model)->fingerprint();

  Model moved = model;
  for (ModelObject& object : moved.objects) {
    object.info.key = "elsewhere/" + object.info.key;
    object.info.etag = "other";
  }
  EXPECT_EQ(Make(moved)->fingerprint(), fingerprint);

  const auto changed = [&](auto change) {
    Model other = model;
    for (ModelObject& object : other.objects) {
      if (object.samples.empty()) continue;
      change(object.samples.back());
      break;
    }
    return Make(other)->fingerprint() != fingerprint;
  };
  EXPECT_TRUE(changed([](ModelSample& sample) { sample.key += "x"; }));
  EXPECT_FALSE(changed([](ModelSample& sample) { sample.crc32c = 7; }));
  EXPECT_FALSE(changed([](ModelSample& sample) { sample.crc32c.reset(); }));
  EXPECT_TRUE(changed([](ModelSample& sample) { sample.fields.back().name = "other"; }));
  EXPECT_TRUE(changed([](ModelSample& sample) { sample.fields.back().length += 1; }));
}

TEST(Index, GoldenFile) {
  // Version 5 is frozen: it must not change; a change of the format is another version.
  Rng rng(HashKey(10, {5}));
  std::string bytes;
  for (const DataKind kind : {DataKind::kTar, DataKind::kRawObjects, DataKind::kMds}) {
    Model model = RandomModel(kind, 150, rng);
    bytes += Bytes(model);
    AddValues(&model, rng);
    bytes += Bytes(model);
  }
  EXPECT_EQ(HexEncode(Sha256(AsBytes(bytes))), "edeb0af891311c88f329909bc6f617acf541b71877f511768321089060a0f774");
}

// A file of a class (1.cls) is in the index as it is listed, and as it was read.
TEST(Index, AClassFileCountsTheSameWhetherItWasReadOrNot) {
  const auto make = [](bool read, std::string_view key, std::string_view label) {
    Model model{.kind = DataKind::kRawObjects, .objects = {{.info = {.key = "1", .size = 5}, .samples = {}}}};
    ModelSample sample{.key = std::string(key), .fields = {}, .crc32c = std::nullopt, .label = {}};
    sample.fields.push_back({.name = "jpg", .offset = 0, .length = 3, .encoding = {}});
    if (read) {
      sample.label = label;
      sample.values.push_back({.name = "cls", .text = std::string(label), .encoding = "int"});
      sample.class_file_bytes = 2;
    } else {
      sample.fields.push_back({.name = "cls", .offset = 3, .length = 2, .encoding = {}});
    }
    model.objects[0].samples.push_back(std::move(sample));
    return Make(model);
  };
  const uint64_t listed = make(false, "1", "")->fingerprint();
  EXPECT_EQ(make(true, "1", "7")->fingerprint(), listed);
  EXPECT_EQ(make(true, "1", "10")->fingerprint(), listed) << "the order does not depend on classes";
  EXPECT_NE(make(false, "2", "")->fingerprint(), listed);
  EXPECT_EQ(make(true, "a/1", "7")->fingerprint(), make(false, "a/1", "")->fingerprint());
  // ScanObject returns the size of the file, so that an index made of it is the same.
  uint64_t block = 0;
  std::optional<uint64_t> told;
  ASSERT_TRUE(make(true, "1", "7")
                  ->ScanObject(0, &block,
                               [&](const NewSample& sample) {
                                 told = sample.class_file_bytes;
                                 return absl::OkStatus();
                               })
                  .ok());
  EXPECT_EQ(told, 2u);
}

TEST(Index, EncodingsAreOfTheFingerprint) {
  const auto fingerprint = [](std::string_view encoding) {
    Model model{.kind = DataKind::kMds, .objects = {{.info = {.key = "a.mds", .size = 9}, .samples = {}}}};
    ModelSample sample{.key = "0", .fields = {}, .crc32c = 1, .label = {}};
    sample.fields.push_back({.name = "x", .offset = 0, .length = 8, .encoding = std::string(encoding)});
    model.objects[0].samples.push_back(std::move(sample));
    return Make(model)->fingerprint();
  };
  EXPECT_EQ(fingerprint("i8"), fingerprint("i8"));
  EXPECT_NE(fingerprint("i8"), fingerprint("u8"));
  EXPECT_NE(fingerprint("i8"), fingerprint(""));
}

TEST(Index, ValuesAreOfTheFingerprint) {
  const auto fingerprint = [](std::vector<ModelValue> values) {
    Model model{.kind = DataKind::kTar, .objects = {{.info = {.key = "a.tar", .size = 9}, .samples = {}}}};
    ModelSample sample{.key = "0", .fields = {}, .crc32c = 1, .label = {}, .values = std::move(values)};
    sample.fields.push_back({.name = "x", .offset = 512, .length = 8, .encoding = {}});
    model.objects[0].samples.push_back(std::move(sample));
    return Make(model)->fingerprint();
  };
  const std::vector<ModelValue> values = {{"a", "1", "int"}, {"b", "", ""}};
  const uint64_t usual = fingerprint(values);
  EXPECT_EQ(fingerprint(values), usual);
  EXPECT_NE(fingerprint({}), usual);
  for (const auto& other : std::vector<std::vector<ModelValue>>{{{"a", "2", "int"}, {"b", "", ""}},
                                                                {{"a", "1", "float"}, {"b", "", ""}},
                                                                {{"a", "1", "int"}, {"c", "", ""}},
                                                                {{"a", "1", "int"}}}) {
    EXPECT_NE(fingerprint(other), usual);
  }
}

// Expects that damage is an error, or makes no difference; it never crashes.
void ExpectNoticed(std::string bad, const std::string& expected, std::string_view what) {
  const auto index = Index::FromBytes(std::move(bad));
  if (!index.ok()) {
    const absl::StatusCode code = index.status().code();
    EXPECT_TRUE(code == absl::StatusCode::kDataLoss || code == absl::StatusCode::kInvalidArgument) << index.status();
    return;
  }
  const std::string text = Describe(**index);
  if (text == expected) return;
  EXPECT_THAT(text, HasSubstr("DATA_LOSS: damaged index")) << what;
  EXPECT_THAT(text, HasSubstr("millrace index")) << what;
  EXPECT_EQ((*index)->Verify().code(), absl::StatusCode::kDataLoss) << what;
}

TEST(Index, EveryFlippedByteIsNoticed) {
  Rng rng(HashKey(10, {6}));
  for (const DataKind kind : {DataKind::kTar, DataKind::kRawObjects, DataKind::kRecordIo}) {
    Model model = RandomModel(kind, 40, rng);  // two blocks of samples
    if (kind == DataKind::kRecordIo) AddValues(&model, rng);
    const std::string good = Bytes(model);
    const std::string expected = Describe(model);
    const size_t step = kSanitized ? 7 : 1;
    for (size_t at = rng.Below(step); at < good.size(); at += step) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 + rng.Below(255)));
      ExpectNoticed(bad, expected, fmt::format("byte {}", at));
    }
  }
}

TEST(Index, EveryTruncationIsNoticed) {
  Rng rng(HashKey(10, {7}));
  const std::string good = Bytes(RandomModel(DataKind::kTar, 70, rng));
  for (size_t size = 0; size < good.size(); ++size) {
    const auto index = Index::FromBytes(good.substr(0, size));
    ASSERT_FALSE(index.ok()) << size;
    ASSERT_EQ(index.status().code(),
              size < index_format::kHeadBytes ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kDataLoss);
  }
  EXPECT_EQ(Index::FromBytes(good + "x").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Index::FromBytes(good + good).ok(), false);
}

TEST(Index, OtherFilesAndOtherVersions) {
  EXPECT_EQ(Index::FromBytes("not an index, only some text").status().code(), absl::StatusCode::kInvalidArgument);
  for (const uint32_t version : {0, 1, 2, 3, 6}) {
    std::string other = Bytes(Model{});
    StoreLe<uint32_t>(other.data() + 8, version);
    StoreLe<uint32_t>(other.data() + 12, Crc32c(AsBytes(other).first(12)));
    const auto index = Index::FromBytes(other);
    EXPECT_EQ(index.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(index.status().ToString(), HasSubstr(fmt::format("version {}", version)));
  }
}

// These are files that version 4 has written: of a.tar and b.tar, and of raw objects with files of their classes.
constexpr std::string_view kTarOfVersion4 =
    "4d52494e4445580004000000ab322b83aeff284f260000000000000131010301001ff3efb70000013201030101207a4c2e02"
    "00000133010501006cde5eada372a68f340000000005612e74617280500086ffb7c9ee62b167224702dda6471fda0005622e"
    "746172805000680941d7c41daf0c15a44c3c848d068c3e00000000000000100000000000000002036a706703636c73000105"
    "01000004000201330201350103000000000000000200000000000000030c000000000000010400000000000012e1a6e7c3e7"
    "474b03000000000000007a0000000000000082000000000000008a0000000000000018000000000000007c8bd45d01000000"
    "0e0644754d52494e4445581a";
constexpr std::string_view kRawOfVersion4 =
    "4d52494e4445580004000000ab322b83cbb0c0e31e0000000000000131000302013300307cbc8f0600000132000602313001"
    "2894fd7accc03404d40000000018312e6a7067003300312e6a736f6e2f3200312e636c732f3207c801663937633564323939"
    "3431626662316232666461623038373439303661623832003939393134623933326264333761353062393833633565376339"
    "306165393362003664376663653966656534373131393461613862356236653437323637663033000f322e6a706700360032"
    "2e636c732f320886016139663065363161313337643836616139646235333436356530383031363132006433643934343638"
    "3032613434323539373535643338653664313633653832303600000000000000100000000000000003036a7067046a736f6e"
    "03636c730103696e74020700000004000a01050000000a010201330102313001020000000000000002000000000000000b00"
    "00000000000006000000000000000186c5c854ee59a5020000000000000012010000000000001a0100000000000022010000"
    "000000002a000000000000005d4cbdda00000000ae4dcd814d52494e4445581a";

TEST(Index, TheVersionBeforeIsRead) {
  const std::string tar = *HexDecode(kTarOfVersion4);
  const auto index = *Index::FromBytes(tar);
  EXPECT_TRUE(index->is_of_older_version());
  EXPECT_FALSE(Make(Model{})->is_of_older_version());
  EXPECT_TRUE(index->Verify().ok());
  EXPECT_EQ(Describe(*index),
            "3 samples (0 without CRC) 2 objects 3075 bytes max 1025 fields cls,jpg\n"
            "class '3': 2\nclass '5': 1\n3 runs, folders \n"
            "'1' in 0 at 512+1025 crc b7eff31f: cls@1024+1 jpg@0+3 of class '3'\n"
            "'2' in 0 at 2560+1025 crc 2e4c7a20: cls@1024+1 jpg@0+3 of class '5'\n"
            "'3' in 1 at 512+1025 crc ad5ede6c: cls@1024+1 jpg@0+5 of class '3'\n"
            "object 'a.tar' 10240 '86ffb7c9ee62b167224702dda6471fda'\n"
            "object 'b.tar' 10240 '680941d7c41daf0c15a44c3c848d068c'\n");
  EXPECT_THAT(Describe(**Index::FromBytes(*HexDecode(kRawOfVersion4))),
              HasSubstr("2 samples (0 without CRC) 2 objects 11 bytes max 6 fields cls,jpg,json\n"
                        "class '3': 1\nclass '10': 1\n2 runs, folders \n"
                        "'1' in 0 at 0+5 crc 8fbc7c30: cls='3'int jpg@0+3 json@3+2 of class '3'\n"
                        "'2' in 1 at 0+6 crc 7afd9428: cls='10'int jpg@0+6 of class '10'\n"));
  const std::string expected = Describe(*index);
  for (size_t at = 0; at < tar.size(); ++at) {
    std::string bad = tar;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    ExpectNoticed(bad, expected, fmt::format("byte {}", at));
    EXPECT_FALSE(Index::FromBytes(tar.substr(0, at)).ok()) << at;
  }
}

TEST(Index, MappedFromAFile) {
  Rng rng(HashKey(10, {8}));
  const Model model = RandomModel(DataKind::kTar, 100, rng);
  const std::string path = fmt::format("{}/index-{}", ::testing::TempDir(), getpid());
  std::ofstream(path, std::ios::binary) << Bytes(model);
  const auto index = Index::Open(path);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(Describe(**index), Describe(model));
  std::ofstream(path, std::ios::binary | std::ios::trunc) << "";
  EXPECT_EQ(Index::Open(path).status().code(), absl::StatusCode::kInvalidArgument);
  std::remove(path.c_str());
  const absl::Status missing = Index::Open(path).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.ToString(), HasSubstr(path));
}

class IndexWriterTest : public ::testing::Test {
 protected:
  absl::Status Add(std::string_view key, std::vector<NewSampleField> fields, std::string_view label = {}) {
    return writer_.AddSample({.key = key, .fields = fields, .crc32c = 0, .label = label});
  }
  std::string bytes_;
  uint64_t next_ = 512;
  IndexWriter writer_{DataKind::kTar, std::make_unique<StringWriter>(&bytes_)};
};

TEST_F(IndexWriterTest, RefusesWhatItCannotHold) {
  const auto refused = [&](const absl::Status& status, std::string_view text) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(status.ToString(), HasSubstr(text));
  };
  refused(Add("none", {}), "0 fields");
  refused(Add("odd", {{"jpg", 100, 1}}), "offset 100");
  refused(Add("overlap", {{"jpg", 512, 513}, {"txt", 1024, 1}}), "'txt' lies at offset 1024");
  refused(Add("far", {{"jpg", (uint64_t{1} << 62) + 512, 1}}), "far");
  refused(Add("far", {{"jpg", 512, UINT64_MAX}}), "far");
  refused(Add(std::string(kMaxNameBytes + 1, 'k'), {{"jpg", 512, 1}}), "key of 4097 bytes");
  ASSERT_TRUE(Add("ok", {{"jpg", 512, 100}}).ok());
  refused(Add("before", {{"jpg", 512, 1}}), "not behind");
  ASSERT_TRUE(writer_.AddObject({.key = "b", .size = 1, .etag = ""}).ok());
  ASSERT_TRUE(Add("next object", {{"jpg", 512, 100}}).ok());
  refused(writer_.AddObject({.key = "a", .size = 1, .etag = ""}), "bytewise order");
  refused(writer_.AddObject({.key = "", .size = 1, .etag = ""}), "length");
  refused(writer_.AddObject({.key = "c", .size = 1, .etag = std::string(5000, 'e')}), "length");
}

TEST_F(IndexWriterTest, SamplesNeedAnObject) {
  ASSERT_TRUE(Add("a", {{"jpg", 512, 100}}).ok());
  EXPECT_EQ(writer_.Finish().status().code(), absl::StatusCode::kInternal);
}

TEST_F(IndexWriterTest, TooManyNamesPointAtTheDots) {
  absl::Status status;
  uint64_t offset = 0;
  for (int i = 0; i <= 65536 && status.ok(); ++i) status = Add("k", {{fmt::format("f{}", i), offset += 512, 0}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("first dot"));
}

TEST_F(IndexWriterTest, TooManyLabelsAreLeftOut) {
  for (uint64_t i = 0; i <= 65536; ++i) ASSERT_TRUE(Add("k", {{"cls", 512 + i * 1024, 5}}, fmt::format("{}", i)).ok());
  ASSERT_TRUE(writer_.AddObject({.key = "a", .size = 1, .etag = ""}).ok());
  ASSERT_TRUE(writer_.Finish().ok());
  const auto index = Index::FromBytes(bytes_);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_TRUE((*index)->class_counts().empty());
  EXPECT_EQ((*index)->class_runs(), 0u);
  EXPECT_FALSE((*index)->has_labels());
  EXPECT_FALSE((*index)->TellsAll());
  EXPECT_TRUE((*index)->Verify().ok());
  IndexedSample sample;
  for (const uint64_t i : {0, 65535, 65536}) {
    ASSERT_TRUE((*index)->Lookup(i, &sample).ok());
    EXPECT_FALSE(sample.label);
  }
}

TEST_F(IndexWriterTest, LabelsOfShardsAreNoFields) {
  for (const char* label : {"7", "", "10", "7"}) ASSERT_TRUE(Add("k", {{"cls", next_ += 1024, 1}}, label).ok());
  ASSERT_TRUE(writer_.AddObject({.key = "a", .size = 1, .etag = ""}).ok());
  ASSERT_TRUE(writer_.Finish().ok());
  const auto index = *Index::FromBytes(bytes_);
  EXPECT_TRUE(index->has_labels());
  const std::vector<std::optional<uint32_t>> expected = {0, std::nullopt, 1, 0};
  IndexedSample sample;
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(index->Lookup(i, &sample).ok());
    EXPECT_EQ(sample.label, expected[i]) << i;
    ASSERT_EQ(sample.fields.size(), 1u);
    EXPECT_FALSE(sample.fields[0].is_inline);
  }
}

TEST_F(IndexWriterTest, NamesOfNumberedClassesAreKept) {
  for (const char* label : {"2", "", "0"}) ASSERT_TRUE(Add("k", {{"cls", next_ += 1024, 1}}, label).ok());
  ASSERT_TRUE(writer_.AddObject({.key = "a", .size = 1, .etag = ""}).ok());
  const std::vector<std::string> names = {"cat", "dog", "eel"};
  writer_.SetClassNames(names);
  ASSERT_TRUE(writer_.Finish().ok());
  const auto index = *Index::FromBytes(bytes_);
  EXPECT_TRUE(index->Verify().ok());
  EXPECT_EQ(index->own_class_names(), names);
  EXPECT_TRUE(index->class_names().empty()) << "until somebody orders the classes by them";
  ASSERT_TRUE(index->OrderClasses(index->own_class_names()).ok());
  EXPECT_EQ(index->class_names(), names);
  EXPECT_EQ(index->class_counts()[2].samples, 1u);
}

TEST_F(IndexWriterTest, WithoutClassesThereAreNoNames) {
  ASSERT_TRUE(Add("k", {{"jpg", next_, 1}}).ok());
  ASSERT_TRUE(writer_.AddObject({.key = "a", .size = 1, .etag = ""}).ok());
  writer_.SetClassNames({"cat"});
  ASSERT_TRUE(writer_.Finish().ok());
  EXPECT_TRUE((*Index::FromBytes(bytes_))->own_class_names().empty());
}

TEST_F(IndexWriterTest, RefusesValuesThatItCannotHold) {
  const NewSampleField field{.name = "jpg", .offset = 512, .length = 1};
  const auto add = [&](std::vector<NewSampleValue> values) {
    return writer_.AddSample({.key = "k", .fields = {&field, 1}, .crc32c = 0, .label = {}, .values = values});
  };
  EXPECT_THAT(add({{"jpg", "1", ""}}).ToString(), HasSubstr("the field 'jpg' twice"));
  EXPECT_EQ(add({{"b", "1", ""}, {"a", "1", ""}}).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(add({{"a", "1", ""}, {"a", "1", ""}}).code(), absl::StatusCode::kInternal);
  const std::string half(index_format::kMaxValueBytes / 2, 'x');
  EXPECT_THAT(add({{"a", half, ""}, {"b", half, ""}, {"c", "1", ""}}).ToString(), HasSubstr("at most 131072"));
  EXPECT_TRUE(add({{"a", half, ""}, {"b", half, ""}}).ok());
  std::vector<std::string> names;
  for (int i = 0; i < 1024; ++i) names.push_back(fmt::format("{:04}", i));
  const NewSampleField next{.name = "jpg", .offset = 1536, .length = 1};
  std::vector<NewSampleValue> many;
  for (const std::string& name : names) many.push_back({.name = name, .text = "", .encoding = ""});
  const auto add_next = [&] {
    return writer_.AddSample({.key = "l", .fields = {&next, 1}, .crc32c = 0, .label = {}, .values = many});
  };
  EXPECT_THAT(add_next().ToString(), HasSubstr("1 fields and 1024 values"));
  many.pop_back();
  EXPECT_TRUE(add_next().ok());
}

TEST(IndexWriterErrors, ClassTwice) {
  std::string bytes;
  IndexWriter writer(DataKind::kRawObjects, std::make_unique<StringWriter>(&bytes));
  const NewSampleField field{.name = "cls", .offset = 0, .length = 1};
  const absl::Status status = writer.AddSample({.key = "cat/1", .fields = {&field, 1}, .crc32c = 0, .label = "cat"});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("'cat/1': it has the field 'cls' twice"));
}

TEST(IndexWriterErrors, FullDisk) {
  class FullWriter final : public ObjectWriter {
   public:
    absl::Status Append(ByteSpan) override { return absl::ResourceExhaustedError("disk full"); }
    absl::StatusOr<ObjectInfo> Commit() override { return ObjectInfo{}; }
  };
  IndexWriter writer(DataKind::kTar, std::make_unique<FullWriter>());
  EXPECT_EQ(writer.Finish().status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace millrace
