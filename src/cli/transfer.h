#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "cli/console.h"
#include "store/object_store.h"

namespace millrace::cli {

/// Copies objects between stores, many at a time. Objects up to 8 MiB: 64 at a time and up to 64 MiB of them. Larger
/// ones: two at a time, in pieces (store/large_copy.h). Where the store copies by itself (ObjectStore::CopiesFrom), it
/// does, 64 objects at a time. An object appears in its place whole or not at all.
class Copier {
 public:
  struct Item {
    ObjectStore* from = nullptr;
    ObjectInfo source;
    ObjectStore* to = nullptr;
    std::string key;
  };
  struct Report {
    uint64_t objects = 0;
    uint64_t bytes = 0;
    uint64_t failed = 0;
    std::map<std::string, absl::Status> failures;  // by the source's URI; the first ten
  };

  explicit Copier(ProgressLine& progress) : progress_(progress) {}
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  /// Starts one copy; blocks while too many are in flight. False when nothing more should be added: interrupted, or an
  /// error that would meet every object (no space, no credentials). From one thread only.
  bool Add(Item item);

  /// For the progress: how much there is in all, once it is known.
  void SetTotal(uint64_t bytes);

  /// Waits for all copies. Call it once, last.
  Report Finish();

 private:
  struct Small;

  bool StartWithin(Item& item);
  void AddThrough(Item item);
  void AddRefused();
  void StartSmall(Item item);
  void AddLarge(Item item);
  void CopyLargeObjects();
  absl::Status CopyLarge(const Item& item);
  void Count(const Item& item, const absl::Status& status);
  void Done(const Item& item, const absl::Status& status);
  void Advance(uint64_t bytes);

  ProgressLine& progress_;
  InterruptStop interrupt_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int small_ = 0;              // objects in flight
  uint64_t small_bytes_ = 0;   // of them
  int within_ = 0;             // objects that a store is copying by itself
  std::vector<Item> refused_;  // which it turned out not to do
  bool refuses_ = false;
  std::deque<Item> large_;  // waiting
  bool closed_ = false;     // no more large ones
  bool hopeless_ = false;
  uint64_t moved_ = 0;  // bytes, for the progress
  uint64_t total_ = 0;
  Report report_;
  std::vector<std::thread> threads_;  // for large objects; started with the first
};

}  // namespace millrace::cli
