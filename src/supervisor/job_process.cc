#include "supervisor/job_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/process.h"
#include "base/unique_fd.h"

namespace millrace {

namespace {

constexpr std::chrono::seconds kKillLimit{10};
constexpr std::chrono::milliseconds kKillAgain{20};

int WakeSignal() {
  return SIGRTMIN;
}

// The settings that the command gets; -1: the same as this program has.
struct JobSettings {
  int input = -1;
  int output = -1;
  int errors = -1;
  const char* folder = nullptr;  // in which it runs
  const std::vector<int>* given = nullptr;
};

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Returns the environment of this program, with these in place of those of their names.
std::vector<std::string> Environment(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> settings;
  for (char** setting = environ; *setting != nullptr; ++setting) {
    const std::string_view text = *setting;
    if (!variables.contains(std::string(text.substr(0, text.find('='))))) settings.emplace_back(text);
  }
  for (const auto& [name, value] : variables) settings.push_back(fmt::format("{}={}", name, value));
  return settings;
}

sigset_t SupervisorSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  sigaddset(&signals, WakeSignal());
  sigaddset(&signals, SupervisorProcess::ParentDeathSignal());
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
    struct sigaction now {};
    // A blocked signal would be taken even if it is ignored, as `nohup` ignores SIGHUP.
    if (sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_IGN) sigaddset(&signals, signal);
  }
  return signals;
}

// Open when this program began, and so meant for the command; sorted.
std::vector<int> GivenFds() {
  std::vector<int> fds;
  std::error_code error;
  for (std::filesystem::directory_iterator list("/proc/self/fd", error);
       !error && list != std::filesystem::directory_iterator(); list.increment(error)) {
    const int fd = std::atoi(list->path().filename().c_str());
    if (fd > STDERR_FILENO && (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0) fds.push_back(fd);
  }
  std::ranges::sort(fds);
  return fds;
}

// Libraries open sockets that a command would inherit.
void CloseOthersOnExec(const std::vector<int>& given) {
  unsigned int first = STDERR_FILENO + 1;
  for (const int fd : given) {
    if (static_cast<unsigned int>(fd) > first)
      close_range(first, static_cast<unsigned int>(fd) - 1, CLOSE_RANGE_CLOEXEC);
    first = static_cast<unsigned int>(fd) + 1;
  }
  close_range(first, ~0U, CLOSE_RANGE_CLOEXEC);
}

// Between fork and exec: calls that are safe there, and nothing else.
[[noreturn]] void Become(char* const* arguments, char** environment, pid_t parent, const JobSettings& settings,
                         int failed) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);                                      // it died before that was set
  for (const int ignored : {SIGPIPE, SIGXFSZ}) signal(ignored, SIG_DFL);  // by this program, not by its user
  RestoreFileLimit();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (settings.input >= 0) dup2(settings.input, STDIN_FILENO);
  if (settings.output >= 0) dup2(settings.output, STDOUT_FILENO);
  if (settings.errors >= 0) dup2(settings.errors, STDERR_FILENO);
  CloseOthersOnExec(*settings.given);
  environ = environment;
  if (settings.folder == nullptr || chdir(settings.folder) == 0) execvp(arguments[0], arguments);
  const int error = errno;
  [[maybe_unused]] const ssize_t told = write(failed, &error, sizeof error);
  _exit(127);
}

// The children of this process, as the kernel lists them; empty if it does not list them.
std::vector<pid_t> Children() {
  std::vector<pid_t> children;
  std::error_code error;
  for (std::filesystem::directory_iterator tasks("/proc/self/task", error);
       !error && tasks != std::filesystem::directory_iterator(); tasks.increment(error)) {
    std::ifstream list(tasks->path() / "children");
    for (pid_t pid = 0; list >> pid;) children.push_back(pid);
  }
  return children;
}

}  // namespace

void HoldNotices() {
  sigset_t notices;
  sigemptyset(&notices);
  const sigset_t all = SupervisorSignals();
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    if (sigismember(&all, signal) == 1) sigaddset(&notices, signal);
  }
  pthread_sigmask(SIG_BLOCK, &notices, nullptr);
}

SupervisorProcess::SupervisorProcess() : given_fds_(GivenFds()) {
  const sigset_t signals = SupervisorSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGCHLD, SIG_DFL);  // whoever started this may have ignored it, which would lose the status of children
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void SupervisorProcess::Wake() {
  kill(getpid(), WakeSignal());
}

int SupervisorProcess::ParentDeathSignal() {
  return SIGRTMIN + 1;
}

