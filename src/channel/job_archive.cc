#include "channel/job_archive.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/errno_status.h"
#include "base/unique_fd.h"
#include "store/blocking.h"
#include "transfer/bulk_job.h"
#include "transfer/key_pattern.h"

namespace millrace {

namespace {

namespace fs = std::filesystem;

// These are exit statuses of tar.
constexpr int kTarSawChanges = 1;
constexpr int kTarPassedOver = 2;

absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename());
  if (error && error != std::errc::no_such_file_or_directory) return ErrnoStatus(error.value(), folder, "listing");
  std::ranges::sort(names);
  return names;
}

/// Returns the links in a folder behind which there is nothing, as paths from there. Links to folders are not followed.
std::vector<std::string> BrokenLinks(const std::string& folder) {
  std::vector<std::string> broken;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code missing;
    if (entry->is_symlink(missing) && !entry->exists(missing))
      broken.push_back(entry->path().lexically_relative(folder));
  }
  return broken;
}

/// Returns true if files are gone, and all others can be read: to tar that is a failure.
bool OnlyLacksRemoved(const std::string& folder, const std::vector<std::string>& names) {
  bool any = false;
  for (const std::string& name : names) {
    if (access(fmt::format("{}/{}", folder, name).c_str(), R_OK) == 0) continue;
    if (errno != ENOENT && errno != ENOTDIR) return false;
    any = true;
  }
  return any;
}

/// Leaves the file at its beginning, for a reader.
bool WriteWhole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = write(fd, text.data(), text.size());
    if (wrote < 0 && errno != EINTR) return false;
    if (wrote > 0) text.remove_prefix(static_cast<size_t>(wrote));
  }
  return lseek(fd, 0, SEEK_SET) == 0;
}

/// Runs the program tar, whose output is read. The destructor kills it if it has not ended.
class TarProcess {
 public:
  /// `names` below the folder; `recursive`: with what is in them, if they are folders.
  static absl::StatusOr<std::unique_ptr<TarProcess>> Start(const std::string& folder,
                                                           const std::vector<std::string>& names, bool recursive) {
    std::string list;
    for (const std::string& name : names) list.append(name).push_back('\0');
    const UniqueFd input(memfd_create("names", MFD_CLOEXEC));
    std::array<int, 2> ends{};
    if (!input || !WriteWhole(input.get(), list) || pipe2(ends.data(), O_CLOEXEC) != 0)
      return ErrnoStatus(errno, "a pipe", "making it");
    std::unique_ptr<TarProcess> tar(new TarProcess(UniqueFd(ends[0])));
    const UniqueFd output(ends[1]);
    // Each name is a file with its bytes: what unpacks it need not know of links, and has not what they point to.
    std::vector<std::string> words{"tar", "--create", "--gzip", "--dereference", "--hard-dereference"};
    words.insert(words.end(), {"--file=-", "--directory=" + folder});
    words.insert(words.end(), {recursive ? "--recursion" : "--no-recursion", "--null", "--files-from=-"});
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input.get(), STDIN_FILENO);
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

  /// Returns 0 at the end. Cancelled soon after a stop.
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
  /// Returns its exit status: 0 if it has done all, 1 if files changed meanwhile, 2 if it passed over what it could not
  /// read; more if a signal has ended it.
  int Wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  explicit TarProcess(UniqueFd output) : output_(std::move(output)) {}

  const UniqueFd output_;
  pid_t pid_ = -1;
};

/// All files of a folder, also behind links, each once a name; their keys are paths from there.
absl::StatusOr<std::vector<ObjectInfo>> ListFiles(Stores& stores, const std::string& folder) {
  ASSIGN_OR_RETURN(const Location at, stores.Open(folder));
  return ListAll(*at.store, AsFolder(at.prefix));
}

