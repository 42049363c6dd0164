#include "s3/credential_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/unique_fd.h"

namespace millrace {

namespace {

constexpr size_t kMaxOutputBytes = 64 << 10;
constexpr int kLookMillis = 50;  // between looks at the child, the time and `stop`

/// The attributes of posix_spawn, freed whatever happens.
struct SpawnSettings {
  explicit SpawnSettings(int output) {
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
    // A group of its own, so that its children can be killed with it; signals as a program expects them.
    sigset_t none;
    sigemptyset(&none);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

/// A running child; killed with its group, and waited for, unless it has ended.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() {
    if (status_) return;
    ::kill(-pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Its status when it has ended. Where the program ignores SIGCHLD there is none to be had: then 0.
  std::optional<int> Ended() {
    int status = 0;
    const pid_t got = status_ ? 0 : ::waitpid(pid_, &status, WNOHANG);
    if (got == pid_) status_ = status;
    if (got < 0 && errno == ECHILD) status_ = 0;
    return status_;
  }

 private:
  const pid_t pid_;
  std::optional<int> status_;
};

absl::Status Failed(std::string what) {
  return absl::UnavailableError(std::move(what));
}

/// Reads what is there. False at the end of the stream.
bool ReadSome(int fd, std::string& out) {
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got > 0) {
      out.append(buffer.data(), static_cast<size_t>(got));
      if (out.size() > kMaxOutputBytes) return false;
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    return got < 0 && errno == EAGAIN;
  }
}

}  // namespace

absl::StatusOr<std::string> RunCredentialProcess(const std::string& command, std::chrono::milliseconds limit,
                                                 const std::stop_token& stop) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Failed(fmt::format("has no pipe: {}", std::strerror(errno)));
  const UniqueFd output(ends[0]);
  pid_t pid = 0;
  {
    const UniqueFd input(ends[1]);
    const SpawnSettings settings(input.get());
    std::array<std::string, 3> words = {"sh", "-c", command};
    std::array<char*, 4> arguments = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    const int error = ::posix_spawn(&pid, "/bin/sh", &settings.files, &settings.attributes, arguments.data(), environ);
    if (error != 0) return Failed(fmt::format("cannot be started: {}", std::strerror(error)));
  }
  Child child(pid);
  ::fcntl(output.get(), F_SETFL, O_NONBLOCK);
  std::string text;
  for (bool open = true;;) {
    pollfd ready{open ? output.get() : -1, POLLIN, 0};
    ::poll(&ready, 1, kLookMillis);
    // Before reading: what it wrote until then is there. Its children may keep the pipe open longer.
    const std::optional<int> status = child.Ended();
    if (open) open = ReadSome(output.get(), text);
    if (text.size() > kMaxOutputBytes) return Failed(fmt::format("printed more than {} bytes", kMaxOutputBytes));
    if (status) {
      if (WIFSIGNALED(*status)) return Failed(fmt::format("was killed by signal {}", WTERMSIG(*status)));
      if (WEXITSTATUS(*status) != 0) return Failed(fmt::format("failed with exit status {}", WEXITSTATUS(*status)));
      return text;
    }
    if (stop.stop_requested()) return absl::CancelledError("was stopped");
    if (std::chrono::steady_clock::now() >= deadline)
      return Failed(fmt::format("did not end within {} ms", limit.count()));
  }
}

}  // namespace millrace
