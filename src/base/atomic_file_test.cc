#include "base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <set>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "base/crypto.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Each test has a folder of its own. The test store/file_store_test.cc also tests AtomicFile, for objects.
class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (fs::temp_directory_path() / "atomic-file-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(std::string_view name) const { return (folder_ / name).string(); }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::set<std::string> Files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.is_regular_file()) names.insert(fs::relative(entry.path(), folder_).string());
    }
    return names;
  }

  fs::path folder_;
};

TEST_F(AtomicFileTest, ReplacesAFileAndMakesFolders) {
  for (const std::string contents : {"first", "", "the third"}) {
    ASSERT_TRUE(WriteFileAtomically(Path("a/b/file"), contents).ok());
    EXPECT_EQ(Read(Path("a/b/file")), contents);
  }
  EXPECT_THAT(Files(), ElementsAre("a/b/file"));
}

// Another writer's Delete removes folders that have become empty, also right after they were made for a new file.
TEST_F(AtomicFileTest, EmptyFoldersMayVanishMeanwhile) {
  std::jthread remover([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      rmdir(Path("a/b").c_str());
      rmdir(Path("a").c_str());
      std::this_thread::sleep_for(std::chrono::microseconds(10));
    }
  });
  for (int i = 0; i < 500; ++i) {
    const absl::Status status = WriteFileAtomically(Path("a/b/file"), "text");
    ASSERT_TRUE(status.ok()) << status;
    unlink(Path("a/b/file").c_str());
  }
}

TEST_F(AtomicFileTest, OnlyAbandonedFilesAreRemoved) {
  ASSERT_TRUE(WriteFileAtomically(Path("file"), "x").ok());
  fs::create_directories(Path("deeper"));
  const pid_t killed = fork();
  if (killed == 0) {
    const auto one = AtomicFile::Create(Path("a"), "a", Durability::kUnsynced);
    const auto other = AtomicFile::Create(Path("deeper/b"), "b", Durability::kUnsynced);
    _exit(one.ok() && other.ok() ? 0 : 1);  // without destructors, as a kill
  }
  int code = 1;
  ASSERT_EQ(waitpid(killed, &code, 0), killed);
  ASSERT_EQ(code, 0);
  // These files are of other machines, whose locks may not reach here.
  for (const char* name : {".millrace-tmp-0123456789abcdef-young", ".millrace-tmp-0123456789abcdef-old"})
    std::ofstream(Path(name)) << "y";
  fs::last_write_time(Path(".millrace-tmp-0123456789abcdef-old"),
                      fs::file_time_type::clock::now() - std::chrono::hours(25));
  auto living = AtomicFile::Create(Path("new"), "new", Durability::kUnsynced);
  ASSERT_TRUE(living.ok()) << living.status();
  ASSERT_TRUE((*living)->Append(AsBytes("z")).ok());
  ASSERT_EQ(Files().size(), 6u);
  ASSERT_TRUE(RemoveAbandoned(folder_).ok());
  EXPECT_EQ(Files().size(), 4u)
      << "the file, the one that is being written, the young one, and the one that lies deeper";
  ASSERT_TRUE((*living)->Commit(false).ok());
  ASSERT_TRUE(RemoveAbandoned(folder_).ok());
  ASSERT_TRUE(RemoveAbandoned(Path("deeper")).ok());
  EXPECT_THAT(Files(), ElementsAre(".millrace-tmp-0123456789abcdef-young", "file", "new"));
  EXPECT_EQ(Read(Path("new")), "z");
  EXPECT_TRUE(RemoveAbandoned(Path("none")).ok());
  EXPECT_FALSE(RemoveAbandoned(Path("file")).ok());
}

TEST_F(AtomicFileTest, WritesThroughSymbolicLinks) {
  ASSERT_TRUE(WriteFileAtomically(Path("real/file"), "old").ok());
  fs::create_symlink("real/file", Path("link"));
  fs::create_symlink("link", Path("link to link"));
  fs::create_symlink("real/new", Path("dangling"));
  ASSERT_TRUE(WriteFileAtomically(Path("link to link"), "new").ok());
  ASSERT_TRUE(WriteFileAtomically(Path("dangling"), "made").ok());
  EXPECT_EQ(Read(Path("real/file")), "new");
  EXPECT_EQ(Read(Path("real/new")), "made");
  EXPECT_TRUE(fs::is_symlink(Path("link")) && fs::is_symlink(Path("link to link")) && fs::is_symlink(Path("dangling")));
  EXPECT_THAT(Files(), ElementsAre("real/file", "real/new"));
}

