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

}  // namespace
}  // namespace millrace
