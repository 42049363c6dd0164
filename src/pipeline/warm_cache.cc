#include "pipeline/warm_cache.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "dataset/changed_object.h"
#include "pipeline/loader_plan.h"
#include "pipeline/next_use.h"
#include "pipeline/read_cache.h"

namespace millrace {

namespace {

constexpr uint64_t kBytesInFlight = uint64_t{64} << 20;
// This is below the limit at which a cache drops writes.
constexpr uint64_t kBytesToFlush = uint64_t{32} << 20;
constexpr uint64_t kMaxRunBytes = uint64_t{8} << 20;

/// Reads runs, as many at once as fit into a bound.
class Warmer {
 public:
  Warmer(const LoaderPlan& plan, const LongTask& task)
      : plan_(plan), task_(task), reads_(plan.source, plan.options.cache), next_use_(plan) {}
  ~Warmer() { Await(0); }

  absl::Status All() {
    for (size_t part = 0; part < plan_.source.parts().size(); ++part) {
      const Subset& subset = plan_.source.parts()[part];
      const RunLimits limits{.bytes = kMaxRunBytes, .gap = subset.dataset->store().traits().gap_bytes};
      const uint64_t extent = NextUse::Together(plan_, part) ? plan_.policies[part].extent : kMaxRunItems;
      for (uint64_t rank = 0; rank < plan_.source.SizeOf(part);) {
        ASSIGN_OR_RETURN(FetchRun run, RunAround(subset.index(), subset.selection.get(), extent, rank, limits,
                                                 [&](uint64_t other) { return other >= rank; }));
        run.part = part;
        uint64_t next = rank + 1;
        for (const FetchRun::Part& one : run.parts) next = std::max(next, one.rank + 1);
        RETURN_IF_ERROR(Read(run));
        rank = next;
      }
    }
    Await(0);
    plan_.options.cache->Flush();
    return status();
  }

  WarmReport report() const {
    return {.cache = reads_.report().value_or(CacheReport{}),
            .kept = plan_.options.cache->counts(),
            .sample_bytes = plan_.source.total_bytes()};
  }

 private:
  absl::Status status() {
    const std::lock_guard lock(mutex_);
    return status_;
  }

  void Await(uint64_t bytes) {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return in_flight_ == 0 || in_flight_ + bytes <= kBytesInFlight; });
    if (bytes == 0) ended_.wait(lock, [&] { return in_flight_ == 0; });
  }

  absl::Status Read(const FetchRun& run) {
    const ByteRange range = run.range();
    if (range.length == 0) return absl::OkStatus();
    if (task_.stop.stop_requested()) return absl::CancelledError("interrupted");
    Await(range.length);
    RETURN_IF_ERROR(status());
    if ((since_flush_ += range.length) >= kBytesToFlush) {
      Await(0);
      plan_.options.cache->Flush();
      since_flush_ = 0;
    }
    const Dataset& dataset = *plan_.source.parts()[run.part].dataset;
    IndexedObject object;
    RETURN_IF_ERROR(dataset.index().LookupObject(run.object, &object));
    GetOptions get = RequestFor(run, object);
    get.stop = task_.stop;
    auto buffer = std::make_shared<Buffer>(range.length);
    {
      const std::lock_guard lock(mutex_);
      in_flight_ += range.length;
    }
    const MutableByteSpan into = buffer->span();
    reads_.Get(dataset.store(), dataset.StoreKey(object.key), into, std::move(get), next_use_.First(run),
               [this, buffer, uri = dataset.uri()](absl::StatusOr<GetResult> result) {
                 const std::lock_guard lock(mutex_);
                 in_flight_ -= buffer->size();
                 done_ += buffer->size();
                 if (status_.ok() && !result.ok()) status_ = SayIfChanged(result.status(), uri);
                 if (task_.progress)
                   task_.progress(std::min(done_, plan_.source.total_bytes()), plan_.source.total_bytes());
                 ended_.notify_all();
               });
    return absl::OkStatus();
  }

  const LoaderPlan& plan_;
  const LongTask& task_;
  std::mutex mutex_;
  std::condition_variable ended_;
  uint64_t in_flight_ = 0;
  uint64_t done_ = 0;
  absl::Status status_;
  uint64_t since_flush_ = 0;
  const ReadCache reads_;  // its end waits for the callbacks
  NextUse next_use_;
};

}  // namespace

absl::StatusOr<WarmReport> WarmCache(const Source& source, LoaderOptions options, const LongTask& task) {
  if (options.cache == nullptr) return absl::InvalidArgumentError("there is no cache to warm");
  if (source.tokens() != nullptr) return absl::InvalidArgumentError("what is warmed is samples, not rows of tokens");
  ASSIGN_OR_RETURN(const LoaderPlan plan, SettleOrder(source, std::move(options)));
  Warmer warmer(plan, task);
  const absl::Status status = warmer.All();
  if (!status.ok()) return status;
  return warmer.report();
}

}  // namespace millrace
