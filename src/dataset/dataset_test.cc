#include "dataset/dataset.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/crypto.h"
#include "base/rng.h"
#include "dataset/index_builder.h"
#include "dataset/sample_objects.h"
#include "dataset/testing/data_place.h"
#include "dataset/testing/index_model.h"
#include "shard/tar_writer.h"
#include "store/blocking.h"
#include "transfer/file_lock.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

using Members = std::vector<std::pair<std::string, std::string>>;

std::string Tar(const Members& members) {
  std::string out;
  for (const auto& [name, data] : members) {
    EXPECT_TRUE(AppendTarHeader(out, name, data.size()).ok());
    out += data;
    AppendTarPadding(out, data.size());
  }
  AppendTarEnd(out);
  return out;
}

class DatasetTest : public ::testing::TestWithParam<std::string>, protected testing::DataPlace {
 protected:
  DatasetTest() : DataPlace(GetParam()), uri_(Uri("set")) {}

  void Put(const std::string& key, std::string_view bytes) { PutAt("set/" + key, bytes); }
  void Delete(const std::string& key) { DeleteAt("set/" + key); }
  bool Exists(const std::string& key) { return ExistsAt("set/" + key); }
  absl::StatusOr<std::unique_ptr<Dataset>> Open() { return Dataset::Open(runtime_, stores_, uri_, options_); }
  std::vector<std::string> OpenAndRead() {
    const auto dataset = Open();
    return dataset.ok() ? Read(**dataset) : std::vector<std::string>{dataset.status().ToString()};
  }
  void ExpectError(absl::StatusCode code, std::initializer_list<std::string> texts) {
    const absl::Status status = Open().status();
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& text : texts) EXPECT_THAT(status.ToString(), HasSubstr(text));
  }
  uint64_t BytesRead() {
    const auto location = stores_.Open(uri_);
    return location->store->counters().bytes_read;
  }
  // Expects that no data were read since `before`, except for the index itself if it was not made in memory.
  void ExpectNoDataRead(uint64_t before, const Dataset& dataset) {
    EXPECT_THAT(BytesRead() - before, ::testing::AnyOf(0u, dataset.index().file_bytes()));
  }

  std::string uri_;
};

INSTANTIATE_TEST_SUITE_P(Stores, DatasetTest, ::testing::Values("mem", "file"), [](const auto& i) { return i.param; });

TEST_P(DatasetTest, ClassesInTheOrderOfAnotherDataSet) {
  for (const char* key : {"dog/1.jpg", "cat/2.jpg", "dog/3.jpg", "ant/4.jpg"}) Put(key, "x");
  ASSERT_THAT(OpenAndRead(),
              ElementsAre("ant/4: cls=0 jpg=x", "cat/2: cls=1 jpg=x", "dog/1: cls=2 jpg=x", "dog/3: cls=2 jpg=x"));
  const uint64_t fingerprint = (*Open())->index().fingerprint();
  options_.classes = {"bee", "dog", "cat", "ant"};
  EXPECT_THAT(OpenAndRead(),
              ElementsAre("ant/4: cls=3 jpg=x", "cat/2: cls=2 jpg=x", "dog/1: cls=1 jpg=x", "dog/3: cls=1 jpg=x"));
  const auto dataset = Open();
  EXPECT_EQ((*dataset)->index().class_names(), options_.classes);
  EXPECT_EQ((*dataset)->classes(), options_.classes);
  EXPECT_EQ((*dataset)->index().class_counts()[0].samples, 0u);
  EXPECT_EQ((*dataset)->index().class_counts()[1].samples, 2u);
  EXPECT_EQ((*dataset)->index().fingerprint(), fingerprint);
  options_.classes = {"ant", "cat"};
  ExpectError(absl::StatusCode::kInvalidArgument, {"'dog', with 2 samples", "the 2 names"});
  options_.classes = {"ant", "cat", "dog", "cat"};
  ExpectError(absl::StatusCode::kInvalidArgument, {"'cat' is given twice"});
}

