#include "transfer/other_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/atomic_file.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class OtherFilesTest : public ::testing::Test {
 protected:
  std::vector<std::string> Found(const OtherFilesOptions& options = {}) {
    std::vector<std::string> found;
    const absl::Status status = ForEachOtherFile(root_, options, [&](const OtherFile& file) {
      found.push_back(fmt::format("{}: {}", file.name, KindText(file.kind)));
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    return found;
  }
  void Write(const std::string& name) {
    std::filesystem::create_directories(std::filesystem::path(root_ + name).parent_path());
    std::ofstream(root_ + name) << "text";
  }

  TempFolder folder_;
  const std::string root_ = folder_.path() + "/";
};

TEST_F(OtherFilesTest, FilesAndFoldersAreObjects) {
  Write("a");
  Write("b/c");
  std::filesystem::create_symlink("a", root_ + "link");
  std::filesystem::create_directory_symlink("b", root_ + "link-to-b");
  EXPECT_THAT(Found(), IsEmpty());
  EXPECT_TRUE(ForEachOtherFile(root_ + "nowhere/", {}, [](const OtherFile&) { return absl::OkStatus(); }).ok());
}

TEST_F(OtherFilesTest, TheOthersAreFoundWithTheirKinds) {
  Write("b/c");
  Write("b/.millrace-tmp-1");
  ASSERT_EQ(mkfifo((root_ + "b/pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", root_ + "b/to-pipe");
  std::filesystem::create_symlink("nowhere", root_ + "b/broken");
  std::filesystem::create_symlink("itself", root_ + "b/itself");
  std::filesystem::create_symlink("/dev/null", root_ + "b/null");
  std::filesystem::create_directory_symlink("..", root_ + "b/up");
  const int socket_fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = root_ + "b/socket";
  ASSERT_LT(path.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  ASSERT_EQ(bind(socket_fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  close(socket_fd);
  EXPECT_THAT(Found(),
              ElementsAre("b/.millrace-tmp-1: a temporary file", "b/broken: a link that leads nowhere",
                          "b/itself: a link that leads nowhere", "b/null: a device", "b/pipe: a pipe",
                          "b/socket: a socket", "b/to-pipe: a pipe", "b/up: a link to a folder that it is in"));
  EXPECT_THAT(Found({.recursive = false, .stop = {}}), IsEmpty());
}

TEST_F(OtherFilesTest, LinksToFoldersAreFollowedOrNot) {
  Write("elsewhere/.millrace-tmp-1");
  Write("here/x");
  std::filesystem::create_directory_symlink("../elsewhere", root_ + "here/link");
  EXPECT_THAT(Found(), ElementsAre("elsewhere/.millrace-tmp-1: a temporary file",
                                   "here/link/.millrace-tmp-1: a temporary file"));
  EXPECT_THAT(Found({.follow_links = false, .stop = {}}), ElementsAre("elsewhere/.millrace-tmp-1: a temporary file"));
}

TEST_F(OtherFilesTest, AStopAndAnErrorEndIt) {
  Write("b/.millrace-tmp-1");
  std::stop_source stop;
  stop.request_stop();
  const auto none = [](const OtherFile&) { return absl::OkStatus(); };
  EXPECT_TRUE(absl::IsCancelled(ForEachOtherFile(root_, {.stop = stop.get_token()}, none)));
  const absl::Status failed =
      ForEachOtherFile(root_, {}, [](const OtherFile&) { return absl::DataLossError("enough"); });
  EXPECT_EQ(failed.code(), absl::StatusCode::kDataLoss);
}

TEST_F(OtherFilesTest, ATemporaryFileIsRemovedUnlessAWriterHoldsIt) {
  Write(".millrace-tmp-1");
  EXPECT_TRUE(RemoveTemporaryFile(root_ + ".millrace-tmp-1").ok()) << "of another machine, and young";
  EXPECT_TRUE(RemoveTemporaryFile(root_ + ".millrace-tmp-1").ok()) << "it is gone";
  const auto file = AtomicFile::Create(root_ + "x", "x", Durability::kUnsynced);
  ASSERT_TRUE(file.ok()) << file.status();
  std::string held;
  ASSERT_TRUE(ForEachOtherFile(root_, {}, [&](const OtherFile& found) {
                held = root_ + found.name;
                return absl::OkStatus();
              }).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(RemoveTemporaryFile(held)));
  EXPECT_TRUE((*file)->Commit(false).ok());
}

}  // namespace
}  // namespace millrace
