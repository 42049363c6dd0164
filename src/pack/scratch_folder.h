#pragma once

#include <memory>
#include <string>

#include "base/own_folder.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace millrace {

/// Is a folder that only this process uses, for work that may be interrupted and continued: BASE/unpacked-ID, or, if
/// another process uses that, BASE/unpacked-ID.2 and so on, each with a file of that name and ".lock" beside it, which
/// its user holds locked (flock). The system frees the lock when a process ends for any reason; the folder and its
/// contents stay until a process takes it that needs the same contents. Folder and lock are this user's alone. Those of
/// other users are passed over (base/own_folder.h).
class ScratchFolder {
 public:
  /// Takes an existing folder that no process uses, or a new one. `id` names what its contents are made of. Errors of
  /// the file system, FailedPrecondition if it has no locks: both name the folder.
  static absl::StatusOr<std::unique_ptr<ScratchFolder>> Take(const std::string& base, const std::string& id);

  /// Returns the first that Take() may take.
  static std::string PathOf(const std::string& base, const std::string& id);

  /// Lets other processes take it.
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return folder_.path; }
  const OwnFolder& folder() const { return folder_; }

  /// Removes it with its contents; files that cannot be removed stay.
  void Remove();

 private:
  // Returns null if another process uses it, PermissionDenied if another user does.
  static absl::StatusOr<std::unique_ptr<ScratchFolder>> TakeOne(const OwnFolder& around, const std::string& path);

  ScratchFolder(OwnFolder folder, UniqueFd lock) : folder_(std::move(folder)), lock_(std::move(lock)) {}

  const OwnFolder folder_;
  const UniqueFd lock_;
};

}  // namespace millrace
