#include "transfer/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/log.h"
#include "base/long_task.h"

namespace millrace {

namespace {

// flock cannot be interrupted while it waits, so it is called again and again.
constexpr std::chrono::milliseconds kAskAgain{50};
// After so many times the user is informed: the other process may be stopped, or belong to another user.
constexpr int kAskedInSilence = 200;
constexpr std::chrono::milliseconds kForever = std::chrono::milliseconds::max();
constexpr mode_t kPrivate = 0600;
constexpr mode_t kModes = 07777;

}  // namespace

FileLock::~FileLock() {
  if (file_ < 0) return;
  flock(file_, LOCK_UN);  // a forked child has a copy of the descriptor, which would keep the lock
  close(file_);
}

absl::StatusOr<FileLock> FileLock::OfFolder(const std::string& path, std::stop_token stop,
                                            std::chrono::milliseconds max_wait) {
  FileLock lock(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  RETURN_IF_ERROR(lock.Take(path, stop, max_wait));
  return lock;
}

absl::StatusOr<FileLock> FileLock::OfFile(const std::string& path, std::stop_token stop) {
  // Others must not even read it: who may read a file may lock it.
  FileLock lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kPrivate));
  struct stat info {};
  if (lock.file_ < 0 || fstat(lock.file_, &info) != 0) return FileLock();
  if (info.st_uid != geteuid()) {
    Log(LogLevel::kWarning, "transfer",
        fmt::format("{}: belongs to another user (number {}), so it is not locked; remove it, or name another cache "
                    "folder (MILLRACE_CACHE)",
                    path, info.st_uid));
    return FileLock();
  }
  if ((info.st_mode & kModes) != kPrivate) (void)fchmod(lock.file_, kPrivate);  // of an older version
  RETURN_IF_ERROR(lock.Take(path, stop, kForever));
  return lock;
}

absl::Status FileLock::Take(const std::string& path, const std::stop_token& stop, std::chrono::milliseconds max_wait) {
  if (file_ < 0) return absl::OkStatus();
  const auto begin = std::chrono::steady_clock::now();
  for (int asked = 0; flock(file_, LOCK_EX | LOCK_NB) != 0; ++asked) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return absl::OkStatus();
    // In the coarser unit: kForever in nanoseconds would overflow.
    if (std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin) >= max_wait) {
      return absl::DeadlineExceededError(
          fmt::format("{}: another process has locked it for {:.3g} s (lslocks shows it)", path,
                      std::chrono::duration<double>(max_wait).count()));
    }
    if (asked == kAskedInSilence) {
      Log(LogLevel::kWarning, "transfer",
          fmt::format("{}: waiting for another process that has locked it (lslocks shows it)", path));
    }
    if (!SleepUnlessStopped(kAskAgain, stop)) {
      return absl::CancelledError(fmt::format("{}: interrupted while another process holds its lock", path));
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
