#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "compile_cache/cache_folders.h"
#include "compile_cache/cache_protocol.h"
#include "store/stores.h"
#include "transfer/versioned_document.h"

namespace millrace {

struct CompileCacheOptions {
  std::string key;    // CheckCacheKey
  std::string about;  // what it stands for; for people only
  std::vector<CacheFolder> folders;
  uint64_t max_bytes = uint64_t{10} << 30;
  std::chrono::milliseconds wait{10 * 60 * 1000};  // for another host that compiles
  std::chrono::milliseconds term{60 * 1000};       // of the lease
  /// Gets each event as one sentence, without its end, on the thread that calls.
  std::function<void(const std::string&)> journal;
};

/// Keeps the files that compilers have made for one key, in a store. They are the record `URI/KEY/RECORD`, and objects
/// named by the SHA-256 of their bytes (docs/compile-cache.md). A file is placed in a folder of a compiler only if its
/// bytes are those of the record. Blocking; not thread-safe; the Stores and the budget must outlive it. Calls that take
/// a token return Cancelled soon after a stop is requested.
class CompileCache {
 public:
  /// `location` is that of the URI.
  CompileCache(Location location, Stores& stores, MemoryBudget& memory, CompileCacheOptions options);

  /// Waits while another host compiles, or becomes the host that compiles; then brings what is cached. After an error
  /// nothing is known of the store, and the folders are as sound as they were.
  absl::Status Start(const std::stop_token& stop);
  /// Returns true if this host is the one that compiles.
  bool holds_lease() const { return holds_lease_; }
  /// Makes the lease last for another term. FailedPrecondition if another host has taken it.
  absl::Status Renew(const std::stop_token& stop);

  /// Finds the files of the folders that are new since Start (if nothing was cached then: all), as of now.
  FoundFiles FindNew() const;
  /// Stores new files that did not change after `latest_ns` (since 1970), gives the lease back, evicts what is above
  /// the bound. Renews the lease meanwhile. With `sweeps` also removes objects that killed hosts have left. Files that
  /// change while they are read are left for the next time.
  absl::Status Publish(const FoundFiles& found, int64_t latest_ns, bool sweeps, const std::stop_token& stop);
  /// Gives the lease back without a report that anything was compiled: the next host is to try.
  absl::Status GiveBack(const std::stop_token& stop);

 private:
  struct Hashed {
    FoundFile found;
    CachedFile file;
    ObjectInfo object;  // in the store of all files
  };

  std::string ObjectKey(const std::string& sha256) const { return folder_ + "objects/" + sha256; }
  absl::StatusOr<CacheVersion> Read(const std::stop_token& stop) const;
  absl::Status RunStart(const std::stop_token& stop);
  absl::Status Fetch(const std::stop_token& stop);
  absl::Status FetchFiles(const std::vector<CachedFile>& wanted, std::map<std::string, absl::Status>* failures,
                          const std::stop_token& stop);
  absl::Status FetchFile(const CachedFile& file, const std::string& place, const std::stop_token& stop);
  absl::StatusOr<Hashed> Hash(const FoundFile& found, const std::stop_token& stop);
  absl::StatusOr<std::vector<CachedFile>> HashNew(const FoundFiles& found, int64_t latest_ns,
                                                  const std::stop_token& stop);
  absl::StatusOr<bool> RenewIfHeld(const std::stop_token& stop) const;  // thread-safe
  absl::Status RunPublish(PublishProtocol::Job job, const std::stop_token& stop);
  std::set<std::string> Upload(const std::vector<CachedFile>& files, const std::stop_token& stop);
  void Remove(const std::set<std::string>& objects, const std::stop_token& stop);
  absl::Status Sweep(const std::stop_token& stop);
  void Journal(const std::string& text) const { options_.journal(text); }

  ObjectStore& store_;
  Stores& stores_;
  MemoryBudget& memory_;
  const CompileCacheOptions options_;
  const std::string folder_;  // of the key, ending with '/'
  VersionedDocument document_;
  const std::string holder_;
  bool holds_lease_ = false;
  CacheRecord record_;                       // as it was read or written last
  std::map<std::string, FoundFile> before_;  // what was in the folders at the start, by path
  std::map<std::string, Hashed> hashed_;     // by path
};

}  // namespace millrace
