#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "base/unique_fd.h"

/// This header is for files that appear whole or not at all.

namespace millrace {

enum class Durability {
  kSynced,    // on disk when it returns: survives a loss of power
  kUnsynced,  // survives the process's death; after a loss of power it may be the old file, or empty
};

/// A symbolic link may be at the path of a file that is written.
enum class LinkAtPath {
  kFollowed,  // the file that it points to is replaced
  kReplaced,  // the link itself is replaced: for folders of the program's own (base/own_folder.h)
};

/// The names of files that are being written begin with this.
inline constexpr std::string_view kTemporaryPrefix = ".millrace-tmp-";
bool IsTemporaryName(std::string_view name);

/// Makes a folder and its parents if they are missing. Messages call it `name`.
absl::Status MakeFolder(const std::string& folder, std::string_view name, Durability durability);

/// Removes the files in a folder (not in folders below it) that killed writers have left. These are files that are not
/// locked by a writer, and were made on this machine or at least a day ago. A folder that does not exist counts as
/// empty.
absl::Status RemoveAbandoned(const std::string& folder);

/// Removes one such file, whose writer may be on another machine. FailedPrecondition while a writer holds it; OK if it
/// does not exist any more.
absl::Status RemoveTemporaryFile(const std::string& path);

/// Writes a file beside its final place. It is removed unless committed; a kill leaves a hidden file (IsTemporaryName).
/// Not thread-safe.
///
///   ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path, path, Durability::kSynced));
///   RETURN_IF_ERROR(file->Append(AsBytes(text)));
///   return file->Commit(/*only_if_absent=*/false).status();
class AtomicFile {
 public:
  /// Makes the folders of `path` if they are missing. Messages call the file `name`.
  /// FailedPrecondition if something exists at `path` that is neither a file nor a folder, e.g. /dev/null.
  /// `mode` as open() takes it: the process's umask applies.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(std::string path, std::string name, Durability durability,
                                                            mode_t mode = 0666,
                                                            LinkAtPath link = LinkAtPath::kFollowed);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// After an error this and Commit give the same error.
  absl::Status Append(ByteSpan bytes);

  /// Writes at an offset, in place of what is there; a gap before it reads as zeros. Several threads may call it at
  /// once, but no other method meanwhile. Commit does not remember its errors.
  absl::Status WriteAt(uint64_t offset, ByteSpan bytes) const;

  /// Gives the file the permissions of the file that it is going to replace, if there is one.
  absl::Status KeepMode() const;

  /// Gives the file these permissions, whatever the umask is.
  absl::Status SetMode(mode_t mode) const;

  /// Moves the file to its place and returns what it is now. AlreadyExists if `only_if_absent` and something
  /// exists there, on every file system on which only one process can make a file. FailedPrecondition, which names the
  /// remedy, if a process on another machine was killed in the middle of the same, on one without hard links.
  /// `modified_ms`, since 1970, becomes the time of its last change, unless it is 0. Call it once; do not call Append
  /// after it.
  absl::StatusOr<struct stat> Commit(bool only_if_absent, int64_t modified_ms = 0);

 private:
  AtomicFile(std::string path, std::string name, std::string temporary, UniqueFd fd, Durability durability)
      : path_(std::move(path)),
        name_(std::move(name)),
        temporary_(std::move(temporary)),
        durability_(durability),
        fd_(std::move(fd)) {}

  absl::Status LinkError(int error) const;
  absl::Status PlaceIfAbsent() const;
  absl::Status PlaceReserved() const;

  const std::string path_;
  const std::string name_;
  const std::string temporary_;
  const Durability durability_;
  UniqueFd fd_;
  absl::Status failed_;
  bool exists_ = true;  // the temporary name
};

/// Replaces a file so that readers see the old contents or the new ones, whole, also after a kill; makes missing
/// folders. Unsynced: for files that are written often and may be old after a loss of power.
absl::Status WriteFileAtomically(const std::string& path, std::string_view contents, mode_t mode = 0666);

}  // namespace millrace