SupervisorEvent SupervisorProcess::Wait(std::optional<std::chrono::milliseconds> limit, int* signal) {
  using Clock = std::chrono::steady_clock;
  const sigset_t signals = SupervisorSignals();
  const Clock::time_point end = Clock::now() + limit.value_or(std::chrono::milliseconds(0));
  for (;;) {
    int got = 0;
    if (limit) {
      const auto left = std::max<Clock::duration>(end - Clock::now(), Clock::duration::zero());
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
      timespec wait{};
      wait.tv_sec = seconds.count();
      wait.tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(left - seconds).count();
      got = sigtimedwait(&signals, nullptr, &wait);
    } else {
      got = sigwaitinfo(&signals, nullptr);
    }
    if (got == SIGCHLD) return SupervisorEvent::kChild;
    if (got == WakeSignal()) return SupervisorEvent::kWake;
    if (got == ParentDeathSignal()) {
      if (std::exchange(parent_died_, true)) continue;
      got = SIGTERM;
    }
    if (got > 0) {
      *signal = got;
      return got == SIGUSR1 || got == SIGUSR2 ? SupervisorEvent::kNotice : SupervisorEvent::kStop;
    }
    if (errno == EAGAIN) return SupervisorEvent::kTime;
  }
}

absl::StatusOr<std::unique_ptr<JobProcess>> JobProcess::Start(const SupervisorProcess& supervisor,
                                                              const JobCommand& command) {
  const std::vector<std::string>& words = command.words;
  std::vector<std::string> copies = words;
  std::vector<char*> arguments = Pointers(copies);
  std::vector<std::string> settings = Environment(command.variables);
  std::vector<char*> environment = Pointers(settings);
  const UniqueFd nothing(isatty(STDIN_FILENO) == 1 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    return absl::UnavailableError(fmt::format("{}: cannot be started: {}", words.front(), std::strerror(errno)));
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    const JobSettings job{nothing ? nothing.get() : -1, command.output, command.errors,
                          command.folder.empty() ? nullptr : command.folder.c_str(), &supervisor.given_fds()};
    Become(arguments.data(), environment.data(), parent, job, write_end.get());
  }
  if (pid < 0)
    return absl::UnavailableError(fmt::format("{}: cannot be started: {}", words.front(), std::strerror(errno)));
  setpgid(pid, pid);  // the child does the same: whoever comes first
  write_end = UniqueFd(-1);
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(read_end.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof error) return std::unique_ptr<JobProcess>(new JobProcess(pid));
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  const std::string message = fmt::format("{}: cannot be executed: {}", words.front(), std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::PermissionDeniedError(message);
}

JobProcess::~JobProcess() {
  if (!alone_) KillAll();
}

std::optional<int> JobProcess::Ended() {
  for (;;) {
    int status = 0;
    const pid_t got = waitpid(-1, &status, WNOHANG);
    if (got == pid_) status_ = status;
    alone_ = got < 0 && errno == ECHILD;
    if (got <= 0 && !(got < 0 && errno == EINTR)) return status_;
  }
}

bool JobProcess::HasGroup() const {
  return !alone_ && (kill(-pid_, 0) == 0 || errno == EPERM);
}

void JobProcess::Signal(int signal) {
  if (alone_) return;  // the number of its group may be another's by now
  if (signal == SIGKILL) return KillGroup();
  signal_ = signal;
  signalled_.clear();
  if (!status_) kill(pid_, signal);
  PassOn();
}

// Once the first process of the group is reaped, its number may be that of a strange group, unless a child is in it.
void JobProcess::KillGroup() const {
  if (status_) {
    const std::vector<pid_t> children = Children();  // none: the kernel does not list them
    const bool is_ours =
        std::any_of(children.begin(), children.end(), [&](pid_t child) { return getpgid(child) == pid_; });
    if (!children.empty() && !is_ours) return;
  }
  kill(-pid_, SIGKILL);
}

void JobProcess::PassOn() {
  if (!status_ || signal_ == 0 || alone_) return;
  const std::vector<pid_t> children = Children();
  if (children.empty()) {  // the kernel does not list them
    if (signalled_.insert(-pid_).second) kill(-pid_, signal_);
    return;
  }
  for (const pid_t child : children) {
    if (getpgid(child) == pid_ && signalled_.insert(child).second) kill(child, signal_);
  }
}

JobProcess::Left JobProcess::EndLeft(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  std::set<pid_t> told;
  for (Ended(); !alone_ && std::chrono::steady_clock::now() < end; Ended()) {
    std::vector<pid_t> children = Children();
    if (children.empty()) children.push_back(-pid_);  // the kernel does not list them
    for (const pid_t child : children) {
      if (told.insert(child).second) kill(child, SIGTERM);
    }
    const timespec pause{0, std::chrono::nanoseconds(kKillAgain).count()};
    nanosleep(&pause, nullptr);
  }
  return {.told = told.size(), .gone = alone_ || KillAll()};
}

// Each round kills the children, and those whose parents have died fall to this process and are children in the next.
bool JobProcess::KillAll() {
  const auto end = std::chrono::steady_clock::now() + kKillLimit;
  while (true) {
    KillGroup();
    for (const pid_t child : Children()) kill(child, SIGKILL);
    Ended();
    if (alone_) return true;
    if (std::chrono::steady_clock::now() >= end) return false;
    // SIGCHLD is not waited for, so that no signal that asks to end is taken here.
    const timespec pause{0, std::chrono::nanoseconds(kKillAgain).count()};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace millrace
