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

// Empty when another process holds it.
absl::StatusOr<UniqueFd> TryLock(const std::string& path) {
  while (true) {
    UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!file) return ErrnoStatus(errno, path, "opening");
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

absl::StatusOr<std::unique_ptr<ScratchFolder>> ScratchFolder::Take(const std::string& base, const std::string& id) {
  std::error_code error;
  std::filesystem::create_directories(base, error);
  if (error) return ErrnoStatus(error.value(), base, "making the folder");
  const std::string first = PathOf(base, id);
  for (const bool is_there : {true, false}) {
    for (int number = 1; number <= kMaxAtATime; ++number) {
      const std::string path = number == 1 ? first : fmt::format("{}.{}", first, number);
      if (is_there && !std::filesystem::is_directory(path, error)) continue;
      ASSIGN_OR_RETURN(UniqueFd lock, TryLock(LockOf(path)));
      if (!lock) continue;
      std::unique_ptr<ScratchFolder> taken(new ScratchFolder(path, std::move(lock)));
      std::filesystem::create_directory(path, error);
      if (error) return ErrnoStatus(error.value(), path, "making the folder");
      return taken;
    }
  }
  return absl::ResourceExhaustedError(fmt::format(
      "{}: {} packs of these data use such folders by now; wait for some of them to end", first, kMaxAtATime));
}

ScratchFolder::~ScratchFolder() {
  unlink(LockOf(path_).c_str());  // before anybody else can lock it
  flock(lock_.get(), LOCK_UN);    // a forked child has a copy of the descriptor, which would keep the lock
}

void ScratchFolder::Remove() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace millrace
