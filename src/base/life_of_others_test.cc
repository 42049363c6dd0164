#include "base/life_of_others.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr int kCannotBePrepared = 77;

/// There is a process that waits in `cat`, until it is destroyed, and a file of long ago that MILLRACE_HEARTBEAT names
/// in it.
class LifeOfOthersTest : public ::testing::Test {
 protected:
  LifeOfOthersTest() {
    for (const char* name : {"here", "there"}) fs::create_directory(folder_ + "/" + name);
    for (const std::string& path : {beat_, other_}) Age(path);
  }
  ~LifeOfOthersTest() override {
    End();
    fs::remove_all(folder_);
  }

  static void Age(const std::string& path) {
    std::ofstream(path).close();
    const timespec times[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
    utimensat(AT_FDCWD, path.c_str(), times, 0);
  }
  static bool IsNew(const std::string& path) {
    struct stat info {};
    return stat(path.c_str(), &info) == 0 && info.st_mtim.tv_sec > 1;
  }

  /// In a mount namespace of its own, `there` is mounted on `here`. False if that is not allowed.
  bool Start(bool in_namespace) {
    int input[2];
    int begun[2];  // closed by exec
    if (pipe2(input, O_CLOEXEC) != 0 || pipe2(begun, O_CLOEXEC) != 0) return false;
    child_ = fork();
    if (child_ == 0) {
      dup2(input[0], STDIN_FILENO);
      setenv("MILLRACE_HEARTBEAT", beat_.c_str(), 1);
      const bool ready =
          !in_namespace ||
          (unshare(CLONE_NEWNS) == 0 && mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount((folder_ + "/there").c_str(), (folder_ + "/here").c_str(), nullptr, MS_BIND, nullptr) == 0);
      if (ready) execlp("cat", "cat", nullptr);
      (void)!write(begun[1], "x", 1);
      _exit(kCannotBePrepared);
    }
    close(input[0]);
    close(begun[1]);
    input_ = input[1];
    char failed = 0;
    const bool runs = child_ > 0 && read(begun[0], &failed, 1) == 0;
    close(begun[0]);
    return runs;
  }
  void End() {
    if (child_ <= 0) return;
    close(input_);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }
  /// Signs are given a few times a second: until one was, or `done`.
  template <typename Done>
  void ShowUntil(LifeOfOthers& life, Done done) const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!done() && std::chrono::steady_clock::now() < limit) {
      life.Show(child_);
      std::this_thread::yield();
    }
    EXPECT_TRUE(done());
  }

  static std::string MakeFolder() {
    std::string path = ::testing::TempDir() + "life-XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    return path;
  }

  const std::string folder_ = MakeFolder();
  const std::string beat_ = folder_ + "/here/beat";
  const std::string other_ = folder_ + "/there/beat";
  pid_t child_ = 0;
  int input_ = -1;
};

TEST_F(LifeOfOthersTest, ChangesTheTimeOfTheFile) {
  ASSERT_TRUE(Start(false));
  std::thread::id thread;
  {
    LifeOfOthers life([&](dev_t) {
      thread = std::this_thread::get_id();
      return false;
    });
    ShowUntil(life, [&] { return IsNew(beat_); });
  }
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_FALSE(IsNew(other_));
}

TEST_F(LifeOfOthersTest, SomeFilesAndProcessesAreLeftAlone) {
  ASSERT_TRUE(Start(false));
  struct stat info {};
  ASSERT_EQ(stat(beat_.c_str(), &info), 0);
  std::atomic<bool> asked{false};
  {
    LifeOfOthers life([&](dev_t device) {
      asked = device == info.st_dev;
      return true;
    });
    ShowUntil(life, [&] { return asked.load(); });
    for (const pid_t none : {0, -1, getpid()}) life.Show(none);
  }
  EXPECT_FALSE(IsNew(beat_));
}

// A file that hangs stops neither the caller nor, when it ends, more than the destructor.
TEST_F(LifeOfOthersTest, ShowDoesNotWaitForTheFile) {
  ASSERT_TRUE(Start(false));
  std::atomic<bool> hangs{false};
  std::atomic<bool> released{false};
  LifeOfOthers life([&](dev_t) {
    hangs = true;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!released && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    EXPECT_TRUE(released);
    return false;
  });
  ShowUntil(life, [&] { return hangs.load(); });
  for (pid_t process = 1; process < 5000; ++process) life.Show(process);
  released = true;
}

// The test works as if the mount ran beside a container: the path stands for another file here.
TEST_F(LifeOfOthersTest, ThePathIsThatOfTheProcess) {
  if (!Start(true)) GTEST_SKIP() << "mount namespaces need root";
  LifeOfOthers life([](dev_t) { return false; });
  ShowUntil(life, [&] { return IsNew(other_); });
  EXPECT_FALSE(IsNew(beat_));
}

}  // namespace
}  // namespace millrace
