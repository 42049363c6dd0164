#include "base/own_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uid_t kAnother = 12345;

class OwnFolderTest : public ::testing::Test {
 protected:
  ~OwnFolderTest() override {
    umask(old_umask_);
    unsetenv(kGroupVariable);
    fs::remove_all(base_);
  }

  absl::StatusOr<OwnFolder> Take(FolderSharing sharing = FolderSharing::kNobody) const {
    return TakeOwnFolder(base_, "own", sharing);
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }
  static void Give(const std::string& path) {
    ASSERT_EQ(lchown(path.c_str(), kAnother, static_cast<gid_t>(-1)), 0) << path;
  }
  static std::string MakeBase() {
    std::string name = ::testing::TempDir() + "own_folder_testXXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    return name;
  }
  std::string Second() const { return first_ + "-" + std::to_string(geteuid()); }

  const mode_t old_umask_ = umask(0);
  const std::string base_ = MakeBase();
  const std::string first_ = base_ + "/own";
};

TEST_F(OwnFolderTest, IsThisUsersAlone) {
  EXPECT_THAT(FindOwnFolders(base_, "own", FolderSharing::kNobody), IsEmpty());
  EXPECT_FALSE(fs::exists(first_)) << "a search makes nothing";
  const auto taken = Take();
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->path, first_);
  EXPECT_EQ(ModeOf(first_), 0700u);
  fs::permissions(first_, fs::perms(0755));  // as an older version has left it
  EXPECT_TRUE(Take().ok());
  EXPECT_EQ(ModeOf(first_), 0700u);
  EXPECT_THAT(FindOwnFolders(base_, "own", FolderSharing::kNobody), SizeIs(1));
}

TEST_F(OwnFolderTest, AnotherUsersIsNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  fs::create_directory(first_);
  Give(first_);
  // Root may make files there, and they would be root's: the folder is not.
  EXPECT_THAT(FindOwnFolders(base_, "own", FolderSharing::kNobody), IsEmpty());
  const auto taken = Take();
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->path, Second());
  EXPECT_EQ(ModeOf(first_), 0777u) << "it stays as it is";
  EXPECT_TRUE(fs::is_empty(first_));
  Give(Second());
  EXPECT_EQ(Take().status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(ToStd(Take().status().message()), HasSubstr(first_ + ": belongs to another user (number 12345)"));
  EXPECT_EQ(MakeOwnFolder(first_, FolderSharing::kNobody).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(OwnFolderTest, LinksOfOthersAreNotFollowed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  fs::create_directory(base_ + "/papers");
  fs::create_symlink("papers", first_);
  EXPECT_EQ(Take()->path, first_) << "the user's own";
  Give(first_);
  EXPECT_EQ(Take()->path, Second());
  fs::remove(first_);
  fs::create_symlink("nowhere", first_);
  Give(first_);
  EXPECT_EQ(Take()->path, Second());
  fs::remove(first_);
  std::ofstream(first_) << "a file";
  Give(first_);
  EXPECT_EQ(Take()->path, Second());
}

TEST_F(OwnFolderTest, WhatOthersHavePutThereBefore) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  fs::create_directories(first_ + "/below");
  std::ofstream(first_ + "/below/planted") << "text";
  Give(first_ + "/below/planted");
  EXPECT_EQ(Take()->path, Second()) << "others could write to it";
  EXPECT_EQ(ModeOf(first_), 0777u);
  fs::remove(first_ + "/below/planted");
  EXPECT_EQ(Take()->path, first_);
  EXPECT_EQ(ModeOf(first_), 0700u);
}

TEST_F(OwnFolderTest, AGroupSharesWhatIsInItsFolder) {
  setenv(kGroupVariable, std::to_string(getegid()).c_str(), 1);
  EXPECT_FALSE(Take(FolderSharing::kGroupOfParent)->group) << "the folder around it is no group's";
  fs::remove(first_);
  fs::permissions(base_, fs::perms(02770));
  const auto shared = Take(FolderSharing::kGroupOfParent);
  ASSERT_TRUE(shared.ok()) << shared.status();
  EXPECT_EQ(shared->group, getegid());
  EXPECT_EQ(shared->file_mode(), 0660u);
  EXPECT_EQ(ModeOf(first_), 02770u);
  if (geteuid() == 0) {
    Give(first_);
    EXPECT_EQ(Take(FolderSharing::kGroupOfParent)->path, first_) << "of a member";
    EXPECT_EQ(Take()->path, Second()) << "a private folder is nobody else's";
  }
}

TEST_F(OwnFolderTest, FilesAreOpenedWithoutLinks) {
  const OwnFolder own = *Take();
  const std::string path = first_ + "/file";
  EXPECT_TRUE(absl::IsNotFound(OpenOwnFile(own, path, O_RDONLY).status()));
  ASSERT_TRUE(OpenOwnFile(own, path, O_WRONLY | O_CREAT).ok());
  EXPECT_EQ(ModeOf(path), 0600u);
  const std::string thesis = base_ + "/thesis";
  std::ofstream(thesis) << "two years";
  fs::create_symlink(thesis, first_ + "/link");
  EXPECT_FALSE(OpenOwnFile(own, first_ + "/link", O_WRONLY | O_CREAT | O_TRUNC).ok());
  if (geteuid() == 0) {
    Give(thesis);
    fs::create_hard_link(thesis, first_ + "/another's");
    const auto refused = OpenOwnFile(own, first_ + "/another's", O_WRONLY | O_CREAT | O_TRUNC).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(CheckNotOfAnotherUser(thesis).code(), absl::StatusCode::kPermissionDenied);
  }
  EXPECT_EQ(fs::file_size(thesis), 9u);
  EXPECT_TRUE(CheckNotOfAnotherUser(path).ok());
}

}  // namespace
}  // namespace millrace
