#include "base/within.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace millrace {
namespace {

namespace fs = std::filesystem;

TEST(WithinTest, OpensWhatLiesInTheFoldersAndNothingElse) {
  std::string made = ::testing::TempDir() + "within-XXXXXX";
  ASSERT_NE(mkdtemp(made.data()), nullptr);
  const fs::path root = fs::canonical(made);
  for (const char* folder : {"open", "open/sub", "more", "secret", "opened"}) {
    fs::create_directories(root / folder);
    std::ofstream(root / folder / "x") << folder;
  }
  const std::vector<std::string> within = {root / "open", root / "more"};
  const auto link = [&](const fs::path& to, const std::string& name) { fs::create_symlink(to, root / "open" / name); };
  link("sub/x", "inside");
  link(root / "open/sub/x", "absolute");
  link("../more/x", "other");
  link("sub", "folder");
  link("../secret/x", "out");
  link("../secret", "folder-out");
  link("../opened/x", "longer-name");
  link("out", "twice");
  link("/proc/self/root" / (root / "secret/x").relative_path(), "magic");
  for (const char* name : {"x", "sub/x", "sub/../sub/x", "inside", "absolute", "other", "folder/x", "../more/x"}) {
    const UniqueFd file = OpenWithin(within, root / "open" / name, O_RDONLY | O_CLOEXEC);
    char first = 0;
    ASSERT_TRUE(file) << name;
    EXPECT_EQ(read(file.get(), &first, 1), 1) << name;
  }
  for (const char* name : {"out", "folder-out/x", "folder-out", "longer-name", "twice", "magic", "../secret/x", ".."}) {
    for (const int flags : {O_RDONLY | O_CLOEXEC, O_PATH | O_CLOEXEC}) {
      errno = 0;
      EXPECT_FALSE(OpenWithin(within, root / "open" / name, flags)) << name;
      EXPECT_EQ(errno, EXDEV) << name;
    }
  }
  EXPECT_FALSE(OpenWithin(within, root / "open/none", O_RDONLY));
  EXPECT_EQ(errno, ENOENT);
  // A pipe out there would wait for a writer if it was opened to be looked at.
  ASSERT_EQ(mkfifo((root / "secret/pipe").c_str(), 0600), 0);
  EXPECT_FALSE(OpenWithin(within, root / "secret/pipe", O_RDONLY));
  EXPECT_TRUE(OpenWithin({"/"}, root / "secret/x", O_RDONLY));
  // A root that the system did not return allows nothing.
  EXPECT_FALSE(OpenWithin({std::string()}, root / "secret/x", O_RDONLY));
  EXPECT_EQ(errno, EXDEV);
  fs::remove_all(root);
}

}  // namespace
}  // namespace millrace
