#include "pack/pack.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "dataset/index_writer.h"
#include "dataset/sample_objects.h"
#include "dataset/testing/sample_text.h"
#include "pack/testing/pack_fixture.h"
#include "shard/sample_name.h"
#include "shard/tar_writer.h"
#include "store/blocking.h"
#include "store/joined_objects.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::PackTest;

TEST_F(PackTest, SmallExample) {
  Put("mem://s/in", "cat/1.jpg", "meow");
  Put("mem://s/in", "bird/2.JPG", "peep");
  const auto report = Run("mem://s/in", "mem://s/out");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 2u);
  EXPECT_EQ(report->shards, 1u);
  std::string expected;
  AppendTarEscapedKeys(expected);
  for (const auto& [name, data] : {std::pair<std::string, std::string>{"bird/2.cls", "0"},
                                   {"bird/2.jpg", "peep"},
                                   {"cat/1.cls", "1"},
                                   {"cat/1.jpg", "meow"}}) {
    ASSERT_TRUE(AppendTarHeader(expected, name, data.size()).ok());
    expected += data;
    AppendTarPadding(expected, data.size());
  }
  AppendTarEnd(expected);
  EXPECT_EQ(ReadKey("mem://s/out", "shard-000000.tar"), expected);
  EXPECT_EQ(report->shard_bytes, expected.size());
  EXPECT_THAT(Keys("mem://s/out"), ElementsAre("out/.millrace/index", "out/.millrace/packed", "out/shard-000000.tar"));
}

