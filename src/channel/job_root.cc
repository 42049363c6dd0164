#include "channel/job_root.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/atomic_file.h"
#include "base/errno_status.h"
#include "base/process.h"

namespace millrace {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRecordName = "millrace-run";
constexpr std::string_view kResourcesName = "resourceconfig.json";

std::string RecordIn(const std::string& config_folder) {
  return fmt::format("{}/{}", config_folder, kRecordName);
}

/// Distinguishes the file with the hosts from one that another program writes in its place. Empty if there is none.
std::string ResourcesMark(const std::string& config_folder) {
  struct stat info {};
  if (stat(fmt::format("{}/{}", config_folder, kResourcesName).c_str(), &info) != 0) return {};
  return fmt::format("{} {}.{:09}", info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

absl::Status WriteRecord(int fd, const std::string& path, const std::string& text) {
  if (ftruncate(fd, 0) != 0 || pwrite(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    return ErrnoStatus(errno, path, "writing");
  return absl::OkStatus();
}

/// Returns the record of the last run: a line with the job, one with the process, and one with the ResourcesMark of
/// the file that it wrote.
std::string ReadRecord(int fd) {
  std::array<char, 512> text{};
  const ssize_t got = pread(fd, text.data(), text.size(), 0);
  return {text.data(), got > 0 ? static_cast<size_t>(got) : 0};
}

std::string LineOf(const std::string& record, size_t number) {
  size_t begin = 0;
  for (; number > 0; --number) {
    const size_t end = record.find('\n', begin);
    if (end == std::string::npos) return {};
    begin = end + 1;
  }
  return record.substr(begin, record.find('\n', begin) - begin);
}

std::string ProcessText() {
  return fmt::format("process {} on {}", getpid(), HostName());
}

/// Returns true if the folder exists and has an entry that a program may take for its own.
bool HasFiles(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename() != "lost+found") return true;
  }
  return false;
}

bool IsMountPoint(const std::string& folder) {
  struct stat own {};
  struct stat above {};
  const std::string parent = fs::path(folder).parent_path();
  if (stat(folder.c_str(), &own) != 0 || stat(parent.c_str(), &above) != 0) return false;
  return own.st_dev != above.st_dev;
}

/// Copies what is there and removes it. A copy that is not whole is removed.
std::error_code MoveByCopying(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::copy_symlinks, error);
  if (error) {
    std::error_code ignored;
    fs::remove_all(to, ignored);
  } else {
    fs::remove_all(from, error);
  }
  return error;
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  int error = errno;
  // It is on another file system, or a folder of the image that a container has been made of.
  if (error == EXDEV) error = MoveByCopying(from, to).value();
  if (error == 0) return absl::OkStatus();
  if (error == EBUSY) {
    return absl::FailedPreconditionError(fmt::format(
        "{} has files of another job, and it is a mount point, which cannot be moved aside; empty it, mount "
        "another folder there, or choose another --root",
        from));
  }
  const absl::Status why = ErrnoStatus(error, from, "moving it aside");
  return absl::FailedPreconditionError(fmt::format(
      "{} has files of another job ({}); move them away, or choose another --root", from, ToStd(why.message())));
}

/// Returns a name beside this one that is free.
std::string Aside(const std::string& path) {
  std::error_code error;
  for (int number = 1;; ++number) {
    std::string name = fmt::format("{}-of-earlier-job-{}", path, number);
    if (!fs::exists(fs::symlink_status(name, error))) return name;
  }
}

/// Returns true for files with the sources of channels, and with the counts of pipes that were read. Any job has them.
bool BelongsToChannels(std::string_view name) {
  return name.starts_with("channel-");
}

absl::Status MoveConfigAside(const std::string& config) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(config, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name != kRecordName && !BelongsToChannels(name)) names.push_back(name);
  }
  if (error) return ErrnoStatus(error.value(), config, "listing");
  if (names.empty()) return absl::OkStatus();
  const std::string aside = Aside(config);
  RETURN_IF_ERROR(MakeFolder(aside, aside, Durability::kUnsynced));
  for (const std::string& name : names)
    RETURN_IF_ERROR(Rename(fmt::format("{}/{}", config, name), fmt::format("{}/{}", aside, name)));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JobRoot> JobRoot::Take(const std::string& root, const std::string& identity,
                                      const std::string& checkpoint_folder,
                                      const std::function<void(const std::string&)>& say) {
  const std::string config = root + "/input/config";
  RETURN_IF_ERROR(MakeFolder(config, config, Durability::kUnsynced));
  const std::string path = RecordIn(config);
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd) return ErrnoStatus(errno, path, "opening");
  // Some network file systems have no locks.
  const bool taken = flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  const std::string record = ReadRecord(fd.get());
  if (taken) {
    return absl::FailedPreconditionError(fmt::format(
        "{} is in use by another job ({}); give this one a folder of its own (--root)", root, LineOf(record, 1)));
  }
  if (const std::string owner = LineOf(record, 0); owner != identity) {
    const bool inside = checkpoint_folder.starts_with(root + "/");
    for (const std::string& folder : {root + "/model", root + "/output/data", checkpoint_folder}) {
      if (!HasFiles(folder)) continue;
      if (owner.empty() && (IsMountPoint(folder) || (folder == checkpoint_folder && !inside))) continue;
      const std::string aside = Aside(folder);
      RETURN_IF_ERROR(Rename(folder, aside));
      say(fmt::format("{} had files of another job, which are in {} now", folder, aside));
    }
    RETURN_IF_ERROR(MoveConfigAside(config));
  }
  std::string text = fmt::format("{}\n{}\n", identity, ProcessText());
  RETURN_IF_ERROR(WriteRecord(fd.get(), path, text));
  return JobRoot(std::move(fd), config, std::move(text));
}

absl::Status JobRoot::RecordResources() const {
  return WriteRecord(lock_.get(), RecordIn(config_), fmt::format("{}{}\n", record_, ResourcesMark(config_)));
}

bool JobRoot::IsLeftBehind(const std::string& config_folder) {
  const UniqueFd fd(open(RecordIn(config_folder).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd || flock(fd.get(), LOCK_SH | LOCK_NB) != 0) return false;
  const std::string mark = LineOf(ReadRecord(fd.get()), 2);
  return !mark.empty() && mark == ResourcesMark(config_folder);
}

}  // namespace millrace
