#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cache/range_cache.h"
#include "store/store_around.h"

namespace millrace {

class MetricsText;

/// Counts the bytes that reads through a cache delivered.
struct CacheReport {
  uint64_t hit_bytes = 0;     // from the cache
  uint64_t miss_bytes = 0;    // from the store
  uint64_t requests = 0;      // GETs that the store was asked for
  uint64_t memory_bytes = 0;  // that a cache in memory has of the process's budget; 0: it is on a disk
  KeepCounts kept;            // of all who use the cache in this process
};
/// Adds counters of the bytes that came from a cache and from the store to `text`; their label `data` says of what.
void CollectCache(const CacheReport& cache, std::string_view data, MetricsText* text);

/// A store whose reads come from a cache where it has them, and are kept there where not. Only reads of a certain
/// version (GetOptions::if_match) are: for all others the store must be asked which one it has. Everything else goes to
/// the store. Whatever comes from the cache is checked; what is damaged there is read from the store. A version that is
/// in the cache can be read after it was replaced in the store. Tenants do not share ranges (RangeCache::TenantOf).
///
/// If another read is fetching the bytes, in this or another process that uses the cache, it is waited for, but not for
/// long.
class CachedStore final : public StoreAround {
 public:
  /// Callers of Get want all of a range, or only the spans that have checksums, if there are any. Then the bytes
  /// between them may be missing in the cache, as other orders read over other gaps, and `into` keeps its own. Only the
  /// spans that are missing are read from the store.
  enum class Wanted { kAll, kSpans };

  /// Both must outlive it.
  CachedStore(ObjectStore& below, RangeCache& cache, Wanted wanted = Wanted::kAll);
  /// Waits for the callbacks.
  ~CachedStore() override;

  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override;
  /// Does the same by a plan, if there is one, that knows when the bytes are read again. All plans of one store are of
  /// one job and period.
  void GetPlanned(std::string key, MutableByteSpan into, GetOptions options, std::optional<PlannedRead> plan,
                  GetCallback done);

  CacheReport report() const;

 private:
  struct Read;
  struct Part;

  void Start(std::shared_ptr<Read> read);
  void Join(const Read& read);
  void TryCache(std::shared_ptr<Read> read);
  bool ReadAll(Read& read);
  void ReadSpans(Read& read, uint64_t* hit_bytes);
  bool Claim(const std::shared_ptr<Read>& read);
  void AskStore(std::shared_ptr<Read> read);
  void OnAnswers(std::shared_ptr<Read> read);
  void KeepAndEnd(Read& read, absl::StatusOr<GetResult> result);
  void Begin(const Read* read);
  void Leave(const Read* read);
  void End(Read& read, absl::StatusOr<GetResult> result);

  RangeCache& cache_;
  const Wanted wanted_;
  const std::string store_name_;
  const std::string tenant_;
  std::atomic<uint64_t> hit_bytes_{0};
  std::atomic<uint64_t> miss_bytes_{0};
  std::atomic<uint64_t> requests_{0};

  std::once_flag joined_;  // as what the first read is
  std::unique_ptr<JobEntry> entry_;

  std::mutex mutex_;
  std::condition_variable idle_;
  uint64_t in_flight_ = 0;
  std::multiset<uint64_t> uses_;  // PlannedRead::use of those in flight
  uint64_t last_use_ = 0;
};

}  // namespace millrace