TEST_F(PackTest, RawPackedAndRepackedHaveOneDigest) {
  PutRawObjects("mem://s/raw", 1);
  const std::string digest = Digest("mem://s/raw");
  for (const uint64_t size : {1, 10'000, 30'000, 1 << 20}) {
    const std::string to = fmt::format("mem://s/tar{}", size);
    ASSERT_TRUE(Run("mem://s/raw", to, size).ok());
    EXPECT_EQ(Digest(to), digest) << size;
  }
  ASSERT_TRUE(Run("mem://s/tar10000", "mem://s/again", 50'000).ok());
  EXPECT_EQ(Digest("mem://s/again"), digest);
}

TEST_F(PackTest, TheIndexIsTheOneThatIndexingWouldBuild) {
  PutRawObjects("mem://s/raw", 2);
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/tar", 20'000).ok());
  const std::string packed = ReadKey("mem://s/tar", ".millrace/index");
  OpenOptions options;
  options.rebuild = true;
  options.reuse = false;  // what it was written from must not matter
  ASSERT_TRUE(Dataset::Open(runtime_, stores_, "mem://s/tar", options).ok());
  EXPECT_EQ(ReadKey("mem://s/tar", ".millrace/index"), packed);
}

TEST_F(PackTest, ShardsKeepTheSizeAndTheSameBytesComeTwice) {
  PutRawObjects("mem://s/raw", 3);
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/one", 20'000).ok());
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/two", 20'000).ok());
  const auto location = stores_.Open("mem://s/one");
  const auto objects = ListAll(*location->store, "one/shard");
  ASSERT_GT(objects->size(), 5u);
  size_t larger = 0;
  for (size_t i = 0; i < objects->size(); ++i) {
    const ObjectInfo& object = (*objects)[i];
    EXPECT_EQ(object.key, fmt::format("one/shard-{:06}.tar", i));
    larger += object.size > 20'000 ? 1 : 0;
    EXPECT_EQ(ReadKey("mem://s/one", fmt::format("shard-{:06}.tar", i)),
              ReadKey("mem://s/two", fmt::format("shard-{:06}.tar", i)));
  }
  EXPECT_EQ(larger, 1u) << "only that of the one sample that is larger";
}

TEST_F(PackTest, ExactlyTheShardSize) {
  // Each sample takes 512 + 512 bytes without a class, and the shard 2,048 at its begin and end.
  for (int i = 0; i < 4; ++i) Put("mem://s/in", fmt::format("{}.txt", i), "x");
  ASSERT_TRUE(Run("mem://s/in", "mem://s/a", 2 * 1024 + 2048).ok());
  EXPECT_THAT(Keys("mem://s/a"),
              ElementsAre("a/.millrace/index", "a/.millrace/packed", "a/shard-000000.tar", "a/shard-000001.tar"));
  ASSERT_TRUE(Run("mem://s/in", "mem://s/b", 2 * 1024 + 2047).ok());
  EXPECT_EQ(Keys("mem://s/b").size(), 6u);
}

TEST_F(PackTest, DestinationMustBeEmptyUnlessForced) {
  Put("mem://s/in", "1.txt", "x");
  Put("mem://s/in", "2.txt", "x");
  Put("mem://s/out", "other.txt", "mine");
  EXPECT_THAT(Run("mem://s/in", "mem://s/out").status().ToString(), HasSubstr("ALREADY_EXISTS: mem://s/out/other.txt"));
  EXPECT_THAT(Run("mem://s/in", "mem://s/out", 1, true).status().ToString(), HasSubstr("other.txt"))
      << "--force is for shards only";
  EXPECT_THAT(Keys("mem://s/out"), ElementsAre("out/other.txt"));

  ASSERT_TRUE(Run("mem://s/in", "mem://s/new", 1).ok());
  const absl::Status refused = Run("mem://s/in", "mem://s/new").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(refused.ToString(), HasSubstr("--force"));
  ASSERT_TRUE(Run("mem://s/in", "mem://s/new", 1 << 20, true).ok());
  EXPECT_THAT(Keys("mem://s/new"), ElementsAre("new/.millrace/index", "new/.millrace/packed", "new/shard-000000.tar"))
      << "old shards are gone";
  EXPECT_EQ(Digest("mem://s/new"), Digest("mem://s/in"));
}

TEST_F(PackTest, DestinationApartFromTheSource) {
  Put("mem://s/in", "1.txt", "x");
  for (const char* to : {"mem://s/in", "mem://s/in/out", "mem://s"}) {
    EXPECT_EQ(Run("mem://s/in", to).status().code(), absl::StatusCode::kInvalidArgument) << to;
  }
  EXPECT_TRUE(Run("mem://s/in", "mem://s/in2").ok());
}

TEST_F(PackTest, SamplesThatTarWouldMakeOne) {
  Put("mem://s/in", "1.JPG", "x");
  Put("mem://s/in", "1.jpg", "y");
  const absl::Status status = Run("mem://s/in", "mem://s/out").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("'1'"));
}

TEST_F(PackTest, ObjectsOfOneSampleArePackedAsOne) {
  Put("mem://s/in", "1.jpg", "image");
  Put("mem://s/in", "1.mask.png", "mask");
  Put("mem://s/in", "1.txt", "text");
  Put("mem://s/in", "2.2024.jpg", "other");
  ASSERT_TRUE(Run("mem://s/in", "mem://s/out").ok());
  const auto packed = Open("mem://s/out");
  ASSERT_EQ(packed->index().size(), 2u);
  IndexedSample sample;
  ASSERT_TRUE(packed->index().Lookup(0, &sample).ok());
  EXPECT_EQ(testing::SampleText(*packed, sample), "1: jpg=image mask.png=mask txt=text");
  ASSERT_TRUE(packed->index().Lookup(1, &sample).ok());
  EXPECT_EQ(testing::SampleText(*packed, sample), "2.2024: jpg=other");
}

TEST_F(PackTest, SamplesWithoutAnImageAreCounted) {
  for (const char* key : {"a/1.jpg", "a/2.txt", "b/3.PNG", "b/4.json"}) Put("mem://s/in", key, "x");
  const auto report = Run("mem://s/in", "mem://s/out");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->without_image, 2u);
  EXPECT_EQ(report->first_without_image, "a/2");
}

TEST_F(PackTest, WhatAShardCannotHoldIsFoundBeforeAnythingIsWritten) {
  Put("mem://s/in", "1.jpg", "x");
  Put("mem://s/in", "2.jpg", "x");
  Put("mem://s/in", "2.JPG", "x");
  ASSERT_FALSE(Run("mem://s/in", "mem://s/out", 1).ok());
  EXPECT_THAT(Keys("mem://s/out"), ElementsAre());
}

TEST_F(PackTest, ShuffledHoldsTheSameSamples) {
  PutRawObjects("mem://s/raw", 7);
  PackOptions options;
  options.shard_bytes = 20'000;
  options.shuffle_seed = 1;
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/a", options).ok());
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/b", options).ok());
  options.shuffle_seed = 2;
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/c", options).ok());
  EXPECT_EQ(Shards("mem://s/a"), Shards("mem://s/b"));
  EXPECT_NE(Shards("mem://s/a"), Shards("mem://s/c"));
  const auto keys = [this](const std::string& uri) {
    std::vector<std::string> found;
    const auto dataset = Open(uri);
    for (uint64_t i = 0; i < dataset->index().size(); ++i) {
      IndexedSample sample;
      EXPECT_TRUE(dataset->index().Lookup(i, &sample).ok());
      found.push_back(sample.key);
    }
    return found;
  };
  const std::vector<std::string> raw = keys("mem://s/raw"), a = keys("mem://s/a");
  EXPECT_NE(raw, a);
  EXPECT_THAT(a, ::testing::UnorderedElementsAreArray(raw));
}

