#include "mount/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

using ::testing::IsEmpty;

class StagingTest : public ::testing::Test {
 protected:
  std::unique_ptr<StagingFolder> Open(uint64_t most_bytes = 1000) {
    auto opened = StagingFolder::Open(folder_.path(), most_bytes);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
  std::vector<LeftFile> Left() { return *StagingFolder::ListLeft(folder_.path()); }
  static std::string ReadAll(const StagingFile& file, uint64_t offset, size_t bytes) {
    std::string text(bytes, '?');
    const absl::Status read = file.Read(offset, AsWritableBytes(text));
    return read.ok() ? text : std::string(read.message());
  }

  TempFolder folder_;
};

TEST_F(StagingTest, AFileIsSparseAndGoesWithItsOwner) {
  const auto staging = Open();
  std::string path;
  {
    const auto file = *staging->NewFile();
    path = file->path();
    ASSERT_TRUE(file->Write(5, AsBytes("text")).ok());
    EXPECT_EQ(ReadAll(*file, 0, 9), std::string(5, '\0') + "text");
    file->Drop({5, 2});
    ASSERT_TRUE(file->Resize(8).ok());
    ASSERT_TRUE(file->Resize(9).ok());
    EXPECT_EQ(ReadAll(*file, 5, 4), std::string("\0\0x\0", 4));
    EXPECT_FALSE(file->Read(5, AsWritableBytes(path)).ok());  // behind the end
    path = file->path();
    ASSERT_TRUE(file->Note({.uri = "s3://b/k"}, false).ok());
    ASSERT_TRUE(file->Sync().ok());
    EXPECT_THAT(Left(), IsEmpty());  // its mount lives
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

// Writes whole pages and others, from the middle of pages and from unaligned memory.
TEST_F(StagingTest, WhatIsWrittenLaterIsThereAfterTheFlush) {
  const auto staging = Open(100 << 20);
  ASSERT_TRUE(staging->writes_later());
  const auto file = *staging->NewFile();
  Buffer bytes(8 << 20);
  for (size_t i = 0; i < bytes.size(); ++i) bytes.data()[i] = static_cast<std::byte>(i * 2654435761U >> 24);
  std::atomic<int> done = 0;
  const std::vector<size_t> ends = {1, 4096, 10'000, 12'288, 2 << 20, (2 << 20) + 5, (4 << 20) + 9000, bytes.size()};
  size_t at = 0;
  for (const size_t end : ends) {
    // The other way in turn: the bytes are the same.
    file->WriteLater(
        at, ByteSpan(bytes.span()).subspan(at, end - at), [end] { return end % 2 != 0; }, [&] { ++done; });
    at = end;
  }
  file->WriteLater(
      at + 3, ByteSpan(bytes.span()).subspan(1, 9000), [] { return false; }, [&] { ++done; });
  EXPECT_TRUE(file->Flush().empty());
  EXPECT_EQ(done, 9);
  EXPECT_TRUE(ReadAll(*file, 0, at) == AsText(bytes.span()));
  EXPECT_TRUE(ReadAll(*file, at, 9003) == std::string(3, '\0') + std::string(AsText(bytes.span()).substr(1, 9000)));
}

TEST_F(StagingTest, WhatADiskDoesNotTakeIsSaidOnce) {
  const auto staging = Open(100 << 20);
  const auto file = *staging->NewFile();
  const Buffer bytes(2 << 20);
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 1 << 20, before.rlim_max };
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto never = [] { return false; };
  file->WriteLater(0, bytes.span().first(1000), never, [] {});
  file->WriteLater(4096, bytes.span(), never, [] {});
  const std::vector<ByteRange> failed = file->Flush();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(failed, ::testing::ElementsAre(ByteRange{4096, bytes.size()}));
  EXPECT_THAT(file->Flush(), IsEmpty());
}

TEST_F(StagingTest, ThereIsOnlySoMuchRoom) {
  const auto staging = Open(1000);
  const auto one = *staging->NewFile();
  EXPECT_TRUE(one->Hold(600));
  {
    const auto other = *staging->NewFile();
    EXPECT_FALSE(other->Hold(401));
    EXPECT_TRUE(other->Hold(400));
    EXPECT_FALSE(one->Hold(601));
    EXPECT_TRUE(one->Hold(500));
    EXPECT_EQ(staging->used_bytes(), 900u);
  }
  EXPECT_TRUE(one->Hold(1000));
  EXPECT_FALSE(one->Hold(UINT64_MAX));
}

TEST_F(StagingTest, WhatIsKeptIsListedOnceItsMountHasEnded) {
  {
    const auto staging = Open();
    const auto refused = *staging->NewFile();
    ASSERT_TRUE(refused->Write(0, AsBytes("whole")).ok());
    ASSERT_TRUE(refused->Note({.uri = "s3://b/new", .why = "another was first"}, true).ok());
    refused->Keep();
    const auto changed = *staging->NewFile();
    ASSERT_TRUE(changed->Write(100, AsBytes("part")).ok());
    ASSERT_TRUE(
        changed->Note({.uri = "s3://b/old", .base = "etag", .size = 104, .local = {{100, 4}}, .why = "replaced"}, true)
            .ok());
    changed->Keep();
    EXPECT_THAT(Left(), IsEmpty());
  }
  const auto next = Open();  // another mount leaves it alone
  const std::vector<LeftFile> left = Left();
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].record.uri, "s3://b/new");
  EXPECT_EQ(left[0].record.why, "another was first");
  EXPECT_EQ(left[0].record.size, 5u);
  EXPECT_TRUE(left[0].is_whole);
  EXPECT_EQ(left[1].record.size, 104u);
  EXPECT_FALSE(left[1].is_whole);
  std::filesystem::remove(left[0].path);
  EXPECT_EQ(Left().size(), 1u);
}

