#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "mount/file_upload.h"

namespace millrace {

/// A file that a program of this mount writes.
struct WrittenFile {
  WrittenFile(ObjectStore& store, MemoryBudget& memory, std::string its_key, PutOptions options,
              FileUpload::MakeRoom make_room = nullptr)
      : key(std::move(its_key)), upload(store, memory, key, std::move(options), std::move(make_room)) {}

  const std::string key;
  bool replaces = false;  // until it is finished, the object that it replaces is what others see
  uint64_t inode = 0;     // that it was opened by
  pid_t writer = 0;       // the process that opened it
  std::atomic<int64_t> modified_ms{0};
  std::atomic<bool> closed{false};     // by the writer, and nothing was written since
  std::atomic<bool> ended{false};      // it is an object now, or never will be
  std::atomic<bool> abandoned{false};  // it never will be; set before `ended`
  FileUpload upload;
};

/// What programs of this mount have begun and the store does not show: files that are being written, and folders
/// without anything in them. Thread-safe, no I/O.
class LocalTree {
 public:
  /// Folders that are remembered at most.
  static constexpr size_t kMaxFolders = 100'000;

  /// False if a file of that key is being written already.
  bool Begin(std::shared_ptr<WrittenFile> file);
  void End(const std::string& key);
  /// Waits until no file of that key is being written, as `patience` has it.
  absl::Status WaitForEnd(const std::string& key, const Patience& patience) const;
  /// Null if it is not being written.
  std::shared_ptr<WrittenFile> Find(const std::string& key) const;

  /// Keys of folders end with '/'. False if there are too many.
  bool AddFolder(const std::string& folder);
  void RemoveFolder(const std::string& folder);
  /// Whether it was made, or something lies below it here.
  bool HasFolder(const std::string& folder) const;
  /// Whether something lies below it here.
  bool HasBelow(const std::string& folder) const;

  /// Names in the folder; those of folders end with '/'. Files that replace an object are left out: it shows that.
  std::set<std::string> NamesIn(const std::string& folder) const;

 private:
  bool HasBelowLocked(const std::string& folder) const;

  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  std::map<std::string, std::shared_ptr<WrittenFile>> files_;
  std::set<std::string> folders_;
};

}  // namespace millrace
