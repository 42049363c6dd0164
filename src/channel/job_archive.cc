#include "channel/job_archive.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "base/errno_status.h"
#include "base/unique_fd.h"

namespace millrace {

namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename());
  if (error && error != std::errc::no_such_file_or_directory) return ErrnoStatus(error.value(), folder, "listing");
  std::ranges::sort(names);
  return names;
}

/// The program tar, of which the output is read. Killed by the destructor if it has not ended.
class TarProcess {
 public:
  static absl::StatusOr<std::unique_ptr<TarProcess>> Start(const std::string& folder,
                                                           const std::vector<std::string>& names) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return ErrnoStatus(errno, "a pipe", "making it");
    std::unique_ptr<TarProcess> tar(new TarProcess(UniqueFd(ends[0])));
    const UniqueFd output(ends[1]);
    std::vector<std::string> words{"tar", "--create", "--gzip", "--file=-", "--directory=" + folder, "--"};
    words.insert(words.end(), names.begin(), names.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output.get(), STDOUT_FILENO);
    const int error = posix_spawnp(&tar->pid_, "tar", &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
      tar->pid_ = -1;
      return ErrnoStatus(error, "the program tar", "starting");
    }
    return tar;
  }
  ~TarProcess() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    (void)Wait();
  }
  TarProcess(const TarProcess&) = delete;
  TarProcess& operator=(const TarProcess&) = delete;

  /// 0 at the end. Cancelled soon after a stop.
  absl::StatusOr<size_t> Read(MutableByteSpan into, const std::stop_token& stop) const {
    constexpr int kLookMilliseconds = 100;
    for (;;) {
      if (stop.stop_requested()) return absl::CancelledError("interrupted");
      pollfd ready{.fd = output_.get(), .events = POLLIN, .revents = 0};
      if (poll(&ready, 1, kLookMilliseconds) <= 0) continue;
      const ssize_t got = read(output_.get(), into.data(), into.size());
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) return ErrnoStatus(errno, "the program tar", "reading");
    }
  }
  /// Whether it has done all.
  bool Wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  explicit TarProcess(UniqueFd output) : output_(std::move(output)) {}

  const UniqueFd output_;
  pid_t pid_ = -1;
};

}  // namespace

absl::StatusOr<std::optional<uint64_t>> SaveArchive(const std::string& folder, ObjectStore& store,
                                                    const std::string& key, const std::stop_token& stop) {
  constexpr size_t kReadBytes = 1 << 20;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
  if (names.empty()) return std::nullopt;
  ASSIGN_OR_RETURN(const std::unique_ptr<TarProcess> tar, TarProcess::Start(folder, names));
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer,
                   store.Write(key, {.content_type = "application/gzip", .stop = stop}));
  std::vector<std::byte> buffer(kReadBytes);
  for (;;) {
    ASSIGN_OR_RETURN(const size_t got, tar->Read(buffer, stop));
    if (got == 0) break;
    RETURN_IF_ERROR(writer->Append(ByteSpan(buffer).first(got)));
  }
  if (!tar->Wait())
    return absl::FailedPreconditionError(
        fmt::format("{}: tar could not read all of it; it says why on stderr", folder));
  ASSIGN_OR_RETURN(const ObjectInfo info, writer->Commit());
  return info.size;
}

}  // namespace millrace