TEST_F(AtomicFileTest, ReplacesALinkItselfIfItIsAskedTo) {
  std::ofstream(Path("thesis")) << "two years of work";
  for (const std::string& target : {Path("thesis"), Path("nowhere")}) {
    fs::remove(Path("link"));
    fs::create_symlink(target, Path("link"));
    const auto file = *AtomicFile::Create(Path("link"), "link", Durability::kUnsynced, 0600, LinkAtPath::kReplaced);
    ASSERT_TRUE(file->Append(AsBytes("new")).ok());
    ASSERT_TRUE(file->Commit(false).ok());
    EXPECT_FALSE(fs::is_symlink(Path("link")));
    EXPECT_EQ(Read(Path("link")), "new");
  }
  EXPECT_EQ(Read(Path("thesis")), "two years of work");
  EXPECT_FALSE(fs::exists(Path("nowhere")));
}

TEST_F(AtomicFileTest, NeverReplacesWhatIsNoFile) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", Path("link"));
  for (const char* name : {"pipe", "link"}) {
    const absl::Status written = WriteFileAtomically(Path(name), "x");
    EXPECT_TRUE(absl::IsFailedPrecondition(written)) << written;
    EXPECT_THAT(std::string(written.message()), HasSubstr("is a device, a pipe or a socket"));
  }
  EXPECT_TRUE(fs::is_fifo(Path("pipe")));
}

TEST_F(AtomicFileTest, ANameWithoutAFolderIsInTheCurrentOne) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  const absl::Status written = WriteFileAtomically("plain", "x");
  fs::current_path(before);
  EXPECT_TRUE(written.ok()) << written;
  EXPECT_THAT(Files(), ElementsAre("plain"));
}

TEST_F(AtomicFileTest, AFailureLeavesTheOldFileAndNoOther) {
  ASSERT_TRUE(WriteFileAtomically(Path("file"), "old").ok());
  // The limit of the file size stands for a full disk.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status written = WriteFileAtomically(Path("file"), std::string(5000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, signal_before);
  EXPECT_EQ(written.code(), absl::StatusCode::kResourceExhausted) << written;
  EXPECT_THAT(std::string(written.message()), HasSubstr(Path("file") + ": writing failed"));
  EXPECT_EQ(Read(Path("file")), "old");
  EXPECT_THAT(Files(), ElementsAre("file"));

  fs::create_directories(folder_ / "folder/inside");
  EXPECT_EQ(WriteFileAtomically(Path("folder"), "x").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteFileAtomically(Path("file/below"), "x").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Files(), ElementsAre("file"));
}

TEST_F(AtomicFileTest, IsHiddenUntilItIsCommitted) {
  for (const Durability durability : {Durability::kSynced, Durability::kUnsynced}) {
    {
      const auto file = AtomicFile::Create(Path("file"), "the file", durability);
      ASSERT_TRUE(file.ok()) << file.status();
      ASSERT_TRUE((*file)->Append(AsBytes("x")).ok());
      const std::set<std::string> files = Files();
      ASSERT_EQ(files.size(), 1u);
      EXPECT_TRUE(IsTemporaryName(*files.begin())) << *files.begin();
    }
    EXPECT_THAT(Files(), IsEmpty());
  }
  EXPECT_FALSE(IsTemporaryName("file"));
}

TEST_F(AtomicFileTest, OnlyIfAbsent) {
  for (const auto code : {absl::StatusCode::kOk, absl::StatusCode::kAlreadyExists}) {
    const auto file = AtomicFile::Create(Path("file"), "the file", Durability::kSynced);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->Commit(/*only_if_absent=*/true).status().code(), code);
  }
  EXPECT_THAT(Files(), ElementsAre("file"));
}

// Makes system calls fail for the rest of this process, as file systems without them do.
bool Refuse(const std::vector<std::pair<long, int>>& calls) {
  std::vector<sock_filter> program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const auto& [call, error] : calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{.len = static_cast<unsigned short>(program.size()), .filter = program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

std::vector<std::pair<long, int>> LinksRefused(int error) {
  std::vector<std::pair<long, int>> calls{{SYS_linkat, error}};
#ifdef SYS_link
  calls.emplace_back(SYS_link, error);
#endif
  return calls;
}

// Runs in a process of its own, where hard links, the rename that replaces nothing, or both are refused (0: they are
// not). Returns 0 when the first file is put and the second is not, and the first is left as it was.
int PutTwice(const std::string& path, int link_error, int rename_error) {
  std::vector<std::pair<long, int>> calls;
  if (link_error != 0) calls = LinksRefused(link_error);
  if (rename_error != 0) calls.emplace_back(SYS_renameat2, rename_error);
  if (!Refuse(calls)) return 77;
  if (link_error != 0 && (link("/proc/self/exe", (path + "-link").c_str()) == 0 || errno != link_error)) return 2;
  for (const auto code : {absl::StatusCode::kOk, absl::StatusCode::kAlreadyExists}) {
    const auto file = AtomicFile::Create(path, "the file", Durability::kSynced);
    if (!file.ok()) return 3;
    if (!(*file)->Append(AsBytes(code == absl::StatusCode::kOk ? "first" : "second")).ok()) return 4;
    if ((*file)->Commit(/*only_if_absent=*/true).status().code() != code) return 5;
  }
  return 0;
}

TEST_F(AtomicFileTest, OnlyIfAbsentWithoutSomeSystemCalls) {
  int number = 0;
  for (const int link_error : {0, EPERM, ENOSYS, EOPNOTSUPP}) {
    for (const int rename_error : {0, EINVAL, EPERM, ENOSYS, EOPNOTSUPP}) {
      const std::string path = Path(std::to_string(number++));
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) _exit(PutTwice(path, link_error, rename_error));
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFEXITED(status));
      if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this machine has no seccomp filters";
      EXPECT_EQ(WEXITSTATUS(status), 0) << link_error << " " << rename_error;
      EXPECT_EQ(Read(path), "first");
    }
  }
  EXPECT_EQ(Files().size(), static_cast<size_t>(number)) << "a temporary file is left";
}

