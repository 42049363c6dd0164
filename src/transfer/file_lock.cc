#include "transfer/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/log.h"

namespace millrace {

namespace {

// flock cannot be told to stop waiting, so it is asked again and again.
constexpr std::chrono::milliseconds kAskAgain{50};
// After so many times the user is informed: the other process may be stopped, or belong to another user.
constexpr int kAskedInSilence = 200;

}  // namespace

FileLock::~FileLock() {
  if (file_ < 0) return;
  flock(file_, LOCK_UN);  // a forked child has a copy of the descriptor, which would keep the lock
  close(file_);
}

absl::StatusOr<FileLock> FileLock::OfFolder(const std::string& path, std::stop_token stop) {
  return Take(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), path, stop);
}

absl::StatusOr<FileLock> FileLock::OfFile(const std::string& path, std::stop_token stop) {
  // Others must not even read it: who may read a file may lock it.
  return Take(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), path, stop);
}

absl::StatusOr<FileLock> FileLock::Take(int file, const std::string& path, const std::stop_token& stop) {
  FileLock lock(file);
  if (file < 0) return lock;
  std::mutex mutex;
  std::condition_variable_any woken;  // by nothing but the stop
  std::unique_lock sleep(mutex);
  for (int asked = 0; flock(file, LOCK_EX | LOCK_NB) != 0; ++asked) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return FileLock();
    if (asked == kAskedInSilence) {
      Log(LogLevel::kWarning, "transfer",
          fmt::format("{}: waiting for another process that has locked it (lslocks shows it)", path));
    }
    woken.wait_for(sleep, stop, kAskAgain, [] { return false; });
    if (stop.stop_requested()) {
      return absl::CancelledError(fmt::format("{}: interrupted while another process holds its lock", path));
    }
  }
  return lock;
}

}  // namespace millrace
