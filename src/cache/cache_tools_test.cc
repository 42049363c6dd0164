#include "cache/cache_tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "cache/disk_cache.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::UnorderedElementsAre;

class CacheToolsTest : public ::testing::Test {
 protected:
  CacheToolsTest() {
    Rng rng(2);
    for (char& c : object_) c = static_cast<char>(rng.Next());
    const auto cache = DiskCache::Open({.folder = folder_.path(), .size_bytes = 0, .free_share = 0});
    for (const char* key : {"train/1.tar", "train/2.tar", "old/1.tar"}) {
      (*cache)->Keep({"http://host s3://bucket/", key, "etag"}, object_.size(), 0, AsBytes(object_).first(20'000));
      (*cache)->Keep({"http://host s3://bucket/", key, "etag"}, object_.size(), 50'000,
                     AsBytes(object_).subspan(50'000, 10'000));
    }
  }

  std::vector<std::string> Uris() const {
    std::vector<std::string> uris;
    EXPECT_TRUE(ForEachCachedObject(folder_.path(), {}, [&](const CachedObject& object) {
                  EXPECT_EQ(object.cached_bytes, 30'000u);
                  EXPECT_EQ(object.object_bytes, 100'000u);
                  EXPECT_EQ(object.ranges, 2u);
                  EXPECT_GE(object.disk_bytes, 30'000u);
                  uris.push_back(object.uri());
                  return absl::OkStatus();
                }).ok());
    return uris;
  }

  std::string FileOf(const std::string& key) const {
    return folder_ / ("millrace-cache-1/" + cache_format::FileName({"http://host s3://bucket/", key, "etag"}));
  }

  TempFolder folder_;
  std::string object_ = std::string(100'000, '\0');
};

TEST_F(CacheToolsTest, TellWhatIsKept) {
  EXPECT_THAT(Uris(),
              UnorderedElementsAre("s3://bucket/train/1.tar", "s3://bucket/train/2.tar", "s3://bucket/old/1.tar"));
  const auto found = SummarizeCache(folder_.path(), {});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->objects, 3u);
  EXPECT_EQ(found->ranges, 6u);
  EXPECT_EQ(found->cached_bytes, 90'000u);
  EXPECT_GE(found->disk_bytes, 90'000u);
  ASSERT_EQ(found->jobs.size(), 1u) << "nobody is at work";
  EXPECT_EQ(found->jobs.front().bytes, 90'000u);
}

TEST_F(CacheToolsTest, TellWhoIsAtWork) {
  const auto cache = DiskCache::Open({.folder = folder_.path(), .size_bytes = 0, .free_share = 0});
  const auto entry = (*cache)->Join("http://host s3://bucket/", 9, 1000);
  entry->SetClock(1500);
  const PlannedRead plan{.job = 9, .use = 1500, .period = 1000, .spans = {{{0, 20'000}, 2100}}};
  (*cache)->Touch({"http://host s3://bucket/", "train/1.tar", "etag"}, {0, 20'000}, &plan);
  const auto found = SummarizeCache(folder_.path(), {});
  ASSERT_EQ(found->jobs.size(), 2u);
  EXPECT_EQ(found->jobs.front().job, 9u);
  EXPECT_EQ(found->jobs.front().bytes, 20'000u);
  EXPECT_EQ(found->jobs.front().clock.clock, 1500u);
}

TEST_F(CacheToolsTest, VerifyFindsAndRemovesWhatIsDamaged) {
  auto check = VerifyCache(folder_.path(), {});
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_EQ(check->bytes, 90'000u);
  EXPECT_EQ(check->damaged_ranges + check->unsound_files, 0u);
  for (const uint64_t at : {uint64_t{4096 + 55'000}, uint64_t{100}}) {
    std::fstream file(FileOf(at == 100 ? "train/2.tar" : "train/1.tar"),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put('!');
  }
  check = VerifyCache(folder_.path(), {});
  EXPECT_EQ(check->damaged_ranges, 1u);
  EXPECT_EQ(check->unsound_files, 1u);
  EXPECT_FALSE(fs::exists(FileOf("train/2.tar")));
  check = VerifyCache(folder_.path(), {});
  EXPECT_EQ(check->damaged_ranges + check->unsound_files, 0u);
  EXPECT_EQ(check->bytes, 90'000u - 10'000 - 30'000);
}

TEST_F(CacheToolsTest, ClearRemovesWhatItIsToldAndNothingElse) {
  const fs::path foreign = fs::path(FileOf("old/1.tar")).parent_path() / "mine";
  const fs::path outside = folder_ / "mine";
  std::ofstream(foreign) << "x";
  std::ofstream(outside) << "x";
  // Another user has them open.
  const auto cache = DiskCache::Open({.folder = folder_.path(), .size_bytes = 0, .free_share = 0});
  const CacheIdentity identity{"http://host s3://bucket/", "train/1.tar", "etag"};
  std::string into(20'000, '?');
  ASSERT_TRUE((*cache)->Read(identity, {0, 20'000}, {}, AsWritableBytes(into)).has_value());
  auto cleared = ClearCache(folder_.path(), "s3://bucket/old/", {});
  ASSERT_TRUE(cleared.ok()) << cleared.status();
  EXPECT_EQ(cleared->objects, 1u);
  EXPECT_THAT(Uris(), UnorderedElementsAre("s3://bucket/train/1.tar", "s3://bucket/train/2.tar"));
  cleared = ClearCache(folder_.path(), "", {});
  EXPECT_EQ(cleared->objects, 2u);
  EXPECT_FALSE((*cache)->Read(identity, {0, 20'000}, {}, AsWritableBytes(into)).has_value()) << "it learns of it";
  (*cache)->Keep(identity, object_.size(), 0, AsBytes(object_).first(20'000));
  (*cache)->Flush();
  EXPECT_TRUE((*cache)->Read(identity, {0, 20'000}, {}, AsWritableBytes(into)).has_value()) << "and goes on";
  EXPECT_TRUE(fs::exists(foreign));
  EXPECT_TRUE(fs::exists(outside));
}

TEST_F(CacheToolsTest, WhereThereIsNoCacheThereIsNothingToDo) {
  const TempFolder empty;
  EXPECT_TRUE(absl::IsNotFound(SummarizeCache(empty.path(), {}).status()));
  EXPECT_TRUE(absl::IsNotFound(VerifyCache(empty.path(), {}).status()));
  EXPECT_TRUE(absl::IsNotFound(ClearCache(empty.path(), "", {}).status()));
  EXPECT_TRUE(fs::is_empty(empty.path())) << "and nothing is made";
}

}  // namespace
}  // namespace millrace
