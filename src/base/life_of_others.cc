#include "base/life_of_others.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

#include "base/life_sign.h"
#include "base/unique_fd.h"

namespace millrace {

namespace {

using LifeClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kOthersEvery{500};
constexpr size_t kMaxProcesses = 1000;
constexpr size_t kMaxEnvironment = size_t{8} << 20;

// The system headers may be older than the call.
struct OpenHow {
  uint64_t flags;
  uint64_t mode;
  uint64_t resolve;
};
constexpr long kOpenat2 = 437;
constexpr uint64_t kNoMagicLinks = 0x02;
constexpr uint64_t kInRoot = 0x10;

// Returns the path that the program has in its environment; it is empty if there is none. `process` is its folder in
// /proc.
std::string HeartbeatFileOf(const UniqueFd& process) {
  const UniqueFd file(openat(process.get(), "environ", O_RDONLY | O_CLOEXEC));
  std::string text(1, '\0');
  char part[4096];
  for (ssize_t n = 0; file && text.size() < kMaxEnvironment && (n = read(file.get(), part, sizeof(part))) > 0;) {
    text.append(part, static_cast<size_t>(n));
  }
  const std::string name = fmt::format("{}{}=", '\0', kHeartbeatVariable);
  const size_t begin = text.find(name);
  return begin == text.npos ? "" : text.c_str() + begin + name.size();
}

bool SeesTheSameFiles(const UniqueFd& process) {
  struct stat theirs {
  }, ours{};
  return fstatat(process.get(), "ns/mnt", &theirs, 0) == 0 && stat("/proc/self/ns/mnt", &ours) == 0 &&
         theirs.st_ino == ours.st_ino && theirs.st_dev == ours.st_dev;
}

// Opens the file that the process, which may be in a container, has at the path. Opening it so has no effect, whatever
// it is.
UniqueFd OpenAsSeenBy(const UniqueFd& process, const std::string& path) {
  constexpr int kFlags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  const UniqueFd root(openat(process.get(), "root", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return UniqueFd(-1);
  OpenHow how{.flags = kFlags, .mode = 0, .resolve = kInRoot | kNoMagicLinks};
  UniqueFd file(static_cast<int>(syscall(kOpenat2, root.get(), path.c_str(), &how, sizeof(how))));
  // The kernel, or the filter of a container, does not know the call.
  if (file || (errno != ENOSYS && errno != EPERM) || !SeesTheSameFiles(process)) return file;
  return UniqueFd(open(path.c_str(), kFlags));
}

}  // namespace

LifeOfOthers::LifeOfOthers(std::function<bool(dev_t)> is_own)
    : is_own_(std::move(is_own)), thread_([this] { Run(); }) {}

LifeOfOthers::~LifeOfOthers() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void LifeOfOthers::Show(pid_t process) {
  if (process <= 0) return;  // of another PID namespace
  const std::lock_guard lock(mutex_);
  const auto now = LifeClock::now();
  const auto [at, is_new] = shown_.try_emplace(process, now);
  if (!is_new && now - at->second < kOthersEvery) return;
  at->second = now;
  if (shown_.size() > kMaxProcesses) shown_.clear();
  if (waiting_.size() < kMaxProcesses) waiting_.insert(process);
  changed_.notify_one();
}

void LifeOfOthers::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
    if (ends_) return;
    const std::set<pid_t> processes = std::exchange(waiting_, {});
    for (const pid_t process : processes) {
      if (ends_) return;
      lock.unlock();
      Touch(process);
      lock.lock();
    }
  }
}

void LifeOfOthers::Touch(pid_t process) const {
  // A sign for a thread of this process, whose calls may reach the mount, would be followed by another.
  if (access(fmt::format("/proc/self/task/{}", process).c_str(), F_OK) == 0) return;
  // Stands for this process also when its number is given to another one.
  const UniqueFd folder(open(fmt::format("/proc/{}", process).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat user {};
  if (!folder || fstat(folder.get(), &user) != 0) return;
  const std::string path = HeartbeatFileOf(folder);
  if (!path.starts_with('/')) return;
  const UniqueFd file = OpenAsSeenBy(folder, path);
  struct statx info {};
  // The call does not ask the file system.
  if (!file || statx(file.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_UID, &info) != 0) return;
  if (!S_ISREG(info.stx_mode) || info.stx_uid != user.st_uid) return;
  if (is_own_(makedev(info.stx_dev_major, info.stx_dev_minor))) return;
  (void)utimensat(AT_FDCWD, fmt::format("/proc/self/fd/{}", file.get()).c_str(), nullptr, 0);
}

}  // namespace millrace
