// What only a folder does with uploads: parts lie where the object needs them.

#include "devstore/joint_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <thread>
#include <utility>

#include "devstore/testing/upload_test.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class UploadFolderTest : public UploadTest {
 protected:
  std::string UploadPath() const { return folder_.path() + "/.devstore/uploads/" + id_; }
  uint64_t Blocks() const {
    uint64_t blocks = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      struct stat stat {};
      if (entry.is_regular_file() && ::stat(entry.path().c_str(), &stat) == 0) {
        blocks += static_cast<uint64_t>(stat.st_blocks);
      }
    }
    return blocks;
  }
  std::vector<std::string> FilesOf(const std::string& path) const {
    std::vector<std::string> names;
    if (!fs::exists(path)) return names;
    for (const auto& entry : fs::recursive_directory_iterator(path)) names.push_back(entry.path().filename());
    return names;
  }
  /// The only one in the upload that holds bytes of parts, else 0.
  ino_t Inode() const {
    ino_t inode = 0;
    for (const auto& entry : fs::directory_iterator(UploadPath())) {
      if (entry.path().extension() == ".part" || entry.path().filename() == "upload") continue;
      struct stat stat {};
      EXPECT_EQ(::stat(entry.path().c_str(), &stat), 0);
      if (inode != 0) return 0;
      inode = stat.st_ino;
    }
    return inode;
  }
  ino_t ObjectInode() const {
    struct stat stat {};
    EXPECT_EQ(::stat((folder_.path() + "/bucket/k").c_str(), &stat), 0);
    return stat.st_ino;
  }
  void ExpectNothingLeft() {
    EXPECT_EQ(FilesOf(folder_.path() + "/.devstore/uploads"), std::vector<std::string>());
    EXPECT_EQ(FilesOf(folder_.path() + "/.devstore/tmp"), std::vector<std::string>());
  }
};

TEST_F(UploadFolderTest, PartsOfOneLengthAreNotCopied) {
  for (const std::vector<int>& order : {std::vector<int>{1, 2, 3, 4}, {2, 4, 1, 3}, {3, 2, 1, 4}}) {
    Begin();
    std::map<int, std::string> parts;
    std::vector<std::shared_ptr<Content>> contents;
    for (const int n : order) {
      parts[n] = Bytes(n == 4 ? 10 : kPart, static_cast<uint64_t>(n));
      contents.push_back(Written(n, parts[n]));  // all under way at once
    }
    for (size_t i = order.size(); i-- > 0;) {
      ASSERT_TRUE(Store(order[i], std::exchange(contents[i], nullptr), parts[order[i]]).ok());
    }
    const ino_t inode = Inode();
    ASSERT_NE(inode, 0u);
    const int64_t before_ns = NowNs();
    fs::last_write_time(UploadPath() + "/joint", fs::file_time_type::clock::now() - std::chrono::hours(1));
    ASSERT_TRUE(Complete({1, 2, 3, 4}).ok());
    EXPECT_EQ(ObjectInode(), inode);
    EXPECT_TRUE(*Get(*storage_, "bucket", "k") == parts[1] + parts[2] + parts[3] + parts[4]);
    // As new as its completion; the clock of file systems ticks slowly.
    EXPECT_GT((*storage_->Describe("bucket", "k"))->modified_ns, before_ns - 100'000'000);
    ExpectNothingLeft();
  }
}

TEST_F(UploadFolderTest, APartThatFailedAndCameAgainIsNotCopied) {
  const std::string one = Bytes(kPart, 1);
  const std::string two = Bytes(kPart, 2);
  const std::string end = Bytes(100, 3);
  ASSERT_TRUE(PutPart(1, one).ok());
  Written(2, Bytes(kPart, 9));  // dropped
  ASSERT_TRUE(PutPart(3, end).ok());
  Written(4, Bytes(kPart, 9));  // dropped, behind what will be the end
  ASSERT_TRUE(PutPart(2, two).ok());
  const ino_t inode = Inode();
  ASSERT_NE(inode, 0u);
  ASSERT_TRUE(Complete({1, 2, 3}).ok());
  EXPECT_EQ(ObjectInode(), inode);
  EXPECT_EQ(fs::file_size(folder_.path() + "/bucket/k"), 2 * kPart + 100);
  EXPECT_TRUE(*Get(*storage_, "bucket", "k") == one + two + end);
}