TEST_P(DatasetTest, AnIndexIsRequiredOrKeptInTheCache) {
  Put("1.jpg", "x");
  options_.index = IndexUse::kRequire;
  ExpectError(absl::StatusCode::kNotFound, {"there is no index", "millrace index"});
  options_.index = IndexUse::kCache;
  EXPECT_TRUE((*Open())->built());
  EXPECT_FALSE(Exists(".millrace/index"));
  options_.index = IndexUse::kRequire;
  EXPECT_FALSE((*Open())->built());
  options_.index = IndexUse::kBeside;
  options_.rebuild = true;
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(Exists(".millrace/index"));
}

TEST_P(DatasetTest, TarShardsInOrderOfKeysAndOffsets) {
  Put("b.tar", Tar({{"3.jpg", "three"}, {"3.cls", "1"}}));
  Put("a.tar", Tar({{"1.txt", "x"}, {"1.jpg", "one"}, {"2.jpg", "two"}}));
  Put("empty.tar", Tar({}));
  EXPECT_THAT(OpenAndRead(), ElementsAre("1: jpg=one txt=x", "2: jpg=two", "3: cls=1 jpg=three"));
  const auto dataset = Open();
  EXPECT_EQ((*dataset)->index().kind(), DataKind::kTar);
  EXPECT_EQ((*dataset)->index().objects(), 3u);
  EXPECT_TRUE((*dataset)->index().class_names().empty());
  ASSERT_EQ((*dataset)->index().class_counts().size(), 1u);
  EXPECT_EQ((*dataset)->index().class_counts()[0].name, "1");
}

TEST_P(DatasetTest, RawObjectsWithClassFolders) {
  Put("a-b/x.JPG", "1");  // listed before a/, but a folder after it
  Put("a/y.tar.jpg", "2");
  Put("a/deep/z.png", "");
  Put("top.jpg", "4");
  EXPECT_THAT(OpenAndRead(),
              ElementsAre("a-b/x: cls=1 jpg=1", "a/deep/z: cls=0 png=", "a/y.tar: cls=0 jpg=2", "top: jpg=4"));
  const auto dataset = Open();
  EXPECT_THAT((*dataset)->index().class_names(), ElementsAre("a", "a-b"));
  EXPECT_THAT((*dataset)->index().field_names(), ElementsAre("cls", "jpg", "png"));
}

TEST_P(DatasetTest, RawObjectsOfOneSample) {
  Put("cat/1.jpg", "image");
  Put("cat/1.json", "{}");
  Put("cat/1.mask.png", "mask");
  Put("cat/1.txt", "");
  Put("cat/2.2024.jpg", "two");
  EXPECT_THAT(OpenAndRead(),
              ElementsAre("cat/1: cls=0 jpg=image json={} mask.png=mask txt=", "cat/2.2024: cls=0 jpg=two"));
  const auto dataset = Open();
  EXPECT_EQ((*dataset)->index().objects(), 2u);
  Put("cat/1.json", "[]");
  const absl::Status changed = Open().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(changed)) << changed;
  EXPECT_THAT(changed.ToString(), HasSubstr("cat/1.{jpg,json,mask.png,txt}"));
}

