#include "job/channel_mounts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <thread>
#include <utility>

#include "base/atomic_file.h"
#include "base/child_process.h"
#include "base/errno_status.h"
#include "base/interrupt.h"
#include "base/unique_fd.h"
#include "channel/chosen_store.h"
#include "channel/file_mode.h"
#include "mount/mount.h"
#include "net/runtime.h"
#include "store/stores.h"
#include "transfer/key_pattern.h"

namespace millrace {

namespace {

constexpr std::chrono::seconds kEndLimit{10};

sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  return signals;
}

absl::Status ServeInput(const MountInput& input, const std::string& folder, uint64_t memory_bytes,
                        const std::function<void()>& ready) {
  const sigset_t signals = EndSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // of the threads that are made now
  Runtime runtime({.memory_bytes = memory_bytes});
  Stores stores(runtime);
  std::unique_ptr<ChosenStore> chosen;
  Location from;
  if (input.items) {
    ASSIGN_OR_RETURN(from, stores.Open(input.items->root));
    std::vector<ObjectInfo> objects;
    for (const ChannelPart& part : input.items->parts) objects.push_back(part.Object());
    chosen = std::make_unique<ChosenStore>(*from.store, std::move(objects));
    from = {chosen.get(), input.items->prefix};
  } else {
    ASSIGN_OR_RETURN(from, stores.Open(input.channel.uri));
    from.prefix = AsFolder(from.prefix);
    // The error is said now, and not to the first program that looks.
    ASSIGN_OR_RETURN(const bool shows_anything, ShowsAnything(*from.store, from.prefix));
    if (!shows_anything) return absl::NotFoundError(fmt::format("{} has no objects; check the URI", input.channel.uri));
  }
  MountOptions options{.folder = folder, .source = input.channel.uri};
  options.uid = getuid();
  options.gid = getgid();
  ASSIGN_OR_RETURN(const std::unique_ptr<Mount> mount,
                   Mount::Open(*from.store, runtime.memory(), from.prefix, options));
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  return mount->Serve(ready);
}

/// Runs in the process of a mount. It writes '!' to `told` when it is mounted, else the reason why it is not.
[[noreturn]] void BecomeMount(const MountInput& input, const std::string& folder, uint64_t memory_bytes, pid_t parent,
                              int told) {
  setpgid(0, 0);  // signals of a terminal are for the program
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) signal(number, SIG_DFL);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  dup2(null.get(), STDIN_FILENO);
  dup2(null.get(), STDOUT_FILENO);
  const absl::Status status = ServeInput(input, folder, memory_bytes, [told] {
    (void)!write(told, "!", 1);
    close(told);
  });
  // If it was mounted, the descriptor is closed, and this is said to nobody.
  const std::string why(ToStd(status.message()));
  if (!status.ok()) (void)!write(told, why.data(), std::min<size_t>(why.size(), PIPE_BUF));
  _exit(status.ok() ? 0 : 1);
}

bool WaitFor(pid_t pid, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    if (waitpid(pid, nullptr, WNOHANG) != 0) return true;
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

bool Detach(const std::string& folder) {
  if (umount2(folder.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) return true;
  const absl::StatusOr<ChildEnd> end =
      RunChild({.words = {"fusermount3", "-u", "-q", "-z", folder}, .keep_errors = true}, {});
  return end.ok() && end->exit_status == 0;
}

}  // namespace

absl::Status RemoveDeadMount(const std::string& folder) {
  const auto end = std::chrono::steady_clock::now() + kEndLimit;
  while (IsMounted(folder)) {
    struct stat info {};
    const bool dead = stat(folder.c_str(), &info) != 0 && errno == ENOTCONN;
    if (dead && Detach(folder)) continue;
    if (std::chrono::steady_clock::now() >= end) {
      return absl::FailedPreconditionError(
          fmt::format("{}: another file system of Millrace is mounted there; `umount {}`", folder, folder));
    }
    // The mount of a killed job goes away by itself.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ChannelMounts>> ChannelMounts::Make(const TrainingJob& job,
                                                                   std::vector<MountInput> inputs,
                                                                   const std::function<void(const std::string&)>& say) {
  std::unique_ptr<ChannelMounts> mounts(new ChannelMounts);
  // Each is a process, and together they take what one of them would.
  const uint64_t memory_bytes = UsableMemory() / 2 / std::max<size_t>(inputs.size(), 1);
  for (const MountInput& input : inputs) {
    RETURN_IF_ERROR(CheckFolderIsOurs(job, input.channel));
    if (const absl::Status status = mounts->Mount(job, input, memory_bytes); !status.ok())
      return Annotate(status, fmt::format("channel {}", input.channel.name));
    say(fmt::format("channel {}: {} is mounted on {}", input.channel.name, input.channel.uri,
                    job.ChannelFolder(input.channel)));
  }
  return mounts;
}

absl::Status ChannelMounts::Mount(const TrainingJob& job, const MountInput& input, uint64_t memory_bytes) {
  const std::string folder = job.ChannelFolder(input.channel);
  RETURN_IF_ERROR(MakeFolder(folder, folder, Durability::kUnsynced));
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return ErrnoStatus(errno, "a pipe", "making it");
  const UniqueFd told(ends[0]);
  UniqueFd tells(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "a process", "making it");
  if (pid == 0) BecomeMount(input, folder, memory_bytes, parent, tells.get());
  served_.push_back({input.channel.name, folder, pid});
  tells = UniqueFd(-1);
  std::string answer(PIPE_BUF, 0);
  ssize_t got = 0;
  while ((got = read(told.get(), answer.data(), answer.size())) < 0 && errno == EINTR) {
    if (Interrupted()) return absl::CancelledError("interrupted");
  }
  if (got == 1 && answer.front() == '!') return absl::OkStatus();
  answer.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return absl::UnavailableError(answer.empty() ? "its file system has ended" : answer);
}

std::optional<absl::Status> ChannelMounts::TakeFailure() {
  for (Served& mount : served_) {
    if (mount.pid < 0 || waitpid(mount.pid, nullptr, WNOHANG) == 0) continue;
    mount.pid = -1;
    return absl::UnavailableError(fmt::format(
        "channel {}: its file system on {} was unmounted, or its process has died", mount.channel, mount.folder));
  }
  return std::nullopt;
}

ChannelMounts::~ChannelMounts() {
  for (const Served& mount : served_) {
    if (mount.pid >= 0) kill(mount.pid, SIGTERM);
  }
  for (const Served& mount : served_) {
    if (mount.pid >= 0 && !WaitFor(mount.pid, kEndLimit)) {
      kill(mount.pid, SIGKILL);
      WaitFor(mount.pid, kEndLimit);
    }
    // The process of the mount may have been killed.
    (void)RemoveDeadMount(mount.folder);
  }
}

}  // namespace millrace
