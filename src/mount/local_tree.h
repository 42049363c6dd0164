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
#include <unordered_map>
#include <vector>

#include "mount/written_file.h"

namespace millrace {

/// Holds the files and folders that programs of this mount have begun and the store does not show: files that are being
/// written, and folders without anything in them. Thread-safe, no I/O.
class LocalTree {
 public:
  /// At most so many folders are remembered.
  static constexpr size_t kMaxFolders = 100'000;

  /// Adds a file that is being written, by its key and its inode, with one handle that writes. Returns false if there
  /// is one of that key already.
  bool Begin(std::shared_ptr<WrittenFile> file);
  /// Adds one more handle that writes. Returns null if no file of that inode is being written.
  std::shared_ptr<WrittenFile> Attach(uint64_t inode);
  /// A handle that writes is gone. Returns true if it was the last one.
  bool Detach(WrittenFile& file);
  /// The file is not being written any more. If only `if_idle`, nothing happens while a handle writes it, or something
  /// is not committed, or a program has it open without a name.
  void End(const std::shared_ptr<WrittenFile>& file, bool if_idle);
  /// Does the same although something is not committed. If a handle writes the file, returns false, and nothing
  /// happens.
  bool EndUnwritten(const std::shared_ptr<WrittenFile>& file);
  /// The key stands for it no more, but programs have it open.
  void Unname(const WrittenFile& file);
  /// Call it before the file itself gets its other key.
  void Rename(const std::shared_ptr<WrittenFile>& file, const std::string& to);
  /// Waits until no file of that key is being written, as `patience` has it.
  absl::Status WaitForEnd(const std::string& key, const Patience& patience) const;
  /// Returns null if the file is not being written.
  std::shared_ptr<WrittenFile> Find(const std::string& key) const;
  /// Returns the file of the inode, also if it has no name any more.
  std::shared_ptr<WrittenFile> FindInode(uint64_t inode) const;
  /// Returns all files, also those without a name.
  std::vector<std::shared_ptr<WrittenFile>> All() const;
  /// Returns the files that have a name below the folder.
  std::vector<std::shared_ptr<WrittenFile>> FilesBelow(const std::string& folder) const;

  /// Counts how many handles read the inode.
  void AddReader(uint64_t inode);
  void RemoveReader(uint64_t inode);
  bool HasReaders(uint64_t inode) const;

  /// Keys of folders end with '/'. False if there are too many.
  bool AddFolder(const std::string& folder);
  void RemoveFolder(const std::string& folder);
  /// Renames it and all folders below it. Returns false if there are too many.
  bool RenameFolder(const std::string& from, const std::string& to);
  /// Returns true if it was made, or something lies below it here.
  bool HasFolder(const std::string& folder) const;
  /// Returns true if something lies below it here.
  bool HasBelow(const std::string& folder) const;

  /// Returns the names in the folder; those of folders end with '/'. Files that the store has are left out: it shows
  /// them.
  std::set<std::string> NamesIn(const std::string& folder) const;

 private:
  bool HasBelowLocked(const std::string& folder) const;
  /// The caller lets the result go without the lock: the end of a file may wait for the store.
  std::vector<std::shared_ptr<WrittenFile>> RemoveLocked(const WrittenFile& file);

  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  std::map<std::string, std::shared_ptr<WrittenFile>> files_;
  std::unordered_map<uint64_t, std::shared_ptr<WrittenFile>> by_inode_;
  std::unordered_map<uint64_t, int> readers_;
  std::atomic<size_t> inodes_{0};  // of by_inode_: reads ask for it
  std::set<std::string> folders_;
};

}  // namespace millrace
