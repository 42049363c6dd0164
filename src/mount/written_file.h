#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/memory_budget.h"
#include "mount/file_upload.h"
#include "mount/inode_table.h"
#include "mount/patience.h"
#include "mount/read_window.h"
#include "mount/staging.h"
#include "mount/written_content.h"
#include "store/object_store.h"

namespace millrace {

/// Holds a file that programs of this mount write, as all of them see it. While it is only written at its end, it is
/// uploaded as a stream. Its bytes also lie in the staging folder, and so every other call can be served. Commit makes
/// them a version of the object, whole or not at all, as often as it is called.
///
/// Without a staging folder it is a stream and nothing else: it cannot be read, and it ends with the first commit.
///
/// A commit never replaces a version that the file does not rest on: it is refused (ESTALE), the bytes stay in the
/// staging folder, and every later call fails. Thread-safe: one call changes it at a time, others wait.
class WrittenFile {
 public:
  /// Names the services that all files share; they must outlive them.
  struct Services {
    ObjectStore& store;
    MemoryBudget& memory;
    StagingFolder* staging = nullptr;  // null: --no-staging
    FileUpload::MakeRoom make_room;
    std::function<std::unique_ptr<ReadWindow>(const Node&)> open_base;  // reads a version of the store
    /// Fsync publishes a version so often at most; zero: only of files that are appended to, each second.
    std::chrono::nanoseconds publish_every{0};
  };

  /// Begins a new file.
  WrittenFile(const Services& services, std::string key);
  /// Opens one that is in the store.
  WrittenFile(const Services& services, Node base);
  ~WrittenFile();
  WrittenFile(const WrittenFile&) = delete;
  WrittenFile& operator=(const WrittenFile&) = delete;

  // ---- What it is. None of these wait.
  std::string key() const;
  uint64_t size() const { return size_; }
  int64_t modified_ms() const { return modified_ms_; }
  /// Returns true if there is something to commit.
  bool changed() const { return changed_; }
  /// Returns true if the store has a version of it.
  bool in_store() const { return in_store_; }
  /// Returns the version that the store has, or, without an ETag, what there is to commit.
  Node node() const;
  /// Returns true if it has no name any more, so it is not committed.
  bool unlinked() const { return unlinked_; }
  /// Returns true if changes are over: it was refused or abandoned, or, without a staging folder, committed.
  bool ended() const { return ended_; }
  bool abandoned() const { return abandoned_; }
  /// Puts all bytes into the staging folder, for a file that goes to the store later. False if it has to go now: some
  /// are only in the stream.
  bool CanWait(const Patience& patience);
  /// Returns true if bytes that were written last may be in memory only, and not in the staging folder.
  bool unflushed() const { return unflushed_; }
  /// Puts them there if nothing was written for a second. Returns false if it has to be asked again: something was, or
  /// is.
  bool FlushIdle();
  /// Returns true if a signal that ends its writer does not take back what was written: it was synced or appended to,
  /// or a close has left it for later.
  bool outlives_writer() const { return synced_ || appended_ || deferred_; }

  // ---- Calls of programs. All may wait, as `patience` has it.

  /// Returns how many bytes were taken: all, unless it was interrupted. Without a staging folder, returns EINVAL if
  /// they do not come behind those that were taken before, and EIO after the end. Returns ENOSPC if the staging folder
  /// has no room and the stream does not do.
  absl::StatusOr<size_t> Write(uint64_t offset, ByteSpan bytes, const Patience& patience);
  /// Returns bytes from `offset` on, fewer where the file ends. Returns ENOSPC if they are only in the upload.
  absl::StatusOr<FileBytes> Read(uint64_t offset, size_t size, const Patience& patience);
  absl::Status Truncate(uint64_t size, const Patience& patience);
  /// The range reads as zeros; it lies within the size or behind it, and does not change the size.
  absl::Status Clear(ByteRange range, const Patience& patience);
  /// The bytes so far survive the end of this process, and of the machine. Publishes a version if it is time to.
  absl::Status Sync(const Patience& patience);
  /// The store has what was written. Does nothing if nothing has changed.
  absl::Status Commit(const Patience& patience);
  /// Nothing of what was written since the last commit is kept.
  void Abandon();
  /// Fetches all bytes that are not here into the staging folder: the object will go, and programs have the file open.
  absl::Status Fetch(const Patience& patience);
  /// The name is gone. Returns the version that the store has, if it has one.
  absl::StatusOr<std::optional<Node>> Unlink(const Patience& patience);
  /// The store has refused to remove that version.
  void Relink();
  /// Another key has the object from now on, as this version. Call it after a commit. A call that writes meanwhile,
  /// and hangs, ends first: what it writes belongs to the other key, too.
  void Rename(Node now, const Patience& patience);
  /// The mount ends. A file that is committed, or has no name, goes from the staging folder.
  void DropStaged();
  /// Bytes that were not committed stay in the staging folder for `millrace mount --recover`.
  /// `synced`: they survive the end of the machine.
  void Park(const std::string& why, bool synced = true);

