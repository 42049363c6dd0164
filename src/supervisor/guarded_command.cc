#include "supervisor/guarded_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "supervisor/job_process.h"

namespace millrace {

namespace {

sigset_t GuardSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
    struct sigaction now {};
    // A blocked signal would be taken even if it is ignored, as `nohup` ignores SIGHUP.
    if (sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_IGN) sigaddset(&signals, signal);
  }
  return signals;
}

// Runs in the process of the supervisor. It has a group of its own: signals of a terminal go to the program, which
// passes them on, once.
[[noreturn]] void Guard(const std::function<int()>& supervise, pid_t parent, int begin) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SupervisorProcess::ParentDeathSignal());
  char word = 0;
  ssize_t got = 0;
  do {
    got = read(begin, &word, 1);
  } while (got < 0 && errno == EINTR);
  if (got != 1 || getppid() != parent) _exit(1);  // the program has ended, or does not want it any more
  close(begin);
  _exit(supervise());
}

}  // namespace

absl::StatusOr<std::unique_ptr<GuardedCommand>> GuardedCommand::Prepare(const std::function<int()>& supervise) {
  signal(SIGCHLD, SIG_DFL);  // whoever started this may have ignored it, which would lose the status of children
  const sigset_t signals = GuardSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    return absl::UnavailableError(fmt::format("the command cannot be started: {}", std::strerror(errno)));
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    write_end = UniqueFd(-1);
    Guard(supervise, parent, read_end.get());
  }
  if (pid < 0) return absl::UnavailableError(fmt::format("the command cannot be started: {}", std::strerror(errno)));
  setpgid(pid, pid);  // the child does the same: whoever comes first
  return std::unique_ptr<GuardedCommand>(new GuardedCommand(pid, std::move(write_end)));
}

int GuardedCommand::Watch(const Step& step, std::optional<std::chrono::steady_clock::time_point> at) {
  constexpr std::chrono::seconds kLongest{3600};
  const sigset_t signals = GuardSignals();
  for (;;) {
    const auto left = at ? *at - std::chrono::steady_clock::now() : std::chrono::steady_clock::duration(kLongest);
    const auto wait = std::clamp<std::chrono::nanoseconds>(left, std::chrono::nanoseconds(0), kLongest);
    const timespec limit{.tv_sec = wait / std::chrono::seconds(1), .tv_nsec = (wait % std::chrono::seconds(1)).count()};
    const int got = sigtimedwait(&signals, nullptr, &limit);
    if (got < 0 && errno != EAGAIN) continue;
    if (got < 0 && at && std::chrono::steady_clock::now() >= *at) at.reset();
    const std::optional<int> signal = got < 0 || got == SIGCHLD ? std::nullopt : std::optional(got);
    if (const std::optional<int> result = step(signal, Ended())) return *result;
  }
}

void GuardedCommand::Wake() {
  kill(getpid(), SIGCHLD);
}

GuardedCommand::~GuardedCommand() {
  if (Ended()) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void GuardedCommand::Begin() {
  const char word = 1;
  // If its process is gone, Ended tells.
  (void)!write(begin_.get(), &word, 1);
  begin_ = UniqueFd(-1);
}

void GuardedCommand::Signal(int signal) const {
  if (!status_) kill(pid_, signal);
}

std::optional<int> GuardedCommand::Ended() {
  int status = 0;
  if (!status_ && waitpid(pid_, &status, WNOHANG) == pid_)
    status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return status_;
}

}  // namespace millrace
