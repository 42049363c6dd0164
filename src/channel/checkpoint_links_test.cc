#include "channel/checkpoint_links.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::UnorderedElementsAre;

class CheckpointLinksTest : public ::testing::Test {
 protected:
  std::map<std::string, std::string> Found() {
    std::map<std::string, std::string> found;
    for (const auto& [name, link] : FindLinks(temp_.path())) found[name] = link.target;
    return found;
  }
  absl::StatusOr<bool> Restore(const std::string& name, const std::string& target, int64_t modified_ms = kLater) {
    return RestoreLink(temp_.path(), name, {target, modified_ms});
  }

  static constexpr int64_t kLater = std::numeric_limits<int64_t>::max();
  TempFolder temp_;
};

TEST_F(CheckpointLinksTest, ThoseThatStayInTheFolderAreLinks) {
  fs::create_directories(temp_ / "run/step-2");
  fs::create_symlink("step-2", temp_ / "run/latest");
  fs::create_symlink("run/latest", temp_ / "of-a-link");
  fs::create_symlink("run/step-3", temp_ / "to-nothing");
  fs::create_symlink(fs::absolute(temp_ / "run/step-2"), temp_ / "run/absolute");
  fs::create_symlink("../run/step-2", temp_ / "run/around");
  fs::create_symlink("/usr", temp_ / "out");
  fs::create_symlink("..", temp_ / "up");
  fs::create_symlink(".", temp_ / "self");
  fs::create_symlink("loop", temp_ / "loop");
  EXPECT_THAT(Found(), UnorderedElementsAre(std::pair("run/latest", "step-2"), std::pair("of-a-link", "run/latest"),
                                            std::pair("to-nothing", "run/step-3"), std::pair("run/absolute", "step-2"),
                                            std::pair("run/around", "../run/step-2")));
  EXPECT_TRUE(FindLinks(temp_ / "nothing").empty());
}

TEST_F(CheckpointLinksTest, AreFoundWhileFoldersVanish) {
  for (const char* name : {"a", "z"}) fs::create_symlink("kept", temp_ / name);
  std::atomic<bool> over = false;
  std::thread rotates([&] {
    while (!over) {
      for (int i = 0; i < 20; ++i) fs::create_directories(temp_ / fmt::format("step-{}/deep", i));
      for (int i = 0; i < 20; ++i) fs::remove_all(temp_ / fmt::format("step-{}", i));
    }
  });
  for (int i = 0; i < 2000; ++i) {
    const CheckpointLinks links = FindLinks(temp_.path());
    if (links.size() == 2) continue;
    ADD_FAILURE() << links.size() << " links after " << i << " times";
    break;
  }
  over = true;
  rotates.join();
  EXPECT_TRUE(IsLinkWithin(temp_.path(), "a"));
  fs::create_symlink("..", temp_ / "up");
  fs::create_directories(temp_ / "folder");
  for (const char* name : {"up", "folder", "nothing"}) EXPECT_FALSE(IsLinkWithin(temp_.path(), name)) << name;
}

TEST_F(CheckpointLinksTest, WhatLiesBehindALink) {
  const CheckpointLinks links{{"a", {}}, {"b/c", {}}};
  for (const char* name : {"a", "a/x", "a/x/y", "b/c", "b/c/d"}) EXPECT_TRUE(IsBehindLink(links, name)) << name;
  for (const char* name : {"ab", "b", "b/cd", "b/d", "x/a"}) EXPECT_FALSE(IsBehindLink(links, name)) << name;
}

TEST_F(CheckpointLinksTest, AFileBehindALinkIsNotItsOwn) {
  fs::create_directories(temp_ / "step");
  std::ofstream(temp_ / "step/a") << "text";
  TempFolder other;
  std::ofstream(other / "b") << "text";
  fs::create_symlink("step", temp_ / "latest");
  fs::create_symlink("step/a", temp_ / "a");
  fs::create_symlink(other.path(), temp_ / "out");
  for (const char* name : {"step/a", "out/b"}) EXPECT_TRUE(IsFileOfItsOwn(temp_.path(), name)) << name;
  for (const char* name : {"latest/a", "a", "step/b"}) EXPECT_FALSE(IsFileOfItsOwn(temp_.path(), name)) << name;
}

TEST_F(CheckpointLinksTest, AreMadeAndReplacedAndLeaveFilesAlone) {
  EXPECT_TRUE(*Restore("run/latest", "step-1"));
  EXPECT_EQ(fs::read_symlink(temp_ / "run/latest"), "step-1");
  EXPECT_FALSE(*Restore("run/latest", "step-1"));
  EXPECT_FALSE(*Restore("run/latest", "step-2", 1));  // this one is newer
  EXPECT_TRUE(*Restore("run/latest", "step-2"));
  EXPECT_EQ(fs::read_symlink(temp_ / "run/latest"), "step-2");
  fs::create_directories(temp_ / "folder");
  EXPECT_FALSE(*Restore("folder", "run"));
  EXPECT_TRUE(fs::is_directory(fs::symlink_status(temp_ / "folder")));
}

TEST_F(CheckpointLinksTest, NoneLeadsOut) {
  for (const auto& [name, target] : {std::pair("a", "/etc"),
                                     {"a", ".."},
                                     {"a", "../x"},
                                     {"a", "b/../.."},
                                     {"a", "b/../x"},
                                     {"a", ""},
                                     {"a", "."},
                                     {"x/a", "../.."},
                                     {"x/a", ".."},
                                     {"../a", "b"},
                                     {"x/../../a", "b"}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Restore(name, target).status())) << name << " -> " << target;
  }
  EXPECT_TRUE(fs::is_empty(temp_.path()) || !fs::exists(fs::symlink_status(temp_ / "a")));
}

}  // namespace
}  // namespace millrace