TEST_F(UploadFolderTest, AnUploadIsCompletedWithoutACopyAfterARestart) {
  const std::string one = Bytes(kPart, 1);
  const std::string two = Bytes(kPart, 2);
  ASSERT_TRUE(PutPart(2, two).ok());
  ASSERT_TRUE(PutPart(1, one).ok());
  const ino_t inode = Inode();
  Open();
  ExpectParts({{1, one}, {2, two}});
  ASSERT_TRUE(Complete({1, 2}).ok());
  EXPECT_EQ(ObjectInode(), inode);
  EXPECT_TRUE(*Get(*storage_, "bucket", "k") == one + two);
  ExpectNothingLeft();
}

TEST_F(UploadFolderTest, WhatDoesNotFitIsCopied) {
  const auto expect = [&](const std::vector<std::pair<int, size_t>>& sent, const std::vector<int>& completed) {
    Begin();
    std::map<int, std::string> parts;
    for (const auto& [number, size] : sent) {
      parts[number] = Bytes(size, size + static_cast<uint64_t>(number) * 31 + parts.size());
      ASSERT_TRUE(PutPart(number, parts[number]).ok());
    }
    ExpectParts(parts);
    std::string whole;
    for (const int number : completed) whole += parts[number];
    ASSERT_TRUE(Complete(completed).ok());
    EXPECT_TRUE(*Get(*storage_, "bucket", "k") == whole);
    ExpectNothingLeft();
  };
  expect({{1, kPart}, {2, kPart - 1}, {3, kPart}}, {1, 2, 3});  // shorter in the middle
  expect({{1, kPart}, {2, kPart + 1}, {3, kPart}}, {1, 2, 3});  // longer in the middle
  expect({{1, kPart}, {2, 10}, {3, 10}}, {1, 2, 3});
  expect({{3, 10}, {1, kPart}, {2, kPart}}, {1, 2, 3});  // the short one first
  expect({{1, kPart}, {3, kPart}}, {1, 3});              // a gap
  expect({{2, kPart}, {3, kPart}}, {2, 3});              // none is the first
  expect({{1, kPart}, {2, kPart}, {3, 7}}, {1, 2});      // one is left out
  expect({{1, kPart}, {2, kPart}, {3, 7}}, {2, 3});
  expect({{1, kPart}, {1, kPart}, {2, kPart}}, {1, 2});  // sent again
  expect({{10'000, kPart}, {1, 5}}, {1, 10'000});
  expect({{1, 0}, {2, 5}}, {1, 2});
  expect({{1, kPart}, {2, 0}}, {1, 2});
}

TEST_F(UploadFolderTest, AHugePartNumberCostsNoSpace) {
  const uint64_t before = Blocks();
  const std::string text = Bytes(kPart, 1);
  ASSERT_TRUE(PutPart(10'000, text).ok());
  EXPECT_LT(Blocks() - before, 2 * kPart / 512 + 64);
  // Beyond what files may have: to a file of its own.
  auto writer = storage_->NewPart(id_, 10'000, uint64_t{5} << 30);
  ASSERT_TRUE((*writer)->Append(AsBytes(text)).ok());
  Begin();
  writer = storage_->NewPart(id_, 10'000, uint64_t{5} << 30);
  ASSERT_TRUE((*writer)->Append(AsBytes(text)).ok());
}

TEST_F(UploadFolderTest, AFailedPartGivesItsSpaceBack) {
  ASSERT_TRUE(PutPart(1, Bytes(kPart, 1)).ok());
  const uint64_t before = Blocks();
  for (int number = 1; number <= 3; ++number) {
    Written(number, Bytes(kPart, 2));
    EXPECT_LE(Blocks(), before + 16) << number;
  }
}

/// The limit of the file size stands for a full disk.
TEST_F(UploadFolderTest, AFullDiskIsReportedAndLeavesTheUploadAsItWas) {
  const std::map<int, std::string> parts = {{1, Bytes(kPart, 1)}, {2, Bytes(kPart, 2)}};
  for (const auto& [number, text] : parts) ASSERT_TRUE(PutPart(number, text).ok());
  const std::string text = Bytes(kPart, 3);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 2 * kPart + 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  absl::Status appended;
  {
    auto writer = storage_->NewPart(id_, 3, kPart);
    appended = writer.ok() ? (*writer)->Append(AsBytes(text)) : writer.status();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, signal_before);
  EXPECT_EQ(CodeOf(appended), "InternalError");
  EXPECT_NE(appended.message().find("writing"), absl::string_view::npos) << appended;
  ExpectParts(parts);
  ASSERT_TRUE(PutPart(3, text).ok());
  const ino_t inode = Inode();
  ASSERT_TRUE(Complete({1, 2, 3}).ok());
  EXPECT_EQ(ObjectInode(), inode);
  EXPECT_TRUE(*Get(*storage_, "bucket", "k") == parts.at(1) + parts.at(2) + text);
}

TEST_F(UploadFolderTest, AWriterKeepsToItsPlace) {
  const std::string two = Bytes(kPart, 2);
  ASSERT_TRUE(PutPart(2, two).ok());
  auto writer = storage_->NewPart(id_, 1, kPart);
  const std::string text = Bytes(kPart + 1, 1);
  EXPECT_FALSE((*writer)->Append(AsBytes(text)).ok());
  writer = storage_->NewPart(id_, 3, 10);
  EXPECT_TRUE((*writer)->Append(AsBytes(text.substr(0, 10))).ok());
  EXPECT_FALSE((*writer)->Append(AsBytes(text.substr(0, 1))).ok());
  ExpectParts({{2, two}});
}

TEST_F(UploadFolderTest, AnAbortLeavesNothingWhateverIsUnderWay) {
  for (int round = 0; round < 60; ++round) {
    Begin();
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        while (!go) std::this_thread::yield();
        for (int n = 1 + t; n < 30; n += 3) {
          const std::string text = Bytes(t == 2 ? 300 : 200, 1);
          auto writer = storage_->NewPart(id_, n, text.size());
          if (!writer.ok()) {
            EXPECT_EQ(CodeOf(writer.status()), "NoSuchUpload");
            return;
          }
          EXPECT_TRUE((*writer)->Append(AsBytes(text)).ok());
          const absl::Status stored = Store(n, *(*writer)->Finish(), text);
          if (!stored.ok()) {
            EXPECT_EQ(CodeOf(stored), "NoSuchUpload");
          }
        }
      });
    }
    go = true;
    for (int i = 0; i < round; ++i) std::this_thread::yield();
    EXPECT_TRUE(storage_->RemoveUpload(id_).ok());
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(FilesOf(folder_.path() + "/.devstore/uploads"), std::vector<std::string>());
    ASSERT_EQ(FilesOf(folder_.path() + "/.devstore/tmp"), std::vector<std::string>());
  }
}

/// Killed between the object's appearance and the upload's end.
TEST_F(UploadFolderTest, AnUploadThatAKillLeftBehindDoesNotTouchItsObject) {
  const std::string one = Bytes(kPart, 1);
  const std::string two = Bytes(kPart, 2);
  ASSERT_TRUE(PutPart(1, one).ok());
  ASSERT_TRUE(PutPart(2, two).ok());
  ASSERT_TRUE(PutJoined({1, 2}).ok());
  Open();
  ExpectParts({{1, one}, {2, two}});
  EXPECT_TRUE(PutPart(3, two).ok());
  EXPECT_TRUE(*Get(*storage_, "bucket", "k") == one + two);
  EXPECT_EQ((*storage_->Describe("bucket", "k"))->etag, "etag-2");
  Open();
  ASSERT_TRUE(PutJoined({1}).ok());
  ASSERT_TRUE(PutJoined({1, 2}).ok());
  EXPECT_EQ((*storage_->Describe("bucket", "k"))->etag, "etag-2");
  ASSERT_TRUE(Complete({1, 2}).ok());
  EXPECT_TRUE(*Get(*storage_, "bucket", "k") == one + two);
  ExpectNothingLeft();
}

TEST_F(UploadFolderTest, CompletedTwiceLeavesNothing) {
  ASSERT_TRUE(PutPart(1, "one").ok());
  auto first = Join({1});
  auto second = Join({1});
  ASSERT_TRUE(storage_->Put("bucket", "k", *std::move(first), {}, "e-1", Any).ok());
  ASSERT_TRUE(storage_->Put("bucket", "k", *std::move(second), {}, "e-1", Any).ok());
  first = second = absl::CancelledError();
  ASSERT_TRUE(storage_->RemoveUpload(id_).ok());
  EXPECT_EQ(*Get(*storage_, "bucket", "k"), "one");
  EXPECT_EQ((*storage_->Describe("bucket", "k"))->etag, "e-1");
  ExpectNothingLeft();
}

}  // namespace
}  // namespace millrace
