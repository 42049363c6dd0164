#include "dataset/skipped_objects.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "dataset/testing/data_place.h"
#include "shard/tar_writer.h"

namespace millrace {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class SkippedObjectsTest : public ::testing::TestWithParam<std::string>, protected testing::DataPlace {
 protected:
  SkippedObjectsTest() : DataPlace(GetParam()) {}

  static std::vector<std::string> Names(const SkippedObjects& skipped) {
    std::vector<std::string> names;
    for (const SkippedObject& object : skipped.named()) names.push_back(object.key);
    EXPECT_EQ(names.size(), skipped.count());
    return names;
  }

  // Returns the names that are reported while the index is built, and later.
  std::vector<std::string> SkippedOf(const std::string& name) {
    const auto dataset = OpenAt(name);
    if (!dataset.ok()) return {dataset.status().ToString()};
    const auto listed = ListSkipped(**dataset);
    if (!listed.ok()) return {listed.status().ToString()};
    if ((*dataset)->built()) {
      EXPECT_EQ(Names((*dataset)->built()->skipped), Names(*listed));
    }
    return Names(*listed);
  }

  static std::string OneSample() {
    std::string tar;
    EXPECT_TRUE(AppendTarHeader(tar, "1.jpg", 1).ok());
    tar += "x";
    AppendTarPadding(tar, 1);
    AppendTarEnd(tar);
    return tar;
  }
};

INSTANTIATE_TEST_SUITE_P(Stores, SkippedObjectsTest, ::testing::Values("mem", "file"),
                         [](const auto& i) { return i.param; });

TEST_P(SkippedObjectsTest, OfRawObjects) {
  for (const char* key :
       {"raw/__background__/0.jpg", "raw/cat/0.jpg", "raw/dog/0.jpg", "raw/README.md", "raw/Thumbs.db",
        "raw/cat/noextension", "raw/.cache/1.jpg", "raw/cat/.DS_Store", "raw/__pycache__/x.pyc"}) {
    PutAt(key, "x");
  }
  EXPECT_THAT(SkippedOf("raw"), UnorderedElementsAre("README.md", "Thumbs.db", "cat/noextension", ".cache/1.jpg",
                                                     "cat/.DS_Store", "__pycache__/x.pyc"));
  const auto dataset = OpenAt("raw");
  EXPECT_THAT((*dataset)->index().class_names(), ElementsAre("__background__", "cat", "dog"));
}

TEST_P(SkippedObjectsTest, OfShards) {
  for (const char* key : {"set/a.tar", "set/b.tar", "set/_temporary/0/b.tar"}) PutAt(key, OneSample());
  for (const char* key : {"set/_SUCCESS", "set/a.tar.crc", "set/a.tar.idx", "set/b.tar.gz", "set/z/README.md"})
    PutAt(key, "x");
  EXPECT_THAT(SkippedOf("set"), UnorderedElementsAre("_SUCCESS", "_temporary/0/b.tar", "a.tar.crc", "a.tar.idx",
                                                     "b.tar.gz", "z/README.md"));
  EXPECT_EQ((*OpenAt("set"))->index().size(), 2u);
  EXPECT_THAT(SkippedOf("set/a.tar"), IsEmpty()) << "what lies beside a single shard has no part in it";
}

TEST_P(SkippedObjectsTest, ReasonsAreGrouped) {
  SkippedObjects skipped;
  for (int i = 0; i < 5; ++i) skipped.Add(fmt::format("{}", i), i % 2 == 0 ? "even" : "odd");
  const auto groups = skipped.Grouped(2);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].why, "even");
  EXPECT_EQ(groups[0].count, 3u);
  EXPECT_THAT(groups[0].first, ElementsAre("0", "2"));
}

TEST_P(SkippedObjectsTest, WarningsOfANewIndex) {
  for (const char* key : {"set/0.tar", "set/1.tar", "set/old/1.tar"}) PutAt(key, OneSample());
  const auto dataset = OpenAt("set");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->built()->warnings, Contains(HasSubstr("'old/'")));
  EXPECT_THAT((*dataset)->built()->warnings,
              Contains(HasSubstr("2 samples have the key of a sample before: '1' in 0.tar and 1.tar")));
  for (int i = 0; i < 17; ++i) PutAt(fmt::format("many/{}.json", i), "{}");
  PutAt("many/shard.tar", OneSample());
  EXPECT_THAT((*OpenAt("many"))->built()->warnings, ElementsAre(HasSubstr("17 files lie beside 1 shard, such as")));
  for (const char* key : {"few/0.tar", "few/1.tar"}) PutAt(key, OneSample());
  for (const char* key : {"few/0.parquet", "few/0_stats.json", "few/1.parquet", "few/1_stats.json"}) PutAt(key, "x");
  EXPECT_THAT((*OpenAt("few"))->built()->warnings, Not(Contains(HasSubstr("lie beside"))));
  for (const char* key : {"other/0.avif", "other/1.jpg"}) PutAt(key, "x");
  EXPECT_THAT((*OpenAt("other"))->built()->warnings,
              ElementsAre(HasSubstr("the field 'avif' holds images of a format")));
  for (const char* key : {"raw/train/0.jpg", "raw/val/0.jpg"}) PutAt(key, "x");
  EXPECT_THAT((*OpenAt("raw"))->built()->warnings, ElementsAre(HasSubstr("the classes are train, val")));
}

TEST(SkippedFiles, LinksThatLeadNowhere) {
  class Place : public testing::DataPlace {
   public:
    Place() : DataPlace("file") {}
    std::vector<SkippedObject> Skipped() {
      PutAt("raw/1.jpg", "x");
      std::filesystem::create_symlink("nowhere", base_ + "/raw/2.jpg");
      const auto dataset = OpenAt("raw");
      return dataset.ok() ? ListSkipped(**dataset)->named() : std::vector<SkippedObject>();
    }
  } place;
  const std::vector<SkippedObject> skipped = place.Skipped();
  ASSERT_EQ(skipped.size(), 1u);
  EXPECT_EQ(skipped[0].key, "2.jpg");
  EXPECT_THAT(std::string(skipped[0].why), HasSubstr("nowhere"));
}

}  // namespace
}  // namespace millrace