  void set_appended() { appended_ = true; }
  /// A close has succeeded, and the store gets the file later.
  void set_deferred() { deferred_ = true; }
  void set_modified_ms(int64_t ms);
  /// Sets the permissions that a new file of a folder may have, if this becomes one. A stream that has begun keeps its
  /// own.
  void set_mode(mode_t mode) { mode_ = mode; }
  /// Returns true if a program has set the time of the last change, and nothing was written since.
  bool has_set_time() const { return set_time_; }

  // ---- The mount's own, which the LocalTree guards.
  uint64_t inode = 0;
  pid_t writer = 0;                        // without a staging folder: the process that opened it
  std::atomic<bool> closed{false};         // without a staging folder: by the writer, and nothing was written since
  std::atomic<int> writing{0};             // handles that write, and were not closed by the process that opened them
  int writers = 0;                         // handles that write
  std::atomic<bool> cached{true};          // the kernel may keep bytes of it, which what is written past it outdates
  std::atomic<bool> flushes_later{false};  // FlushIdle will be called

 private:
  using Lock = std::unique_lock<std::mutex>;
  /// Holds the right of one call to change the file.
  class WriteLock {
   public:
    explicit WriteLock(WrittenFile* file) : file_(file) {}
    WriteLock(WriteLock&& other) noexcept : file_(std::exchange(other.file_, nullptr)) {}
    WriteLock& operator=(WriteLock&&) = delete;
    ~WriteLock() {
      if (file_ == nullptr) return;
      std::lock_guard lock(file_->mutex_);
      file_->write_locked_ = false;
      file_->write_unlocked_.notify_all();
    }

   private:
    WrittenFile* file_;
  };

  absl::StatusOr<WriteLock> LockWrites(const Patience& patience);
  bool TakeOtherName();
  bool IsFlushed(uint64_t end) const;
  bool Stage(uint64_t offset, ByteSpan bytes);
  bool CanStageLater(uint64_t offset, ByteSpan bytes);
  void FlushStaged();
  bool MakeStagingFile();
  bool DropArrived();
  absl::StatusOr<size_t> WriteStream(uint64_t offset, ByteSpan bytes, const Patience& patience);
  absl::Status WriteStaged(uint64_t offset, ByteSpan bytes, const Patience& patience);
  absl::Status CheckNotLost(ByteRange range, uint64_t offset, size_t bytes);
  void BeginStream();
  PutOptions Condition() const;
  absl::Status CheckFolderBase(const Patience& patience);
  absl::StatusOr<ObjectInfo> Upload(const Patience& patience);
  absl::Status CommitNow(const Patience& patience);
  absl::Status FinishCommit(const Patience& patience);
  std::optional<ObjectInfo> FindOurs(const Patience& patience);
  absl::Status ReadInto(uint64_t offset, MutableByteSpan into, const Patience& patience);
  absl::Status NoRoom() const;
  void Changed();
  void ParkLocked(const std::string& why, bool synced);
  StagedRecord RecordLocked() const;

  const Services& services_;

  mutable std::mutex mutex_;
  std::condition_variable write_unlocked_;
  bool write_locked_ = false;  // a call that changes the file
  std::string key_;
  std::string uri_;
  Node base_;                    // with the key and the ETag of the version of the store
  std::optional<Node> renamed_;  // what these three will be for the next holder of the write lock
  WrittenContent content_;
  absl::Status failed_;                 // what every later call is told
  uint64_t versions_ = 0;               // of the base
  std::shared_ptr<ReadWindow> window_;  // of the base; null until it is read
  std::unique_ptr<StagingFile> file_;
  std::unique_ptr<FileUpload> upload_;  // touched by the holder of the write lock
  bool stream_is_done_ = false;         // without a staging folder: committed
  bool kept_ = false;                   // `file_` stays
  bool full_ = false;                   // the log says so already
  int patches_ = 0;                     // writes to bytes that the stream had
  std::chrono::steady_clock::time_point streamed_at_{};
  std::atomic<bool> unflushed_{false};  // bytes of the stream are not in the staging file yet
  std::chrono::steady_clock::time_point publish_after_{};

  std::atomic<uint64_t> size_{0};
  std::atomic<int64_t> modified_ms_{0};
  std::atomic<bool> set_time_{false};  // by a program
  std::atomic<mode_t> mode_{PutOptions().most_mode};
  std::atomic<bool> changed_{false};
  std::atomic<bool> in_store_{false};
  std::atomic<bool> unlinked_{false};
  std::atomic<bool> ended_{false};
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> appended_{false};
  std::atomic<bool> synced_{false};
  std::atomic<bool> deferred_{false};
};

}  // namespace millrace
