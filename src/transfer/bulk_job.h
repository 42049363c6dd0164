#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "store/object_store.h"
#include "transfer/copy_object.h"

namespace millrace {

/// Says how far a BulkJob is.
struct BulkProgress {
  uint64_t copied_bytes = 0;  // of objects in flight, too
  uint64_t total_bytes = 0;   // to be copied; 0: not known yet
  uint64_t removed_objects = 0;
};

/// Counts what became of objects. Those that a stop cut off, or that were not begun, are not counted.
struct BulkReport {
  uint64_t objects = 0;
  uint64_t bytes = 0;       // of those whose size is known
  uint64_t unverified = 0;  // of those that were copied: by CopyCheck::kNone
  uint64_t read_twice = 0;  // by CopyCheck::kReadTwice
  uint64_t failed = 0;
  std::map<std::string, absl::Status> failures;  // by URI, of a copy that of its source; the first ten

  void Add(const std::string& uri, uint64_t size, const absl::Status& status);
  void Add(const BulkReport& other);  // of other objects
};

/// Copies and removes objects, many at a time. An object that fails does not keep the others from being done. Calls
/// come from one thread; the stores must outlive it. The destructor waits for what has begun.
///
///   BulkJob job({.stop = stop});
///   RETURN_IF_ERROR(job.Copy(from, object, to, key));  // for each object; does not wait for it
///   const BulkJob::Reports reports = job.Finish();
///
/// Copies (transfer/copy_object.h): 64 objects at a time, or 72 small ones. If their bytes come through this machine,
/// it is up to 64 MiB of objects of at most 8 MiB, and two larger ones. Removals: requests for up to 1,000 objects,
/// four at a time. Files behind a link to another folder are never removed: they are not the user's to name here.
///
/// Before the first object is copied into a folder, what killed writers have left there is removed.
class BulkJob {
 public:
  struct Options {
    std::function<void(const BulkProgress&)> progress;  // on any thread, one call at a time; must not block
    /// Called for each copy that is done; on any thread, one call at a time; must not block.
    std::function<void(const ObjectInfo& source, const std::string& key, const ObjectInfo& copy)> copied;
    bool read_twice = false;   // CopyObjectOptions::read_twice
    std::string content_type;  // CopyObjectOptions::content_type
    std::stop_token stop;
  };
  explicit BulkJob(Options options) : options_(std::move(options)) {}
  ~BulkJob();

  /// Takes one object to be copied, or removed; blocks while too many are in flight. Cancelled if nothing more should
  /// be added: after a stop, or an error that would meet every object (no space, no credentials).
  absl::Status Copy(ObjectStore& from, ObjectInfo source, ObjectStore& to, std::string key);
  absl::Status Remove(ObjectStore& store, ObjectInfo object);

  /// Returns why Remove refuses an object: the store can hold no such key, or it is behind a link. It is for removals
  /// that are only announced.
  static absl::Status CheckRemoval(const ObjectStore& store, std::string_view key);

  struct Reports {
    BulkReport copied;
    BulkReport removed;
  };
  /// Waits until all that was taken is done. Call it once, last.
  Reports Finish();

 private:
  /// Bounds the work: `used` never exceeds `limit`.
  struct Room {
    const uint64_t limit;
    uint64_t used = 0;
  };
  struct Batch {
    ObjectStore* store = nullptr;
    std::vector<ObjectInfo> objects;
  };

  absl::Status CheckGoesOn();
  void RemoveLeftovers(ObjectStore& to, std::string_view key);
  void Enter(Room& room, uint64_t amount);
  void Leave(Room& room, uint64_t amount);
  void Start(Room& room, absl::AnyInvocable<void()> work);
  bool NeedsThread(const ObjectStore& from, uint64_t size, const ObjectStore& to) const;
  absl::Status CopySmall(ObjectStore& from, ObjectInfo source, ObjectStore& to, std::string key);
  absl::StatusOr<CopiedObject> CopyOne(ObjectStore& from, const ObjectInfo& source, ObjectStore& to,
                                       const std::string& key);
  CopyObjectOptions OptionsOfCopy();
  void Note(const ObjectStore& from, const ObjectInfo& source, const std::string& key,
            const absl::StatusOr<CopiedObject>& copied);
  void WaitForAll();
  void StartRemoval();
  void RemoveBatch(const Batch& batch);
  void Tell();  // under the mutex

  const Options options_;
  Batch batch_;  // to be removed; not begun
  uint64_t total_bytes_ = 0;
  std::set<std::string> tidy_;  // folders without leftovers; a bounded number of them

  std::mutex mutex_;
  std::condition_variable changed_;
  Room copies_{64};  // by threads
  Room small_{72};   // of the others, which are notified of room in eights
  Room small_bytes_{64 << 20};
  Room large_{2};
  Room removals_{4};
  bool hopeless_ = false;
  BulkProgress progress_;
  Reports reports_;

  std::atomic<bool> refused_{false};   // a store that copies by itself turned out not to: no other copy asks for it
  std::optional<ThreadPool> threads_;  // of the work, which uses the rest; made with the first
};

}  // namespace millrace
