#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/own_folder.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "base/unique_fd.h"

namespace millrace {

/// Describes the bytes of a file in a note beside them, for a time when the mount is not there any more.
struct StagedRecord {
  std::string uri;               // where the file belongs
  std::string base;              // the ETag of the version that it rests on; "" if on none
  uint64_t size = 0;             // if `base` is "", the length of the file of bytes counts instead
  std::vector<ByteRange> local;  // which bytes are here; if `base` is "", all others are zeros
  std::string why;               // the commit failed for that reason; "" if none was tried
};

/// Describes a file that a mount has left in its staging folder.
struct LeftFile {
  StagedRecord record;
  std::string path;         // of the bytes
  int64_t modified_ms = 0;  // when they were written last
  bool is_whole = true;     // no bytes of the base are missing
};

class StagingFile;

/// Owns the folder on a local disk where the bytes of files lie that programs write, until the store has them. Each
/// mount has one of its own in `folder`/millrace-staging-1, which it locks for as long as it lives. Files that are
/// there when it ends stay, for ListLeft. These folders are one user's alone: if millrace-staging-1 belongs to another
/// user, millrace-staging-1-UID is used (base/own_folder.h). Thread-safe.
class StagingFolder {
 public:
  /// Makes it, and removes those of mounts that have ended and left nothing. `most_bytes` 0: half of what is free on
  /// the disk.
  static absl::StatusOr<std::unique_ptr<StagingFolder>> Open(const std::string& folder, uint64_t most_bytes);
  /// Returns the files that mounts which have ended have left in `folder`, oldest first. The files of living mounts are
  /// not listed. Returns PermissionDenied if all that is there belongs to other users.
  static absl::StatusOr<std::vector<LeftFile>> ListLeft(const std::string& folder);
  /// Files must have ended, except for those that are kept.
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  const std::string& path() const { return own_.path; }
  uint64_t most_bytes() const { return most_bytes_; }
  uint64_t used_bytes() const { return used_; }
  /// Returns the bytes that mounts which had ended before this one began have left in the folder around it.
  uint64_t left_bytes() const { return left_bytes_; }
  /// Returns false if files of killed writers are no longer kept: together with what other mounts have left, the files
  /// of this one take more than half of `most_bytes`. The other half is for writers that live, and killed writers of
  /// any number of mounts do not fill the disk.
  bool HasRoomForKilled() const;
  absl::StatusOr<std::unique_ptr<StagingFile>> NewFile();
  /// Returns true if WriteLater can be called: the machine has allowed a thread for it.
  bool writes_later() const { return later_ != nullptr; }

 private:
  friend class StagingFile;
  StagingFolder(OwnFolder own, UniqueFd opened, UniqueFd lock, uint64_t most_bytes, uint64_t left_bytes)
      : own_(std::move(own)),
        opened_(std::move(opened)),
        lock_(std::move(lock)),
        most_bytes_(most_bytes),
        left_bytes_(left_bytes) {}
  bool Take(uint64_t bytes);

  const OwnFolder own_;
  const UniqueFd opened_;  // it, whatever lies at its path
  const UniqueFd lock_;
  const uint64_t most_bytes_;
  const uint64_t left_bytes_;
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> next_{0};
  std::atomic<int> flushing_{0};       // calls of Flush
  std::unique_ptr<ThreadPool> later_;  // one thread, so what WriteLater got is written in its order
};

/// Holds the bytes of one file, sparse. The destructor removes them, unless they are kept. Thread-safe, but for Hold,
/// Note and WriteLater.
class StagingFile {
 public:
  ~StagingFile();
  StagingFile(const StagingFile&) = delete;
  StagingFile& operator=(const StagingFile&) = delete;

  /// From now on, the file takes so many bytes of the folder's. If there are not so many, returns false, and nothing
  /// changes.
  bool Hold(uint64_t bytes);
  /// Returns ResourceExhausted if the disk is full.
  absl::Status Write(uint64_t offset, ByteSpan bytes) const;
  /// Writes in the background and past the kernel's page cache: to copy the bytes there costs more than to write them.
  /// If `is_awaited` says that a program waits for the disk, or Flush waits, they go through it all the same: the
  /// kernel takes much at once. The bytes must stay until `done` is called. The folder must be one that writes_later().
  /// Until Flush returns, no other call may concern the range.
  void WriteLater(uint64_t offset, ByteSpan bytes, const std::function<bool()>& is_awaited, std::function<void()> done);
  /// WriteLater will get what follows that byte, in the order of the file; all before it is here.
  void BeginLater(uint64_t offset) { flushed_end_ = offset; }
  /// All before that byte is here, also while others write. (It is only true between BeginLater and Flush.)
  uint64_t flushed_end() const { return flushed_end_; }
  /// Waits for what WriteLater got. Returns the ranges that could not be written since the last call.
  std::vector<ByteRange> Flush();
  absl::Status Read(uint64_t offset, MutableByteSpan into) const;
  /// Bytes behind it are dropped, and a gap reads as zeros.
  absl::Status Resize(uint64_t size) const;
  /// Gives the disk space of the range back.
  void Drop(ByteRange range) const;
  /// When it returns, the bytes are on the disk.
  absl::Status Sync() const;

  /// Notes what the file is, durably if `synced`.
  absl::Status Note(const StagedRecord& record, bool synced);
  /// The bytes are of no use without this mount: the store has them.
  void RemoveNote();
  bool noted() const { return noted_; }
  /// The bytes and the note stay when this is destroyed. They count until the mount ends.
  void Keep() { kept_ = true; }
  std::string path() const { return path_; }

 private:
  friend class StagingFolder;
  StagingFile(StagingFolder& folder, std::string path, UniqueFd fd)
      : folder_(folder), path_(std::move(path)), fd_(std::move(fd)) {}

  absl::Status WritePastCache(uint64_t offset, ByteSpan bytes);

  StagingFolder& folder_;
  const std::string path_;
  const UniqueFd fd_;
  UniqueFd direct_{-1};  // the folder's thread has it
  bool is_direct_ = true;
  std::mutex mutex_;
  std::condition_variable written_;
  int waiting_ = 0;  // calls of WriteLater
  std::atomic<uint64_t> flushed_end_{0};
  std::vector<ByteRange> failed_;
  uint64_t held_ = 0;
  bool noted_ = false;
  bool kept_ = false;
};

}  // namespace millrace
