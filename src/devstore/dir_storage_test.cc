// These tests are for properties that only a folder has: it is shared with others, and outlives the server.

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "devstore/sidecar.h"
#include "devstore/storage.h"
#include "devstore/testing/storage_helpers.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class DirStorageTest : public ::testing::Test {
 protected:
  void Open() {
    auto opened = OpenDirStorage(folder_.path());
    ASSERT_TRUE(opened.ok()) << opened.status();
    storage_ = *std::move(opened);
  }
  void WriteFile(const std::string& name, std::string_view text) {
    const fs::path path = folder_.path() + "/" + name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string ETag(const std::string& key) { return (*storage_->Describe("bucket", key))->etag; }

  TempFolder folder_;
  std::unique_ptr<Storage> storage_;
};

TEST_F(DirStorageTest, ServesFilesOfOthers) {
  WriteFile("bucket/a/x", "file");
  WriteFile("bucket/a-/y", "");
  WriteFile("not a bucket", "");
  fs::create_directories(folder_.path() + "/bucket/empty/folder");
  fs::create_symlink("x", folder_.path() + "/bucket/a/link");
  fs::create_symlink("nowhere", folder_.path() + "/bucket/a/broken");
  ASSERT_EQ(mkfifo((folder_.path() + "/bucket/pipe").c_str(), 0666), 0);
  Open();
  EXPECT_EQ(storage_->Buckets()->size(), 1u);
  EXPECT_EQ(Keys(*storage_, "bucket"), (std::vector<std::string>{"a-/y", "a/link", "a/x"}));
  EXPECT_EQ(*Get(*storage_, "bucket", "a/link"), "file");
  EXPECT_EQ(CodeOf(Get(*storage_, "bucket", "pipe").status()), "NoSuchKey");
  EXPECT_EQ(CodeOf(Get(*storage_, "bucket", "empty").status()), "NoSuchKey");
  const std::string etag = ETag("a/x");
  EXPECT_EQ(etag.size(), 34u);
  EXPECT_EQ(ETag("a/x"), etag);
  WriteFile("bucket/a/x", "changed");
  EXPECT_NE(ETag("a/x"), etag);
  EXPECT_FALSE(fs::exists(folder_.path() + "/.devstore"));  // looking leaves no trace
}

TEST_F(DirStorageTest, NoticesFilesThatOthersReplace) {
  fs::create_directory(folder_.path() + "/bucket");
  Open();
  ObjectAttributes attributes;
  attributes.content_type = "text/plain";
  ASSERT_TRUE(Put(*storage_, "bucket", "k", "mine", attributes).ok());
  EXPECT_EQ(ETag("k"), HexEncode(Md5(AsBytes("mine"))));
  Open();  // remembered across runs
  EXPECT_EQ(ETag("k"), HexEncode(Md5(AsBytes("mine"))));
  EXPECT_EQ((*storage_->Describe("bucket", "k"))->attributes.content_type, "text/plain");
  WriteFile("bucket/other", "else");
  fs::rename(folder_.path() + "/bucket/other", folder_.path() + "/bucket/k");
  EXPECT_NE(ETag("k"), HexEncode(Md5(AsBytes("mine"))));
  EXPECT_EQ((*storage_->Describe("bucket", "k"))->attributes.content_type, "");
  fs::remove(folder_.path() + "/bucket/k");
  EXPECT_EQ(CodeOf(storage_->Describe("bucket", "k").status()), "NoSuchKey");
}

// The programs cp -p, tar -x and rsync --inplace change a file so: its size, modification time and inode stay.
TEST_F(DirStorageTest, NoticesFilesThatOthersChangeUnderTheOldTime) {
  fs::create_directory(folder_.path() + "/bucket");
  WriteFile("bucket/found", "mine");
  Open();
  ASSERT_TRUE(Put(*storage_, "bucket", "put", "mine").ok());
  for (const std::string key : {"found", "put"}) {
    const std::string path = folder_.path() + "/bucket/" + key;
    const std::string etag = ETag(key);
    struct stat there {};
    struct stat now {};
    ASSERT_EQ(stat(path.c_str(), &there), 0);
    do {  // until the clock of the file system has ticked
      WriteFile("bucket/" + key, "else");
      const timespec times[] = {there.st_atim, there.st_mtim};
      ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
      ASSERT_EQ(stat(path.c_str(), &now), 0);
    } while (now.st_ctim.tv_sec == there.st_ctim.tv_sec && now.st_ctim.tv_nsec == there.st_ctim.tv_nsec);
    ASSERT_TRUE(now.st_ino == there.st_ino && now.st_mtim.tv_nsec == there.st_mtim.tv_nsec);
    EXPECT_NE(ETag(key), etag) << key;
    Open();
    EXPECT_NE(ETag(key), etag) << key;
  }
}

