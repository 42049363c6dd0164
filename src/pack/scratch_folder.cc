#include "pack/scratch_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/errno_status.h"

namespace millrace {

namespace {

constexpr int kMaxAtATime = 100;

std::string LockOf(const std::string& path) {
  return path + ".lock";
}

bool IsSameFile(int file, const std::string& path) {
  struct stat held {};
  struct stat there {};
  return fstat(file, &held) == 0 && stat(path.c_str(), &there) == 0 && held.st_dev == there.st_dev &&
         held.st_ino == there.st_ino;
}

// Empty when another process holds it. PermissionDenied if it is another user's.
absl::StatusOr<UniqueFd> TryLock(const OwnFolder& around, const std::string& path) {
  while (true) {
    ASSIGN_OR_RETURN(UniqueFd file, OpenOwnFile(around, path, O_RDWR | O_CREAT));
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno == EWOULDBLOCK) return UniqueFd(-1);
      return absl::FailedPreconditionError(fmt::format(
          "{}: cannot be locked ({}), and without locks two packs would spoil each other's work: name a folder of a "
          "local disk by --scratch",
          path, std::error_code(errno, std::generic_category()).message()));
    }
    // Its last holder may have removed it after it was opened: others would lock a new one.
    if (IsSameFile(file.get(), path)) return file;
  }
}

}  // namespace

std::string ScratchFolder::PathOf(const std::string& base, const std::string& id) {
  return (std::filesystem::absolute(base) / ("unpacked-" + id)).lexically_normal().string();
}

absl::StatusOr<std::unique_ptr<ScratchFolder>> ScratchFolder::TakeOne(const OwnFolder& around,
                                                                      const std::string& path) {
  ASSIGN_OR_RETURN(UniqueFd lock, TryLock(around, LockOf(path)));
  if (!lock) return nullptr;
  absl::StatusOr<OwnFolder> folder = MakeOwnFolder(path, FolderSharing::kNobody);
  if (folder.ok()) return std::unique_ptr<ScratchFolder>(new ScratchFolder(*std::move(folder), std::move(lock)));
  unlink(LockOf(path).c_str());
  return folder.status();
}

absl::StatusOr<std::unique_ptr<ScratchFolder>> ScratchFolder::Take(const std::string& base, const std::string& id) {
  std::error_code error;
  std::filesystem::create_directories(base, error);
  if (error) return ErrnoStatus(error.value(), base, "making the folder");
  const std::string first = PathOf(base, id);
  const OwnFolder around{.path = base, .owner = OwnerOfNewFiles(base).value_or(geteuid())};
  absl::Status denied;  // what was passed over last
  for (const bool is_there : {true, false}) {
    for (int number = 1; number <= kMaxAtATime; ++number) {
      const std::string path = number == 1 ? first : fmt::format("{}.{}", first, number);
      if (is_there && !std::filesystem::is_directory(path, error)) continue;
      absl::StatusOr<std::unique_ptr<ScratchFolder>> taken = TakeOne(around, path);
      if (taken.ok() && *taken == nullptr) continue;
      if (!absl::IsPermissionDenied(taken.status())) return taken;
      denied = taken.status();
    }
  }
  RETURN_IF_ERROR(denied);
  return absl::ResourceExhaustedError(fmt::format(
      "{}: {} packs of these data use such folders by now; wait for some of them to end", first, kMaxAtATime));
}

ScratchFolder::~ScratchFolder() {
  unlink(LockOf(path()).c_str());  // before anybody else can lock it
  flock(lock_.get(), LOCK_UN);     // a forked child has a copy of the descriptor, which would keep the lock
}

void ScratchFolder::Remove() {
  std::error_code ignored;
  std::filesystem::remove_all(path(), ignored);
}

}  // namespace millrace
