#include "base/child_process.h"

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

#include "base/unique_fd.h"

namespace millrace {

namespace {

constexpr size_t kMaxOutputBytes = 64 << 10;
constexpr size_t kMaxInputBytes = 60 << 10;  // a pipe holds it, so that no thread has to feed it
constexpr int kLookMillis = 50;              // between looks at the child, the time and `stop`

absl::Status Failed(std::string what) {
  return absl::UnavailableError(std::move(what));
}

struct Pipe {
  UniqueFd read{-1};
  UniqueFd write{-1};
};

absl::StatusOr<Pipe> MakePipe() {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Failed(fmt::format("has no pipe: {}", std::strerror(errno)));
  return Pipe{.read = UniqueFd(ends[0]), .write = UniqueFd(ends[1])};
}

/// Returns the child's input: a pipe that holds all of `text`; none when there is no text.
absl::StatusOr<UniqueFd> InputOf(const std::string& text) {
  if (text.empty()) return UniqueFd(-1);
  if (text.size() > kMaxInputBytes) return absl::InvalidArgumentError("would be given too much to read");
  ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  ::fcntl(pipe.write.get(), F_SETFL, O_NONBLOCK);
  if (::write(pipe.write.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return Failed("cannot be given its input");
  return std::move(pipe.read);
}

/// Holds the attributes of posix_spawn, freed whatever happens.
struct SpawnSettings {
  SpawnSettings(int input, int output, int errors) {
    posix_spawn_file_actions_init(&files);
    Place(input, STDIN_FILENO, O_RDONLY);
    Place(output, STDOUT_FILENO, O_WRONLY);
    Place(errors, STDERR_FILENO, O_WRONLY);
    posix_spawnattr_init(&attributes);
    // The child has a group of its own, so that its children can be killed with it, and signals as a program expects
    // them.
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

  // -1: nothing.
  void Place(int fd, int as, int flags) {
    if (fd < 0) {
      posix_spawn_file_actions_addopen(&files, as, "/dev/null", flags, 0);
    } else {
      posix_spawn_file_actions_adddup2(&files, fd, as);
    }
  }

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

/// Holds a running child; it is killed with its group, and waited for, unless it has ended.
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

  /// Returns its status when it has ended. If the program ignores SIGCHLD, the status is lost: then 0.
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

/// Reads a stream of the child as it comes; closed at its end.
class Stream {
 public:
  /// `keep_end`: of what is too long the end is kept; else it is read no further.
  Stream(UniqueFd fd, bool keep_end) : fd_(std::move(fd)), keep_end_(keep_end) {
    if (fd_) ::fcntl(fd_.get(), F_SETFL, O_NONBLOCK);
  }

  pollfd Wanted() const { return {open_ ? fd_.get() : -1, POLLIN, 0}; }

  /// Reads what is there.
  void Read() {
    if (!fd_) return;
    std::array<char, 4096> buffer;
    while (open_) {
      const ssize_t got = ::read(fd_.get(), buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) {
        open_ = false;
        return;
      }
      text_.append(buffer.data(), static_cast<size_t>(got));
      if (text_.size() <= kMaxOutputBytes) continue;
      if (keep_end_) {
        text_.erase(0, text_.size() - kMaxOutputBytes);
      } else {
        open_ = false;
        too_long_ = true;
      }
    }
  }

  bool too_long() const { return too_long_; }
  std::string Take() { return std::move(text_); }

 private:
  const UniqueFd fd_;
  const bool keep_end_;
  bool open_ = true;
  bool too_long_ = false;
  std::string text_;
};

absl::StatusOr<pid_t> Spawn(const ChildCommand& command, int output, int errors) {
  ASSIGN_OR_RETURN(const UniqueFd input, InputOf(command.input));
  const SpawnSettings settings(input ? input.get() : -1, output, errors);
  std::vector<std::string> words = command.words;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = 0;
  const int error =
      ::posix_spawnp(&pid, arguments.front(), &settings.files, &settings.attributes, arguments.data(), environ);
  if (error == ENOENT) return absl::NotFoundError("is not there");
  if (error != 0) return Failed(fmt::format("cannot be started: {}", std::strerror(error)));
  return pid;
}

}  // namespace

absl::StatusOr<ChildEnd> RunChild(const ChildCommand& command, const std::stop_token& stop) {
  const auto begin = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(Pipe output_pipe, MakePipe());
  Pipe errors_pipe;
  if (command.keep_errors) {
    ASSIGN_OR_RETURN(errors_pipe, MakePipe());
  }
  ASSIGN_OR_RETURN(const pid_t pid,
                   Spawn(command, output_pipe.write.get(), command.keep_errors ? errors_pipe.write.get() : -1));
  Child child(pid);
  output_pipe.write = UniqueFd(-1);
  errors_pipe.write = UniqueFd(-1);
  Stream output(std::move(output_pipe.read), /*keep_end=*/false);
  Stream errors(std::move(errors_pipe.read), /*keep_end=*/true);
  while (true) {
    std::array<pollfd, 2> ready = {output.Wanted(), errors.Wanted()};
    ::poll(ready.data(), ready.size(), kLookMillis);
    // This comes before reading: all that it wrote until then is there. Its children may keep the pipes open longer.
    const std::optional<int> status = child.Ended();
    output.Read();
    errors.Read();
    if (output.too_long()) return Failed(fmt::format("printed more than {} bytes", kMaxOutputBytes));
    if (status) {
      if (WIFSIGNALED(*status)) return Failed(fmt::format("was killed by signal {}", WTERMSIG(*status)));
      return ChildEnd{.exit_status = WEXITSTATUS(*status), .output = output.Take(), .errors = errors.Take()};
    }
    if (stop.stop_requested()) return absl::CancelledError("was stopped");
    if (command.limit && std::chrono::steady_clock::now() - begin >= *command.limit)
      return Failed(fmt::format("did not end within {} ms", command.limit->count()));
  }
}

}  // namespace millrace