TEST_P(DatasetTest, ClassesOfRawObjectsInFiles) {
  Put("1.cls", "7\n");
  Put("1.jpg", "image");
  Put("2.cls", "10");
  Put("2.jpg", "other");
  const uint64_t before = BytesRead();
  const auto listed = Open();
  ExpectNoDataRead(before, **listed);
  EXPECT_THAT(Read(**listed), ElementsAre("1: cls=7\n jpg=image", "2: cls=10 jpg=other"));
  EXPECT_TRUE((*listed)->index().classes_unread());
  EXPECT_FALSE((*listed)->index().has_labels());
  options_.raw.classes = true;
  EXPECT_THAT(OpenAndRead(), ElementsAre("1: cls=7 jpg=image", "2: cls=10 jpg=other"));
  options_.raw.classes = false;
  const auto dataset = Open();
  EXPECT_FALSE((*dataset)->built()) << "the index that has them serves everybody";
  EXPECT_FALSE((*dataset)->index().classes_unread());
  ASSERT_EQ((*dataset)->index().class_counts().size(), 2u);
  EXPECT_EQ((*dataset)->index().class_counts()[1].name, "10");
  EXPECT_EQ((*dataset)->index().fingerprint(), (*listed)->index().fingerprint());
  EXPECT_EQ((*dataset)->index().samples_without_crc(), 2u);
  // A new sample gets its class too, when the index is brought up to date.
  Put("3.cls", "7");
  Put("3.jpg", "third");
  options_.rebuild = true;
  const auto updated = Open();
  EXPECT_EQ((*updated)->built()->reused_objects, 2u);
  EXPECT_EQ((*updated)->index().class_counts()[0].samples, 2u);
}

TEST_P(DatasetTest, ClassesInFilesAreNumbersOfAll) {
  options_.raw.classes = true;
  for (const char* text : {"cat", ""}) {
    Put("1.cls", text);
    Put("1.jpg", "image");
    EXPECT_THAT(Open().status().ToString(), HasSubstr("1.cls holds no whole number")) << text;
  }
  Put("1.cls", "7");
  Put("dog/2.jpg", "image");
  for (const bool read : {true, false}) {
    options_.raw.classes = read;
    EXPECT_THAT(Open().status().ToString(), HasSubstr("that of 'dog/2' its folder"));
  }
}

TEST_P(DatasetTest, RawObjectsAreListedAndNotRead) {
  for (int i = 0; i < 300; ++i) Put(fmt::format("{}/{:03}.jpg", i % 3, i), fmt::format("image {}", i));
  const uint64_t before = BytesRead();
  const auto listed = Open();
  ASSERT_TRUE(listed.ok()) << listed.status();
  ExpectNoDataRead(before, **listed);
  EXPECT_EQ((*listed)->index().size(), 300u);
  EXPECT_EQ((*listed)->index().samples_without_crc(), 300u);
  EXPECT_THAT((*listed)->index().class_names(), ElementsAre("0", "1", "2"));
  EXPECT_TRUE(Exists(".millrace/index"));
  EXPECT_FALSE((*Open())->built());
  EXPECT_EQ(Read(**listed)[0], "0/000: cls=0 jpg=image 0");

  // With checksums all objects are read, once; an index that has them serves all other options, too.
  options_.raw.all = true;
  const auto read = Open();
  ASSERT_TRUE((*read)->built());
  EXPECT_EQ((*read)->built()->reused_objects, 0u);
  EXPECT_EQ((*read)->index().samples_without_crc(), 0u);
  EXPECT_EQ((*read)->index().fingerprint(), (*listed)->index().fingerprint());
  EXPECT_EQ(Read(**read), Read(**listed));
  EXPECT_FALSE((*Open())->built());
  options_.raw.all = false;
  EXPECT_EQ((*Open())->index().samples_without_crc(), 0u);
  // New objects are only listed, until they are read as well.
  Put("1/new.jpg", "new");
  options_.rebuild = true;
  EXPECT_EQ((*Open())->index().samples_without_crc(), 1u);
  options_.raw.all = true;
  EXPECT_EQ((*Open())->built()->reused_objects, 300u);
  EXPECT_EQ((*Open())->index().samples_without_crc(), 0u);
  options_.reuse = options_.raw.all = false;
  EXPECT_EQ((*Open())->index().samples_without_crc(), 301u);
}