TEST_F(DirStorageTest, ListingsSeeChangesOfOthers) {
  WriteFile("bucket/d/a", "");
  Open();
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(Keys(*storage_, "bucket").size(), static_cast<size_t>(i + 1));
    WriteFile(fmt::format("bucket/d/{}", i), "");
  }
}

TEST_F(DirStorageTest, WritesPlainFilesThatOthersSee) {
  fs::create_directory(folder_.path() + "/bucket");
  Open();
  ASSERT_TRUE(Put(*storage_, "bucket", "a/b/c", "text").ok());
  std::ifstream file(folder_.path() + "/bucket/a/b/c");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "text");
  ASSERT_TRUE(storage_->Delete("bucket", "a/b/c", Any).ok());
  EXPECT_FALSE(fs::exists(folder_.path() + "/bucket/a"));  // folders that it made are gone as well
  EXPECT_TRUE(fs::exists(folder_.path() + "/bucket"));
}

TEST_F(DirStorageTest, NeverWritesOutsideOfItsRoot) {
  fs::create_directories(folder_.path() + "/root/bucket");
  auto storage = *OpenDirStorage(folder_.path() + "/root");
  for (const char* key : {"../x", "../../x", "a/../../../x", "/x", "..", "../root/bucket/y"}) {
    ASSERT_TRUE(Put(*storage, "bucket", key, "evil").ok());
    EXPECT_EQ(*Get(*storage, "bucket", key), "evil");
  }
  for (const auto& entry : fs::directory_iterator(folder_.path())) EXPECT_EQ(entry.path().filename(), "root");
  EXPECT_TRUE(fs::is_empty(folder_.path() + "/root/bucket"));
  EXPECT_EQ(CodeOf(storage->CheckBucket(".devstore")), "NoSuchBucket");
  for (const char* bucket : {"..", ".", ".devstore", "../root/bucket", "bucket/../..", ""}) {
    EXPECT_EQ(CodeOf(storage->CheckBucket(bucket)), "NoSuchBucket") << bucket;
    EXPECT_EQ(CodeOf(Get(*storage, bucket, "bucket/x").status()), "NoSuchBucket") << bucket;
    EXPECT_EQ(CodeOf(Put(*storage, bucket, "x", "evil")), "NoSuchBucket") << bucket;
    EXPECT_EQ(CodeOf(storage->Describe(bucket, "x").status()), "NoSuchBucket") << bucket;
    EXPECT_EQ(CodeOf(storage->Walk(bucket).status()), "NoSuchBucket") << bucket;
  }
}

TEST_F(DirStorageTest, DeletesNothingBehindALink) {
  fs::create_directories(folder_.path() + "/outside/empty");
  fs::create_directories(folder_.path() + "/root/bucket/sub");
  fs::create_directory_symlink("../../../outside", folder_.path() + "/root/bucket/sub/link");
  auto storage = *OpenDirStorage(folder_.path() + "/root");
  EXPECT_EQ(CodeOf(storage->DeleteBucket("bucket")), "BucketNotEmpty");
  EXPECT_TRUE(fs::exists(folder_.path() + "/outside/empty"));
}