TEST_F(StagingTest, WhatOtherMountsHaveLeftTakesRoomOfKilledWriters) {
  const auto leave = [this](uint64_t offset, uint64_t bytes) {
    const auto staging = Open(100'000);
    const auto file = *staging->NewFile();
    EXPECT_TRUE(file->Hold(bytes));
    EXPECT_TRUE(staging->HasRoomForKilled());
    EXPECT_TRUE(file->Write(offset, AsBytes(std::string(bytes, 'x'))).ok());
    EXPECT_TRUE(file->Note({.uri = "s3://b/k"}, false).ok());
    file->Keep();
    EXPECT_EQ(Open(100'000)->left_bytes(), 0u) << "of a mount that lives";
  };
  leave(0, 30'000);
  const auto next = Open(100'000);
  EXPECT_EQ(next->left_bytes(), 30'000u);
  const auto file = *next->NewFile();
  EXPECT_TRUE(file->Hold(20'000));
  EXPECT_TRUE(next->HasRoomForKilled());
  EXPECT_TRUE(file->Hold(20'001));
  EXPECT_FALSE(next->HasRoomForKilled());
  EXPECT_TRUE(file->Hold(100'000)) << "writers that live have the room that they had";
  EXPECT_FALSE(Open(59'999)->HasRoomForKilled());
  EXPECT_TRUE(Open(60'000)->HasRoomForKilled());
  std::filesystem::remove_all(std::filesystem::path(Left()[0].path).parent_path());
  leave(100 << 20, 10'000);  // holes take no room
  EXPECT_LT(Open(100'000)->left_bytes(), 1u << 20);
}

TEST_F(StagingTest, EmptyFoldersOfMountsThatWereKilledGo) {
  const auto living = Open();
  const std::string base = std::filesystem::path(living->path()).parent_path();
  std::filesystem::create_directories(base + "/m-killed");
  const auto other = Open();
  EXPECT_FALSE(std::filesystem::exists(base + "/m-killed"));
  EXPECT_TRUE(std::filesystem::exists(living->path()));
}

TEST_F(StagingTest, WithoutASizeHalfOfTheDiskIsTaken) {
  EXPECT_GT(Open(0)->most_bytes(), 0u);
}

TEST_F(StagingTest, AFolderOfAnotherUserIsNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  constexpr uid_t kAnother = 12345;
  const std::string first = folder_ / "millrace-staging-1";
  std::filesystem::create_directories(first + "/m-aaaaaa");
  std::ofstream(first + "/m-aaaaaa/0.json")
      << R"({"uri": "s3://b/k", "base": "", "size": 7, "local": [[0, 7]], "why": ""})";
  std::ofstream(first + "/m-aaaaaa/0.bytes") << "planted";
  EXPECT_EQ(Left().size(), 1u) << "of this user";
  const std::string names[] = {"", "/m-aaaaaa", "/m-aaaaaa/0.json", "/m-aaaaaa/0.bytes"};
  for (const std::string& name : names) {
    ASSERT_EQ(chown((first + name).c_str(), kAnother, static_cast<gid_t>(-1)), 0);
    EXPECT_TRUE(name.empty() ? !StagingFolder::ListLeft(folder_.path()).ok() : Left().empty()) << name;
    ASSERT_EQ(chown((first + name).c_str(), geteuid(), static_cast<gid_t>(-1)), 0);
  }
  ASSERT_EQ(chown(first.c_str(), kAnother, static_cast<gid_t>(-1)), 0);
  EXPECT_EQ(std::filesystem::path(Open()->path()).parent_path(), first + "-0");
}

// Somebody who may change the folder around it puts another one in its place.
TEST_F(StagingTest, NotesAreWrittenToTheFolderThatWasMade) {
  const auto staging = Open();
  const auto file = *staging->NewFile();
  const std::string place = staging->path();
  const std::string thesis = folder_ / "thesis";
  std::ofstream(thesis) << "two years of work";
  std::filesystem::rename(place, place + "-aside");
  std::filesystem::create_directory(place);
  for (const char* name : {"0.json", "1.bytes"}) std::filesystem::create_symlink(thesis, place + "/" + name);
  EXPECT_TRUE(file->Note({.uri = "s3://b/k"}, /*synced=*/false).ok());
  EXPECT_TRUE(file->Note({.uri = "s3://b/k"}, /*synced=*/true).ok());
  EXPECT_TRUE(staging->NewFile().ok());
  EXPECT_EQ(std::filesystem::file_size(thesis), 17u);
}

}  // namespace
}  // namespace millrace