TEST_F(PackTest, ClassesByMap) {
  Put("mem://s/in", "cat/1.jpg", "meow");
  Put("mem://s/in", "dog/1.jpg", "wuff");
  PackOptions options;
  options.classes = ClassMap{{"cat", 281}, {"dog", 7}};
  ASSERT_TRUE(Run("mem://s/in", "mem://s/out", options).ok());
  const std::string shard = ReadKey("mem://s/out", "shard-000000.tar");
  constexpr size_t kHeaderOnKeys = 1024, kFirstHeader = 512;
  EXPECT_EQ(shard.substr(kHeaderOnKeys + kFirstHeader, 4), std::string("281\0", 4));
  options.classes = ClassMap{{"cat", 281}};
  EXPECT_EQ(Run("mem://s/in", "mem://s/out2", options).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Keys("mem://s/out2"), ElementsAre());
  const absl::Status tar = Run("mem://s/out", "mem://s/out3", options).status();
  EXPECT_EQ(tar.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(tar.ToString(), HasSubstr("class folders"));
}

// These are one damaged sample among small ones that are read together, one of several parts, one that is gone, one
// replaced.
TEST_F(PackTest, BadSamplesAreLeftOutAndReported) {
  PutRawObjects("mem://s/raw", 8);
  PackOptions options;
  options.shard_bytes = 20'000;
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/tar", options).ok());
  const auto good = Open("mem://s/tar");
  const auto raw = Open("mem://s/raw");
  const auto location = stores_.Open("mem://s/raw");
  std::vector<std::string> expected;
  for (const uint64_t number : {3, 6, 50}) {
    IndexedSample sample;
    IndexedObject object;
    ASSERT_TRUE(raw->index().Lookup(number, &sample).ok());
    ASSERT_TRUE(raw->index().LookupObject(sample.object, &object).ok());
    expected.push_back(sample.key);
    const ObjectInfo file = SplitJoined(object.key, object.etag)->front();
    const uint64_t size = file.size > 0 ? file.size : object.size;
    if (number == 6) {
      ASSERT_TRUE(DeleteBlocking(*location->store, location->Key(file.key)).ok());
    } else {
      Put("mem://s/raw", file.key, std::string(size, 'z'));
    }
  }
  EXPECT_FALSE(Pack(runtime_, stores_, *raw, "mem://s/out", options).ok());
  options.skip_bad = true;  // continues
  const auto report = Pack(runtime_, stores_, *raw, "mem://s/out", options);
  ASSERT_TRUE(report.ok()) << report.status();
  std::vector<std::string> skipped;
  for (const SkippedSample& sample : report->skipped) {
    skipped.push_back(sample.key);
    EXPECT_THAT(sample.why, HasSubstr("mem://s/raw/"));
  }
  EXPECT_EQ(skipped, expected);
  EXPECT_EQ(report->samples, 57u);
  const auto packed = Open("mem://s/out");
  EXPECT_EQ(packed->index().size(), 57u);
  EXPECT_EQ(packed->index().objects(), good->index().objects()) << "the plan does not depend on what is bad";
  // Shards without bad samples are those of the whole data set.
  uint64_t same = 0;
  for (uint64_t i = 0; i < good->index().objects(); ++i) {
    const std::string name = fmt::format("shard-{:06}.tar", i);
    same += ReadKey("mem://s/out", name) == ReadKey("mem://s/tar", name) ? 1 : 0;
  }
  EXPECT_GE(same, good->index().objects() - 3);
  EXPECT_LT(same, good->index().objects());
}

TEST_F(PackTest, DamagedSamplesOfShardsAreLeftOut) {
  PutRawObjects("mem://s/raw", 8);
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/tar", 1 << 20).ok());
  // This is an index that pins what was damaged since, as on a disk that rots.
  const auto location = stores_.Open("mem://rot");
  std::string shard = ReadKey("mem://s/tar", "shard-000000.tar");
  const auto tar = Open("mem://s/tar");
  IndexWriter writer(DataKind::kTar, *location->store->Write(std::string(kIndexName), {}));
  IndexedSample sample;
  for (uint64_t i = 0; i < tar->index().size(); ++i) {
    ASSERT_TRUE(tar->index().Lookup(i, &sample).ok());
    std::vector<NewSampleField> fields;
    for (const IndexedField& field : sample.fields)
      fields.push_back({.name = field.name, .offset = sample.span.offset + field.offset, .length = field.length});
    std::sort(fields.begin(), fields.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
    ASSERT_TRUE(writer.AddSample({.key = sample.key, .fields = fields, .crc32c = sample.crc32c, .label = {}}).ok());
    if ((i == 7 || sample.span.length > 150'000) && sample.span.length > 0) shard[sample.span.offset] ^= 1;
  }
  Put("mem://rot", "shard-000000.tar", shard);
  const ObjectInfo info = *HeadBlocking(*location->store, "shard-000000.tar");
  ASSERT_TRUE(writer.AddObject({.key = info.key, .size = info.size, .etag = info.etag}).ok());
  ASSERT_TRUE(writer.Finish().ok());
  for (const bool shuffled : {false, true}) {
    PackOptions options;
    options.shard_bytes = 30'000;
    options.skip_bad = true;
    if (shuffled) options.shuffle_seed = 1;
    const auto report = Run("mem://rot", fmt::format("mem://salvaged/{}", shuffled), options);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->skipped.size(), 2u);
    EXPECT_EQ(report->samples, 58u);
  }
}

// By the listing alone, in one pass. The job is the same if they were read in between.
TEST_F(PackTest, RawObjectsThatAreOnlyListed) {
  PutRawObjects("mem://s/raw", 9);
  const auto listed = Dataset::Open(runtime_, stores_, "mem://s/raw");
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ((*listed)->index().samples_without_crc(), 60u);
  PackOptions options;
  options.shard_bytes = 20'000;
  options.parts = 2;
  ASSERT_TRUE(Pack(runtime_, stores_, **listed, "mem://s/out", options).ok());
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/whole", 20'000).ok());
  OpenOptions read;
  read.raw.all = true;
  const auto indexed = Dataset::Open(runtime_, stores_, "mem://s/raw", read);
  ASSERT_TRUE(indexed.ok());
  EXPECT_EQ((*indexed)->index().samples_without_crc(), 0u);
  options.part = 1;
  const auto report = Pack(runtime_, stores_, **indexed, "mem://s/out", options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->complete);
  EXPECT_EQ(Shards("mem://s/out"), Shards("mem://s/whole"));
  EXPECT_EQ(Digest("mem://s/out"), Digest("mem://s/raw"));
}

TEST_F(PackTest, NothingButBadSamples) {
  Put("mem://s/in", "1.jpg", "x");
  const auto dataset = Open("mem://s/in");
  Put("mem://s/in", "1.jpg", "y");
  PackOptions options;
  options.skip_bad = true;
  const absl::Status status = Pack(runtime_, stores_, *dataset, "mem://s/out", options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("not a bad sample"));
}

TEST_F(PackTest, ChangedAndDamagedSourcesAreNoticed) {
  Put("mem://s/in", "1.jpg", "x");
  const auto dataset = Open("mem://s/in");
  Put("mem://s/in", "1.jpg", "y");
  const absl::Status changed = Pack(runtime_, stores_, *dataset, "mem://s/out", {}).status();
  EXPECT_EQ(changed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(changed.ToString(), HasSubstr("mem://s/in/1.jpg"));
}

// A data set whose index tells other checksums than the objects have: both the small way (checked by the store) and
// the large one.
TEST_F(PackTest, ChecksumsOfTheIndexAreVerified) {
  for (const size_t size : {1000, 200'000}) {
    const std::string uri = fmt::format("mem://bad{}", size);
    Put(uri, "1.jpg", std::string(size, 'x'));
    const auto location = stores_.Open(uri);
    const ObjectInfo info = *HeadBlocking(*location->store, "1.jpg");
    IndexWriter writer(DataKind::kRawObjects, *location->store->Write(std::string(kIndexName), {}));
    const NewSampleField field{.name = "jpg", .offset = 0, .length = size};
    ASSERT_TRUE(writer.AddSample({.key = "1", .fields = {&field, 1}, .crc32c = 12345, .label = {}}).ok());
    ASSERT_TRUE(writer.AddObject({.key = "1.jpg", .size = size, .etag = info.etag}).ok());
    ASSERT_TRUE(writer.Finish().ok());
    const absl::Status status = Run(uri, "mem://bad/out").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(status.ToString(), HasSubstr(uri));
    ASSERT_TRUE(DeleteBlocking(*stores_.Open("mem://bad")->store, "out/.millrace/incomplete").ok());
  }
}

TEST_F(PackTest, NoShardSize) {
  Put("mem://s/in", "1.jpg", "x");
  EXPECT_EQ(Run("mem://s/in", "mem://s/out", 0).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
