#include "pack/scratch_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace millrace {
namespace {

namespace fs = std::filesystem;

class ScratchFolderTest : public ::testing::Test {
 protected:
  ScratchFolderTest() { fs::remove_all(base_); }
  ~ScratchFolderTest() override { fs::remove_all(fs::path(base_).parent_path()); }

  std::unique_ptr<ScratchFolder> Take(const std::string& id = "x") {
    absl::StatusOr<std::unique_ptr<ScratchFolder>> taken = ScratchFolder::Take(base_, id);
    EXPECT_TRUE(taken.ok()) << taken.status();
    return taken.ok() ? *std::move(taken) : nullptr;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(base_)) names.push_back(entry.path().filename());
    return names;
  }

  const std::string base_ = fs::path(::testing::TempDir()) / fmt::format("scratch-folder-test-{}", getpid()) / "below";
};

TEST_F(ScratchFolderTest, OneUserEachAndWhatIsLeftIsTakenAgain) {
  auto one = Take();
  auto two = Take();
  auto other = Take("y");
  EXPECT_EQ(one->path(), base_ + "/unpacked-x");
  EXPECT_EQ(two->path(), base_ + "/unpacked-x.2");
  EXPECT_EQ(other->path(), base_ + "/unpacked-y");
  std::ofstream(two->path() + "/work") << "done";
  one->Remove();
  one.reset();
  two.reset();  // as after an error: its folder stays
  other.reset();
  auto again = Take();
  EXPECT_EQ(again->path(), base_ + "/unpacked-x.2") << "there is work in it";
  EXPECT_TRUE(fs::exists(again->path() + "/work"));
  EXPECT_EQ(Take()->path(), base_ + "/unpacked-x");
  again->Remove();
  again.reset();
  EXPECT_THAT(Names(), ::testing::UnorderedElementsAre("unpacked-x", "unpacked-y")) << "the locks are gone";
}

TEST_F(ScratchFolderTest, WhereNoFolderCanBe) {
  fs::create_directories(fs::path(base_).parent_path());
  std::ofstream(base_) << "a file";
  const auto taken = ScratchFolder::Take(base_, "x");
  ASSERT_FALSE(taken.ok());
  EXPECT_THAT(std::string(taken.status().message()), ::testing::HasSubstr(base_));
}

TEST_F(ScratchFolderTest, PassesOverWhatIsAnotherUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  constexpr uid_t kAnother = 12345;
  const std::string first = base_ + "/unpacked-x";
  const std::string second = first + ".2";
  fs::create_directories(first);
  std::ofstream(second + ".lock") << "";
  fs::create_symlink("/etc/passwd", first + ".3.lock");
  for (const std::string& path : {first, second + ".lock", first + ".3.lock"})
    ASSERT_EQ(lchown(path.c_str(), kAnother, static_cast<gid_t>(-1)), 0);
  const auto taken = Take();
  EXPECT_EQ(taken->path(), first + ".4");
  EXPECT_EQ(fs::status(taken->path()).permissions(), fs::perms(0700));
  EXPECT_EQ(fs::status(taken->path() + ".lock").permissions(), fs::perms(0600));
  EXPECT_FALSE(fs::exists(first + ".lock"));
  EXPECT_TRUE(fs::exists(second + ".lock"));
}

}  // namespace
}  // namespace millrace
