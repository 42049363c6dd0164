#include "supervisor/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/errno_status.h"
#include "base/unique_fd.h"

namespace millrace {

absl::StatusOr<std::unique_ptr<RunFolder>> RunFolder::Make() {
  // Memory that no cleaner of old files visits, unless the user has a better place.
  const char* const chosen = getenv("TMPDIR");
  absl::Status status;
  for (const char* parent : {chosen == nullptr || *chosen == '\0' ? "/dev/shm" : chosen, "/tmp"}) {
    std::string folder = fmt::format("{}/millrace-run-XXXXXX", parent);
    if (mkdtemp(folder.data()) != nullptr) return std::unique_ptr<RunFolder>(new RunFolder(std::move(folder)));
    status = ErrnoStatus(errno, folder, "making the folder");
  }
  return status;
}

RunFolder::~RunFolder() {
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

absl::Status RunFolder::Begin() {
  unlink(watched_file().c_str());
  const UniqueFd made(open(heartbeat_file().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!made) return ErrnoStatus(errno, heartbeat_file(), "making");
  TakeHeartbeat();
  return absl::OkStatus();
}

bool RunFolder::TakeHeartbeat() {
  struct stat now {};
  if (stat(heartbeat_file().c_str(), &now) != 0) return false;
  const bool changed = now.st_mtim.tv_sec != last_.tv_sec || now.st_mtim.tv_nsec != last_.tv_nsec;
  last_ = now.st_mtim;
  return changed;
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