// Runs `body` in `count` processes at once, in which neither hard links nor renames that replace nothing work. Returns
// their exit statuses; none without seccomp.
std::vector<int> WithoutLinks(int count, const std::function<int()>& body) {
  std::vector<std::pair<long, int>> calls = LinksRefused(EPERM);
  calls.emplace_back(SYS_renameat2, EINVAL);
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(Refuse(calls) ? body() : 77);
    children.push_back(child);
  }
  std::vector<int> statuses;
  for (const pid_t child : children) {
    int status = 0;
    if (waitpid(child, &status, 0) == child && WIFEXITED(status)) statuses.push_back(WEXITSTATUS(status));
  }
  return std::ranges::count(statuses, 77) > 0 ? std::vector<int>() : statuses;
}

TEST_F(AtomicFileTest, OnlyOneIsPutWithoutLinksEither) {
  constexpr int kProcesses = 4;
  constexpr int kFiles = 60;
  // Each process counts in the exit status how many of the files it has put.
  const std::vector<int> put = WithoutLinks(kProcesses, [&] {
    int count = 0;
    for (int i = 0; i < kFiles; ++i) {
      const auto file = AtomicFile::Create(Path(std::to_string(i)), "the file", Durability::kUnsynced);
      if (!file.ok()) return 78;
      const absl::Status status = (*file)->Commit(/*only_if_absent=*/true).status();
      if (status.ok()) ++count;
      if (!status.ok() && !absl::IsAlreadyExists(status)) return 79;
    }
    return count;
  });
  if (put.empty()) GTEST_SKIP() << "this machine has no seccomp filters";
  for (const int count : put) ASSERT_LE(count, kFiles) << "78: no file was made, 79: one was not put";
  EXPECT_EQ(std::accumulate(put.begin(), put.end(), 0), kFiles);
  EXPECT_EQ(Files().size(), size_t{kFiles}) << "a temporary file is left";
}

TEST_F(AtomicFileTest, AReservationOfAKilledProcess) {
  const auto commit = [&]() -> int {
    const auto file = AtomicFile::Create(Path("file"), "the file", Durability::kUnsynced);
    return file.ok() ? static_cast<int>((*file)->Commit(/*only_if_absent=*/true).status().code()) : 78;
  };
  // The name of a reservation is seen while a process has it: the file's folder takes no other file meanwhile.
  const std::string reservation = Path(fmt::format("{}place-{:016x}", kTemporaryPrefix, Xxh3(AsBytes("file"))));
  ASSERT_TRUE(WriteFileAtomically(reservation, "a process of another machine").ok());
  const timespec old{.tv_sec = 1'000'000'000, .tv_nsec = 0};
  const std::array<timespec, 2> times = {old, old};
  ASSERT_EQ(utimensat(AT_FDCWD, reservation.c_str(), times.data(), 0), 0);
  const std::vector<int> refused = WithoutLinks(1, commit);
  if (refused.empty()) GTEST_SKIP() << "this machine has no seccomp filters";
  EXPECT_THAT(refused, ElementsAre(static_cast<int>(absl::StatusCode::kFailedPrecondition)));
  EXPECT_THAT(Files(), ElementsAre(fs::path(reservation).filename().string()));

  // The reservation of a process of this machine holds the prefix of the machine's temporary files.
  const auto own = AtomicFile::Create(Path("other"), "other", Durability::kUnsynced);
  ASSERT_TRUE(own.ok());
  std::string mine;
  for (const std::string& name : Files()) {
    if (name.find("place-") == std::string::npos) mine = name.substr(0, name.rfind('-') + 1);
  }
  ASSERT_TRUE(WriteFileAtomically(reservation, mine).ok());
  EXPECT_THAT(WithoutLinks(1, commit), ElementsAre(0));
  EXPECT_FALSE(fs::exists(reservation));
  EXPECT_TRUE(fs::exists(Path("file")));
}

}  // namespace
}  // namespace millrace
