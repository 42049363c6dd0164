#include "pack/pack.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/crypto.h"
#include "base/rng.h"
#include "dataset/index_builder.h"
#include "dataset/sample_objects.h"
#include "shard/sample_name.h"
#include "shard/tar_writer.h"
#include "store/blocking.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PackTest : public ::testing::Test {
 protected:
  void Put(const std::string& uri, const std::string& key, std::string_view bytes) {
    const auto location = stores_.Open(uri);
    const auto put = PutBlocking(*location->store, location->Key(key), AsBytes(bytes));
    ASSERT_TRUE(put.ok()) << put.status();
  }
  std::unique_ptr<Dataset> Open(const std::string& uri) {
    auto dataset = Dataset::Open(runtime_, stores_, uri);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? *std::move(dataset) : nullptr;
  }
  absl::StatusOr<PackReport> Run(const std::string& from, const std::string& to, uint64_t shard_bytes = 256 << 20,
                                 bool force = false) {
    auto dataset = Dataset::Open(runtime_, stores_, from);
    if (!dataset.ok()) return dataset.status();
    PackOptions options;
    options.shard_bytes = shard_bytes;
    options.force = force;
    return Pack(runtime_, stores_, **dataset, to, options);
  }
  std::vector<std::string> Keys(const std::string& uri) {
    const auto location = stores_.Open(uri);
    std::vector<std::string> keys;
    const auto objects = ListAll(*location->store, location->Key(""));
    for (const ObjectInfo& object : *objects) keys.push_back(object.key);
    return keys;
  }
  std::string ReadKey(const std::string& uri, const std::string& key) {
    const auto location = stores_.Open(uri);
    const auto bytes = ReadAll(*location->store, location->Key(key), 1 << 30);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return bytes.ok() ? *bytes : "";
  }

  // The digest of the interface, of all samples in index order.
  std::string Digest(const std::string& uri) {
    const auto dataset = Open(uri);
    if (dataset == nullptr) return "";
    Uint128 sum;
    Xxh3Stream hash;
    IndexedSample sample;
    IndexedObject object;
    for (uint64_t i = 0; i < dataset->index().size(); ++i) {
      EXPECT_TRUE(dataset->index().Lookup(i, &sample).ok());
      EXPECT_TRUE(dataset->index().LookupObject(sample.object, &object).ok());
      const auto bytes = ReadAll(dataset->store(), dataset->StoreKey(object.key), 1 << 30);
      EXPECT_TRUE(bytes.ok());
      hash.Reset();
      hash.UpdateLe64(0);
      hash.UpdateLe64(i);
      const auto update = [&hash](std::string_view text) {
        hash.UpdateLe64(text.size());
        hash.Update(AsBytes(text));
      };
      update(sample.key);
      for (const IndexedField& field : sample.fields) {
        update(field.name);
        update(field.is_inline ? field.inline_text
                               : std::string_view(*bytes).substr(sample.span.offset + field.offset, field.length));
      }
      sum += hash.Digest();
    }
    return sum.Hex();
  }

  void PutRawObjects(const std::string& uri, uint64_t seed) {
    Rng rng(seed);
    for (int i = 0; i < 60; ++i) {
      std::string data(i == 20 ? 0 : i == 30 ? 200'000 : rng.Below(3000), '\0');
      for (char& c : data) c = static_cast<char>(rng.Next());
      const char* const folders[] = {"", "a-b/", "a/", "a.b/x/", "Z/"};
      const std::string name = i == 40 ? std::string(120, 'n') + "/" + std::string(180, 'm') : fmt::format("{:03}", i);
      Put(uri, fmt::format("{}{}.{}", folders[i % 5], name, i % 7 == 0 ? "JPG" : i % 3 == 0 ? "seg.png" : "jpg"), data);
    }
  }

  Runtime runtime_{
      {.io_threads = 1, .cpu_threads = 1, .memory_bytes = 1 << 20}};  // pieces of 64 KiB: one sample is larger
  Stores stores_{runtime_};
};

TEST_F(PackTest, SmallExample) {
  Put("mem://s/in", "cat/1.jpg", "meow");
  Put("mem://s/in", "bird/2.JPG", "peep");
  const auto report = Run("mem://s/in", "mem://s/out");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 2u);
  EXPECT_EQ(report->shards, 1u);
  std::string expected;
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
  EXPECT_THAT(Keys("mem://s/out"), ElementsAre("out/.millrace/index", "out/shard-000000.tar"));
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
  // Each sample takes 512 + 512 bytes without a class.
  for (int i = 0; i < 4; ++i) Put("mem://s/in", fmt::format("{}.txt", i), "x");
  ASSERT_TRUE(Run("mem://s/in", "mem://s/a", 2 * 1024 + 1024).ok());
  EXPECT_THAT(Keys("mem://s/a"), ElementsAre("a/.millrace/index", "a/shard-000000.tar", "a/shard-000001.tar"));
  ASSERT_TRUE(Run("mem://s/in", "mem://s/b", 2 * 1024 + 1023).ok());
  EXPECT_EQ(Keys("mem://s/b").size(), 5u);
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
  EXPECT_THAT(Keys("mem://s/new"), ElementsAre("new/.millrace/index", "new/shard-000000.tar")) << "old shards are gone";
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
  Put("mem://s/in", "1.jpg", "x");
  Put("mem://s/in", "1.json", "{}");
  const absl::Status status = Run("mem://s/in", "mem://s/out").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("'1'"));
}

TEST_F(PackTest, SamplesWithoutAnImageAreCounted) {
  for (const char* key : {"a/1.jpg", "a/2.txt", "b/3.PNG", "b/4.json"}) Put("mem://s/in", key, "x");
  const auto report = Run("mem://s/in", "mem://s/out");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->without_image, 2u);
  EXPECT_EQ(report->first_without_image, "a/2");
}

TEST_F(PackTest, AFailureLeavesNoDataSet) {
  Put("mem://s/in", "1.jpg", "x");
  Put("mem://s/in", "2.jpg", "x");
  Put("mem://s/in", "2.json", "x");
  ASSERT_FALSE(Run("mem://s/in", "mem://s/out", 1).ok());
  EXPECT_THAT(Keys("mem://s/out"), ElementsAre("out/.millrace/incomplete", "out/shard-000000.tar"));
  EXPECT_EQ(Dataset::Open(runtime_, stores_, "mem://s/out").status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(DeleteBlocking(*stores_.Open("mem://s")->store, "in/2.json").ok());
  OpenOptions rebuild;
  rebuild.rebuild = true;
  ASSERT_TRUE(Dataset::Open(runtime_, stores_, "mem://s/in", rebuild).ok());
  ASSERT_TRUE(Run("mem://s/in", "mem://s/out", 1, true).ok());
  EXPECT_EQ(Digest("mem://s/out"), Digest("mem://s/in"));
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