/// Writes what a file has now as one object: it may grow meanwhile.
absl::Status SendFile(std::ifstream& file, uint64_t bytes, ObjectStore& to, const std::string& key,
                      const std::stop_token& stop) {
  constexpr size_t kSendBytes = 1 << 20;
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer, to.Write(key, {.stop = stop}));
  std::vector<char> buffer(kSendBytes);
  while (bytes > 0) {
    if (stop.stop_requested()) return absl::CancelledError("interrupted");
    file.read(buffer.data(), static_cast<std::streamsize>(std::min<uint64_t>(bytes, buffer.size())));
    const std::string_view got(buffer.data(), static_cast<size_t>(file.gcount()));
    if (got.empty()) break;  // it has become shorter
    RETURN_IF_ERROR(writer->Append(AsBytes(got)));
    bytes -= got.size();
  }
  return writer->Commit().status();
}

}  // namespace

absl::StatusOr<SavedArchive> SaveArchive(Stores& stores, const std::string& folder, ObjectStore& store,
                                         const std::string& key, const std::stop_token& stop) {
  constexpr size_t kReadBytes = 1 << 20;
  SavedArchive saved;
  saved.broken_links = BrokenLinks(folder);
  // Links may lead back, which the listing knows and tar does not. If the listing cannot read a folder, tar passes over
  // it.
  std::vector<std::string> names;
  const absl::StatusOr<std::vector<ObjectInfo>> files = ListFiles(stores, folder);
  if (files.ok()) {
    for (const ObjectInfo& file : *files) names.push_back(file.key);
  } else {
    ASSIGN_OR_RETURN(names, NamesIn(folder));
  }
  if (names.empty()) return saved;
  absl::StatusOr<std::unique_ptr<TarProcess>> tar = TarProcess::Start(folder, names, !files.ok());
  if (!tar.ok()) {
    saved.lacks = std::move(tar).status();
    return saved;
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer,
                   store.Write(key, {.content_type = "application/gzip", .stop = stop}));
  std::vector<std::byte> buffer(kReadBytes);
  bool any = false;
  for (;;) {
    ASSIGN_OR_RETURN(const size_t got, (*tar)->Read(buffer, stop));
    if (got == 0) break;
    any = true;
    RETURN_IF_ERROR(writer->Append(ByteSpan(buffer).first(got)));
  }
  const int status = (*tar)->Wait();
  saved.changed =
      status == kTarSawChanges || (status == kTarPassedOver && files.ok() && OnlyLacksRemoved(folder, names));
  if (status > kTarSawChanges && !saved.changed) {
    saved.lacks = absl::FailedPreconditionError(
        fmt::format("{}: tar could not read all of it (status {}); it says why on stderr", folder, status));
  }
  if (!any || status > kTarPassedOver) return saved;
  ASSIGN_OR_RETURN(const ObjectInfo info, writer->Commit());
  saved.bytes = info.size;
  saved.etag = info.etag;
  return saved;
}

absl::StatusOr<uint64_t> SaveFiles(Stores& stores, const std::string& folder, ObjectStore& store,
                                   const std::string& prefix, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const Location from, stores.Open(folder));
  ASSIGN_OR_RETURN(const std::vector<ObjectInfo> files, ListFiles(stores, folder));
  std::set<std::string> sent;
  BulkJob copies(
      {.copied = [&](const ObjectInfo& file, const std::string&, const ObjectInfo&) { sent.insert(file.key); },
       .stop = stop});
  absl::Status begun;
  for (size_t i = 0; i < files.size() && begun.ok(); ++i)
    begun = copies.Copy(*from.store, files[i], store, prefix + files[i].key);
  (void)copies.Finish();
  absl::Status failed;
  for (const ObjectInfo& file : files) {
    if (stop.stop_requested()) return absl::CancelledError("interrupted");
    if (sent.contains(file.key)) continue;
    // It changes all the time, such as a log that is written to; or it is gone, or cannot be read.
    const std::string path = folder + "/" + file.key;
    std::error_code error;
    const uint64_t bytes = fs::file_size(path, error);
    if (error == std::errc::no_such_file_or_directory) continue;
    std::ifstream opened(path, std::ios::binary);
    if (error || !opened) {
      failed.Update(ErrnoStatus(error ? error.value() : errno, path, "reading"));
      continue;
    }
    RETURN_IF_ERROR(SendFile(opened, bytes, store, prefix + file.key, stop));
    sent.insert(file.key);
  }
  RETURN_IF_ERROR(failed);
  return sent.size();
}

}  // namespace millrace
