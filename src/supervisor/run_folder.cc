#include "supervisor/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/crypto.h"
#include "base/errno_status.h"
#include "base/process.h"

namespace millrace {

namespace {

// Names this machine: in a folder that several machines share, locks may not reach the others.
std::string FolderPrefix() {
  return fmt::format("millrace-run-{}-", HostDigits());
}

// The lock of a folder, or none if another process has it or the folder is gone.
UniqueFd LockFolder(const std::string& folder) {
  UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd || flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return UniqueFd(-1);
  struct stat locked {
  }, named{};
  if (fstat(fd.get(), &locked) != 0 || stat(folder.c_str(), &named) != 0 || locked.st_ino != named.st_ino)
    return UniqueFd(-1);
  return fd;
}

// Removes folders of this user's supervisors that were killed: no process holds these folders.
void SweepFolders(const char* parent) {
  const std::string prefix = FolderPrefix();
  std::error_code error;
  for (std::filesystem::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    const std::string folder = at->path();
    if (!at->path().filename().string().starts_with(prefix)) continue;
    struct stat found {};
    if (lstat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != geteuid()) continue;
    std::error_code ignored;
    if (const UniqueFd lock = LockFolder(folder); lock) std::filesystem::remove_all(folder, ignored);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunFolder>> RunFolder::Make() {
  // The folder is in memory that no cleaner of old files visits, unless the user has a better place.
  constexpr int kTries = 10;  // another one may sweep it away before it is locked
  const char* const chosen = getenv("TMPDIR");
  absl::Status status;
  for (const char* parent : {chosen == nullptr || *chosen == '\0' ? "/dev/shm" : chosen, "/tmp"}) {
    SweepFolders(parent);
    for (int i = 0; i < kTries; ++i) {
      std::string folder = fmt::format("{}/{}XXXXXX", parent, FolderPrefix());
      if (mkdtemp(folder.data()) == nullptr) {
        status = ErrnoStatus(errno, folder, "making the folder");
        break;
      }
      UniqueFd lock = LockFolder(folder);
      if (lock) return std::unique_ptr<RunFolder>(new RunFolder(std::move(folder), std::move(lock)));
      status = absl::UnavailableError(fmt::format("{}: the folder cannot be locked", folder));
      rmdir(folder.c_str());
    }
  }
  return status;
}

RunFolder::~RunFolder() {
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

absl::Status RunFolder::Begin() {
  unlink(watched_file().c_str());
  const UniqueFd made(open(heartbeat_file().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!made) return ErrnoStatus(errno, heartbeat_file(), "making");
  TakeHeartbeat();
  const UniqueFd stacks(open(stacks_file().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!stacks) return ErrnoStatus(errno, stacks_file(), "making");
  return absl::OkStatus();
}

bool RunFolder::TakeHeartbeat() {
  struct stat now {};
  if (stat(heartbeat_file().c_str(), &now) != 0) return false;
  const bool changed = now.st_mtim.tv_sec != last_.tv_sec || now.st_mtim.tv_nsec != last_.tv_nsec;
  last_ = now.st_mtim;
  return changed;
}

std::optional<std::pair<uint64_t, uint64_t>> RunFolder::Steps() const {
  std::ifstream file(heartbeat_file());
  uint64_t first = 0;
  uint64_t last = 0;
  if (!(file >> first >> last) || last < first) return std::nullopt;
  return std::pair(first, last);
}

bool RunFolder::ProgramWatches() const {
  return access(watched_file().c_str(), F_OK) == 0;
}

absl::Status RunFolder::Tell(const Notice& notice, std::optional<absl::Time> end) const {
  nlohmann::ordered_json json = {
      {"kind", NoticeWord(notice.kind)}, {"detail", notice.detail}, {"final", notice.final}, {"deadline", nullptr}};
  if (end) json["deadline"] = static_cast<double>(absl::ToUnixMillis(*end)) / 1000;
  return WriteFileAtomically(notice_file(), json.dump() + '\n', 0600);
}

}  // namespace millrace