TEST_F(DirStorageTest, LinksLeadNotOutOfTheRoot) {
  WriteFile("outside/secret", "secret");
  WriteFile("root-2/secret", "secret");  // whose path begins with the root's
  WriteFile("root/bucket/own", "own");
  WriteFile("root/bucket/folder/x", "own");
  const std::string bucket = folder_.path() + "/root/bucket/";
  fs::create_symlink("../../outside/secret", bucket + "file");
  fs::create_symlink(folder_.path() + "/outside/secret", bucket + "absolute");
  fs::create_symlink("../../root-2/secret", bucket + "neighbour");
  fs::create_directory_symlink("../../outside", bucket + "dir");
  fs::create_directory_symlink("../../outside", folder_.path() + "/root/linked");
  fs::create_symlink("own", bucket + "inside");
  fs::create_directory_symlink("../bucket/folder", bucket + "inside-dir");
  auto storage = *OpenDirStorage(folder_.path() + "/root");
  EXPECT_EQ(Keys(*storage, "bucket"), (std::vector<std::string>{"folder/x", "inside", "inside-dir/x", "own"}));
  EXPECT_EQ(*Get(*storage, "bucket", "inside"), "own");
  EXPECT_EQ(*Get(*storage, "bucket", "inside-dir/x"), "own");
  for (const char* key : {"file", "absolute", "neighbour", "dir/secret", "dir/none"}) {
    EXPECT_EQ(CodeOf(Get(*storage, "bucket", key).status()), "NoSuchKey") << key;
    EXPECT_EQ(CodeOf(storage->Describe("bucket", key).status()), "NoSuchKey") << key;
    ASSERT_TRUE(storage->Delete("bucket", key, Any).ok()) << key;
  }
  // A link is not a bucket.
  EXPECT_EQ(storage->Buckets()->size(), 1u);
  EXPECT_EQ(CodeOf(Get(*storage, "linked", "secret").status()), "NoSuchBucket");
  EXPECT_EQ(CodeOf(storage->Walk("linked").status()), "NoSuchBucket");
  EXPECT_EQ(CodeOf(Put(*storage, "linked", "x", "evil")), "NoSuchBucket");
  EXPECT_FALSE(storage->CreateBucket("linked").ok());
  // Objects that are written there are kept, but elsewhere.
  for (const char* key : {"dir/new", "dir/secret", "dir/deep/new", "file"}) {
    ASSERT_TRUE(Put(*storage, "bucket", key, "mine").ok()) << key;
    EXPECT_EQ(*Get(*storage, "bucket", key), "mine") << key;
  }
  ASSERT_TRUE(Put(*storage, "bucket", "inside-dir/y", "mine").ok());
  EXPECT_TRUE(fs::exists(bucket + "folder/y"));
  std::string text;
  std::ifstream(folder_.path() + "/outside/secret") >> text;
  EXPECT_EQ(text, "secret");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path() + "/outside"), fs::directory_iterator()), 1);
}

TEST_F(DirStorageTest, AFileAndAFolderOfOneNameGoTogether) {
  fs::create_directory(folder_.path() + "/bucket");
  Open();
  ASSERT_TRUE(Put(*storage_, "bucket", "a", "file first").ok());
  ASSERT_TRUE(Put(*storage_, "bucket", "a/b", "below").ok());
  ASSERT_TRUE(Put(*storage_, "bucket", "c/d", "folder first").ok());
  ASSERT_TRUE(Put(*storage_, "bucket", "c", "above").ok());
  ASSERT_TRUE(Put(*storage_, "bucket", "a/b", "below again").ok());
  EXPECT_EQ(*Get(*storage_, "bucket", "a"), "file first");
  EXPECT_EQ(*Get(*storage_, "bucket", "a/b"), "below again");
  EXPECT_EQ(*Get(*storage_, "bucket", "c"), "above");
  EXPECT_EQ(Keys(*storage_, "bucket"), (std::vector<std::string>{"a", "a/b", "c", "c/d"}));
  ASSERT_TRUE(storage_->Delete("bucket", "a", Any).ok());
  EXPECT_EQ(*Get(*storage_, "bucket", "a/b"), "below again");
}

TEST_F(DirStorageTest, SaysWhatIsWrongWithTheRoot) {
  EXPECT_EQ(OpenDirStorage(folder_.path() + "/none").status().code(), absl::StatusCode::kNotFound);
  WriteFile("file", "");
  EXPECT_EQ(OpenDirStorage(folder_.path() + "/file").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(DirStorageTest, DamagedRecordsAreAsGoodAsNone) {
  fs::create_directory(folder_.path() + "/bucket");
  Open();
  ASSERT_TRUE(Put(*storage_, "bucket", "k", "text").ok());
  ASSERT_TRUE(Put(*storage_, "bucket", "o//dd", "text").ok());
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path() + "/.devstore/meta")) {
    if (entry.is_regular_file())
      std::ofstream(entry.path()) << "\xff\xfe nonsense\n%%% \nsize 99999999999999999999\netag";
  }
  Open();
  EXPECT_EQ(*Get(*storage_, "bucket", "k"), "text");
  EXPECT_EQ(ETag("k").size(), 34u);
  EXPECT_EQ(Keys(*storage_, "bucket"), (std::vector<std::string>{"k"}));
}

}  // namespace
}  // namespace millrace