TEST_P(DatasetTest, WhatIsNoSampleIsPassedOver) {
  Put("LICENSE", "text");
  Put(".hidden/x.jpg", "h");
  Put("a/.x.jpg", "h");
  Put("__class__/x.jpg", "m");
  Put("a/x.jpg", "1");
  if (GetParam() == "mem") Put("a/", "");
  EXPECT_THAT(OpenAndRead(), ElementsAre("__class__/x: cls=0 jpg=m", "a/x: cls=1 jpg=1"));
}

TEST_P(DatasetTest, TheIndexIsStoredBesideTheDataAndUsed) {
  Put("a.tar", Tar({{"1.jpg", std::string(100'000, 'x')}}));
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(Exists(".millrace/index"));
  const uint64_t before = BytesRead();
  const auto again = Open();
  ASSERT_TRUE(again.ok());
  EXPECT_LT(BytesRead() - before, 10'000u) << "the data were read again";
  EXPECT_THAT((*again)->index_uri(), HasSubstr(".millrace/index"));
  EXPECT_TRUE(fs::is_empty(root_ / "cache"));
}

TEST_P(DatasetTest, TheIndexDoesNotDependOnTheReads) {
  Rng rng(HashKey(20, {1}));
  for (int shard = 0; shard < 3; ++shard) {
    Members members;
    for (int i = 0; i < 50; ++i) {
      std::string data(rng.Below(i == 7 ? 300'000 : 5'000), '\0');
      for (char& c : data) c = static_cast<char>(rng.Next());
      members.emplace_back(fmt::format("{}/{}.jpg", shard, i), data);
      members.emplace_back(fmt::format("{}/{}.cls", shard, i), fmt::format("{}", i % 5));
    }
    Put(fmt::format("{}.tar", shard), Tar(members));
  }
  const auto location = stores_.Open(uri_);
  std::vector<std::string> indexes;
  for (const uint64_t memory : {1 << 20, 5 << 20, 256 << 20}) {
    Runtime runtime({.io_threads = 1, .cpu_threads = 1, .memory_bytes = memory});
    std::string bytes;
    const auto built = BuildIndex(runtime, *location, [&] { return std::make_unique<StringWriter>(&bytes); }, {});
    ASSERT_TRUE(built.ok()) << built.status();
    EXPECT_EQ(built->summary.samples, 150u);
    EXPECT_EQ(built->summary.index_bytes, bytes.size());
    indexes.push_back(bytes);
  }
  EXPECT_EQ(indexes[0], indexes[1]);
  EXPECT_EQ(indexes[0], indexes[2]);
  // The index gives the same, one by one, as the reader makes of it.
  const auto index = Index::FromBytes(indexes[0]);
  const auto dataset = Open();
  EXPECT_EQ(testing::Describe(**index), testing::Describe((*dataset)->index()));
  EXPECT_EQ(Read(**dataset).size(), 150u);
}

TEST_P(DatasetTest, ProgressHasATotal) {
  Put("a.tar", Tar({{"1.jpg", "x"}}));
  uint64_t seen_done = 0, seen_total = 0;
  options_.progress = [&](uint64_t done, uint64_t total) { seen_done = done, seen_total = total; };
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(seen_done, 2048u);
  EXPECT_EQ(seen_total, 2048u);
}

TEST_P(DatasetTest, TheLastProgressIsTheEnd) {
  for (int i = 0; i < 50; ++i) Put(fmt::format("{:02}.tar", i), Tar({{"1.jpg", "x"}}));
  uint64_t seen_done = 0;
  options_.progress = [&](uint64_t done, uint64_t) { seen_done = done; };
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(seen_done, 50u * 2048);
}

TEST_P(DatasetTest, AStopEndsTheBuildingAndLeavesNothing) {
  for (int i = 0; i < 300; ++i) Put(fmt::format("{:03}.tar", i), Tar({{"1.jpg", "x"}}));  // more than is read ahead
  std::stop_source stop;
  options_.stop = stop.get_token();
  options_.progress = [&](uint64_t, uint64_t) { stop.request_stop(); };
  ExpectError(absl::StatusCode::kCancelled, {"data/set", "interrupted", "nothing was changed", "again"});
  EXPECT_FALSE(Exists(".millrace/index"));
  options_.stop = {};
  EXPECT_TRUE(Open().ok());
}

TEST_P(DatasetTest, NoSamples) {
  if (GetParam() == "file") {
    ExpectError(absl::StatusCode::kNotFound, {(root_ / "data/set").string()});
    EXPECT_FALSE(fs::exists(root_ / "data")) << "a wrong URI must leave no trace";
    fs::create_directories(root_ / "data/set");
  }
  ExpectError(absl::StatusCode::kNotFound, {"no samples under", "data/set"});
  Put("README", "text");
  ExpectError(absl::StatusCode::kNotFound, {"no samples under", "*.tar"});
  Put("empty.tar", Tar({}));
  ExpectError(absl::StatusCode::kNotFound, {"no samples under", "hold no files"});
  EXPECT_FALSE(Exists(".millrace/index"));
}

TEST_P(DatasetTest, MixturesAreRefused) {
  Put("a.tar", Tar({{"1.jpg", "x"}}));
  for (int i = 0; i < 9; ++i) Put(fmt::format("b{}.jpg", i), "x");
  ExpectError(absl::StatusCode::kInvalidArgument,
              {"both tar shards and other files", "data/set/a.tar", "data/set/b0.jpg"});
  for (int i = 0; i < 9; ++i) Delete(fmt::format("b{}.jpg", i));
  Put("b.tar.gz", "x");
  ExpectError(absl::StatusCode::kInvalidArgument, {"b.tar.gz", "compressed"});
  Delete("b.tar.gz");
  Put("train", "x");  // not the shard in the file behind it
  Put("train.tgz", "x");
  ExpectError(absl::StatusCode::kInvalidArgument, {"train.tgz", "compressed"});
}

TEST_P(DatasetTest, BrokenShardsAreNamed) {
  const std::string whole = Tar({{"1.jpg", std::string(2000, 'x')}, {"2.jpg", "two"}});
  Put("a.tar", Tar({{"0.jpg", "x"}}));
  Put("b.tar", whole.substr(0, 1500));
  ExpectError(absl::StatusCode::kDataLoss,
              {"data/set/b.tar: offset 1500: truncated tar archive", "'1.jpg' has 2000 bytes"});
  std::string corrupt = whole;
  corrupt[2560 + 3] ^= 1;
  Put("b.tar", corrupt);
  ExpectError(absl::StatusCode::kDataLoss, {"data/set/b.tar: offset 2560: corrupt tar header"});
  Put("b.tar", Tar({{"1.jpg", "x"}, {"1.jpg", "y"}}));
  ExpectError(absl::StatusCode::kDataLoss, {"b.tar", "'jpg' twice"});
  Put("b.tar", "");
  ExpectError(absl::StatusCode::kDataLoss, {"b.tar", "truncated"});
  EXPECT_FALSE(Exists(".millrace/index"));
  Put("b.tar", whole);
  EXPECT_THAT(OpenAndRead(), ElementsAre("0: jpg=x", "1: jpg=" + std::string(2000, 'x'), "2: jpg=two"));
}

TEST_P(DatasetTest, AnIndexThatDoesNotMatchIsRefused) {
  const std::string tar = Tar({{"1.jpg", "x"}});
  for (const char* name : {"a.tar", "b.tar", "d.tar"}) Put(name, tar);
  ASSERT_TRUE(Open().ok());
  Put("c.tar", tar);
  ExpectError(absl::StatusCode::kFailedPrecondition, {"data/set/c.tar: it was added", "millrace index"});
  Delete("c.tar");
  EXPECT_TRUE(Open().ok());
  Put("e.tar", tar);
  ExpectError(absl::StatusCode::kFailedPrecondition, {"data/set/e.tar: it was added"});
  Delete("e.tar");
  Delete("d.tar");
  ExpectError(absl::StatusCode::kFailedPrecondition, {"data/set/d.tar: it is gone"});
  Put("d.tar", Tar({{"1.jpg", "x"}, {"2.jpg", "x"}}));
  ExpectError(absl::StatusCode::kFailedPrecondition, {"data/set/d.tar: its size was 2048 and is 3072"});
  Put("d.tar", Tar({{"1.jpg", "y"}}));
  ExpectError(absl::StatusCode::kFailedPrecondition, {"data/set/d.tar: it was replaced (ETag "});
  options_.rebuild = true;
  EXPECT_THAT(OpenAndRead(), ElementsAre("1: jpg=x", "1: jpg=x", "1: jpg=y"));
  options_.rebuild = false;
  EXPECT_TRUE(Open().ok());
}

TEST_P(DatasetTest, TheIndexOfACopyIsBuiltAnew) {
  for (const char* name : {"a.tar", "b.tar"}) Put(name, Tar({{"1.jpg", "x"}}));
  ASSERT_TRUE(Open().ok());
  for (const char* name : {"a.tar", "b.tar"}) Put(name, Tar({{"1.jpg", "y"}}));  // as a copy has: other ETags
  EXPECT_THAT(OpenAndRead(), ElementsAre("1: jpg=y", "1: jpg=y"));
  EXPECT_THAT(OpenAndRead(), ElementsAre("1: jpg=y", "1: jpg=y"));
}

TEST_P(DatasetTest, ADamagedIndexIsRefusedAndRebuilt) {
  Put("a.tar", Tar({{"1.jpg", "x"}}));
  Put(".millrace/index", "no index at all");
  ExpectError(absl::StatusCode::kDataLoss, {".millrace/index", "not a Millrace index", "millrace index"});
  Put(".millrace/index", "");
  ExpectError(absl::StatusCode::kDataLoss, {".millrace/index", "millrace index"});
  options_.rebuild = true;
  EXPECT_TRUE(Open().ok());
  options_.rebuild = false;
  EXPECT_TRUE(Open().ok());
}

TEST_P(DatasetTest, ARebuildReadsOnlyWhatHasChanged) {
  for (const char* name : {"a.tar", "b.tar", "c.tar"}) Put(name, Tar({{fmt::format("{}.jpg", name), "x"}}));
  const auto first = Open();
  ASSERT_TRUE((*first)->built());
  EXPECT_EQ((*first)->built()->reused_objects, 0u);
  EXPECT_FALSE((*Open())->built()) << "it is there";
  Put("b.tar", Tar({{"new.jpg", "y"}}));
  options_.rebuild = true;
  const auto second = Open();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->built()->reused_objects, 2u);
  EXPECT_THAT(Read(**second), ElementsAre("a: tar.jpg=x", "new: jpg=y", "c: tar.jpg=x"));
  options_.reuse = false;
  EXPECT_EQ((*Open())->built()->reused_objects, 0u);
}

TEST_P(DatasetTest, AnIndexThatIsNotSoundIsNotReused) {
  for (const char* name : {"a.tar", "b.tar"}) Put(name, Tar({{"1.jpg", "x"}}));
  ASSERT_TRUE(Open().ok());
  const Location location = *stores_.Open(uri_);
  const std::string sound = *ReadAll(*location.store, location.Key(std::string(kIndexName)), 1 << 20);
  options_.rebuild = true;
  // The damage is in a block, which opening does not read.
  std::string bad = sound;
  bad[30] = static_cast<char>(bad[30] ^ 1);
  Put(std::string(kIndexName), bad);
  EXPECT_EQ((*Open())->built()->reused_objects, 0u);
  EXPECT_EQ(*ReadAll(*location.store, location.Key(std::string(kIndexName)), 1 << 20), sound);
  EXPECT_EQ((*Open())->built()->reused_objects, 2u);
}

TEST_P(DatasetTest, ADataSetThatIsBeingPackedIsRefused) {
  Put("a.tar", Tar({{"1.jpg", "x"}}));
  ASSERT_TRUE(Open().ok());
  Put(std::string(kIncompleteName), "");
  ExpectError(absl::StatusCode::kFailedPrecondition, {"data/set", "interrupted", "millrace pack", "again"});
  options_.rebuild = true;
  ExpectError(absl::StatusCode::kFailedPrecondition, {"interrupted"});
}

TEST_P(DatasetTest, AClassFolderAndAClassField) {
  Put("a/1.cls", "3");
  ExpectError(absl::StatusCode::kInvalidArgument, {"a/1", "'cls' twice"});
}

class LocalDatasetTest : public DatasetTest {};
INSTANTIATE_TEST_SUITE_P(Stores, LocalDatasetTest, ::testing::Values("file"));

// Tests may run as root, who has all permissions. A file in the place of the folder is an obstacle also for root.
TEST_P(LocalDatasetTest, CacheFolderWhereTheDataCannotBeWrittenTo) {
  Put("a.tar", Tar({{"1.jpg", "x"}}));
  Put(".millrace", "in the way");
  const auto first = Open();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT((*first)->index_uri(), HasSubstr((root_ / "cache").string()));
  const uint64_t before = BytesRead();
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(BytesRead(), before) << "built again";

  Put("a.tar", Tar({{"1.jpg", "y"}}));
  ExpectError(absl::StatusCode::kFailedPrecondition, {"a.tar: it was replaced"});
  options_.rebuild = true;
  EXPECT_THAT(OpenAndRead(), ElementsAre("1: jpg=y"));
}

TEST_P(LocalDatasetTest, OfSeveralThatOpenANewDataSetOneBuilds) {
  for (int i = 0; i < 100; ++i) Put(fmt::format("{:02}.tar", i), Tar({{"1.jpg", std::string(50'000, 'x')}}));
  std::atomic<int> built{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      OpenOptions options = options_;
      bool builds = false;
      options.progress = [&](uint64_t, uint64_t) { builds = true; };
      const auto dataset = Dataset::Open(runtime_, stores_, uri_, options);
      EXPECT_TRUE(dataset.ok()) << dataset.status();
      built += builds;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(built, 1);
}

TEST_P(LocalDatasetTest, AStopEndsTheWaitForTheOneThatBuilds) {
  Put("a.tar", Tar({{"1.jpg", "x"}}));
  const auto held = FileLock::OfFolder(uri_, {});
  std::stop_source stop;
  options_.stop = stop.get_token();
  std::jthread stopping([&] { stop.request_stop(); });
  ExpectError(absl::StatusCode::kCancelled, {"data/set", "another process"});
}

TEST_P(LocalDatasetTest, ACachedIndexThatMatchesBeatsOneBesideTheDataThatDoesNot) {
  Put("a.tar", Tar({{"1.jpg", "x"}}));
  ASSERT_TRUE(Open().ok());
  Put("a.tar", Tar({{"1.jpg", "y"}}));
  fs::rename(root_ / "data/set/.millrace", root_ / "data/set/.away");
  Put(".millrace", "in the way");
  ASSERT_TRUE(Open().ok());  // goes to the cache
  fs::remove(root_ / "data/set/.millrace");
  fs::rename(root_ / "data/set/.away", root_ / "data/set/.millrace");
  EXPECT_THAT(OpenAndRead(), ElementsAre("1: jpg=y"));
}

TEST_P(LocalDatasetTest, NoPlaceForTheIndex) {
  Put("a.tar", Tar({{"1.jpg", "x"}}));
  Put(".millrace", "in the way");
  std::ofstream(root_ / "file") << "";
  options_.cache_folder = (root_ / "file/cache").string();
  const absl::Status status = Open().status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.ToString(), HasSubstr("MILLRACE_CACHE"));
}

}  // namespace
}  // namespace millrace
