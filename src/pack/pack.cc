#include "pack/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/crypto.h"
#include "base/size.h"
#include "dataset/progress.h"
#include "pack/destination.h"
#include "pack/merge.h"
#include "pack/pack_job.h"
#include "pack/pack_plan.h"
#include "pack/shard_packer.h"
#include "shard/tar_encoder.h"

namespace millrace {

namespace {

constexpr int kMostPackers = 8;
constexpr uint64_t kPackerBytes = 128 << 20;    // what one packer makes good use of
constexpr uint64_t kFewPackerBytes = 32 << 20;  // with less, fewer of them do better

absl::Status CheckOptions(const Dataset& source, const PackOptions& options) {
  if (options.shard_bytes == 0) return absl::InvalidArgumentError("the size of a shard must be positive");
  if (options.part >= options.parts) return absl::InvalidArgumentError("there are fewer parts than that");
  if (options.force && options.parts > 1) {
    return absl::InvalidArgumentError(
        "--force would remove what the other parts have written; remove the destination first, and then start all "
        "parts without it");
  }
  if (options.classes && source.index().class_names().empty()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: a class map gives numbers to class folders, and there are none", source.uri()));
  }
  return absl::OkStatus();
}

// What tells this source from others, and from itself after a change.
absl::StatusOr<std::string> HashObjects(const Index& index) {
  Xxh3Stream hash;
  IndexedObject object;
  for (uint64_t i = 0; i < index.objects(); ++i) {
    RETURN_IF_ERROR(index.LookupObject(static_cast<uint32_t>(i), &object));
    for (const std::string_view text : {std::string_view(object.key), std::string_view(object.etag)}) {
      hash.UpdateLe64(text.size());
      hash.Update(AsBytes(text));
    }
    hash.UpdateLe64(object.size);
  }
  return hash.Digest().Hex();
}

std::string HashClasses(const std::optional<ClassMap>& classes) {
  if (!classes) return "";
  Xxh3Stream hash;
  for (const auto& [name, number] : *classes) {
    hash.UpdateLe64(name.size());
    hash.Update(AsBytes(name));
    hash.UpdateLe64(number);
  }
  return hash.Digest().Hex();
}

absl::StatusOr<PackJob> JobOf(const Dataset& source, const PackPlan& plan, const PackOptions& options) {
  PackJob job;
  job.source_uri = source.store().Uri(source.StoreKey(""));
  ASSIGN_OR_RETURN(job.source, HashObjects(source.index()));
  job.samples = source.index().size();
  job.format = "tar";
  job.shard_bytes = options.shard_bytes;
  job.order = options.shuffle_seed ? fmt::format("shuffled by seed {}", *options.shuffle_seed) : "kept";
  job.classes = HashClasses(options.classes);
  job.shards = plan.shards();
  return job;
}

// Packs shards side by side; each packer has a share of the memory to itself, so that none waits for another's.
class Packers {
 public:
  Packers(Runtime& runtime, const PackWork& work, const PackOptions& options, std::vector<uint64_t> shards)
      : runtime_(runtime),
        work_(work),
        shards_(std::move(shards)),
        progress_(options.progress),
        on_stop_(options.stop, [this] { stop_.request_stop(); }) {
    for (const uint64_t shard : shards_) total_ += work.plan.bytes[shard];
  }

  /// The first error of any; the others are stopped then.
  absl::Status Run(std::vector<SkippedSample>* skipped) {
    const uint64_t limit = runtime_.memory().limit();
    const uint64_t most =
        std::min<uint64_t>({shards_.size(), static_cast<uint64_t>(std::clamp(UsableCpus() + 1, 2, kMostPackers)),
                            limit / kFewPackerBytes});
    const uint64_t count = std::max<uint64_t>(most, 1);
    const uint64_t share = std::min(kPackerBytes, limit / count);
    const Reservation reserved = runtime_.memory().TryReserve(share * count);
    if (!reserved) {
      return absl::ResourceExhaustedError(
          fmt::format("packing needs {} of memory, and {} of {} are in use: raise --memory", FormatSize(share * count),
                      FormatSize(runtime_.memory().used()), FormatSize(limit)));
    }
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < count; ++i) threads.emplace_back([this, share] { PackSome(share); });
    for (std::thread& thread : threads) thread.join();
    for (auto& [shard, samples] : skipped_) std::move(samples.begin(), samples.end(), std::back_inserter(*skipped));
    return status_;
  }

 private:
  void PackSome(uint64_t memory_bytes) {
    MemoryBudget memory(memory_bytes);
    ShardPacker packer(
        work_, memory, [this](int64_t bytes) { Advance(bytes); }, stop_.get_token());
    while (!stop_.stop_requested()) {
      const size_t next = next_.fetch_add(1);
      if (next >= shards_.size()) return;
      std::vector<SkippedSample> skipped;
      const absl::Status status = packer.Pack(shards_[next], &skipped);
      std::lock_guard lock(mutex_);
      if (!skipped.empty()) skipped_.emplace(shards_[next], std::move(skipped));
      if (status.ok()) continue;
      if (status_.ok()) status_ = status;
      stop_.request_stop();
    }
    std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = absl::CancelledError("packing was interrupted");
  }

  void Advance(int64_t bytes) {
    std::lock_guard lock(progress_mutex_);
    done_ += bytes;
    progress_.Update(static_cast<uint64_t>(done_), total_);
  }

  Runtime& runtime_;
  const PackWork& work_;
  const std::vector<uint64_t> shards_;
  std::atomic<size_t> next_{0};
  uint64_t total_ = 0;

  std::mutex progress_mutex_;
  ProgressMeter progress_;
  int64_t done_ = 0;

  std::mutex mutex_;  // guards what follows
  absl::Status status_;
  std::map<uint64_t, std::vector<SkippedSample>> skipped_;  // by shard

  std::stop_source stop_;
  std::stop_callback<std::function<void()>> on_stop_;
};

absl::Status Complete(PackDestination& destination, const PackPlan& plan, PackReport* report) {
  report->complete = true;
  report->missing = 0;
  report->shards = plan.shards();
  report->shard_bytes = destination.ShardBytes();
  report->samples = destination.record()->samples;
  report->index_bytes = destination.record()->index_bytes;
  return destination.CleanUp();
}

// Makes the data set whole when all shards are there, whoever has written them.
absl::Status FinishJob(Runtime& runtime, PackDestination& destination, const PackPlan& plan,
                       const std::stop_token& stop, PackReport* report) {
  ASSIGN_OR_RETURN(bool begun, destination.Look());
  report->missing = begun ? destination.Missing() : 0;
  if (report->missing > 0) {
    report->complete = false;
    return absl::OkStatus();
  }
  if (begun) {
    std::vector<SkippedSample> skipped;
    const absl::StatusOr<IndexSummary> summary = MergeFragments(destination, runtime.memory(), &skipped, stop);
    if (summary.ok()) {
      RETURN_IF_ERROR(destination.Record(summary->samples, skipped.size(), summary->index_bytes));
      report->skipped = std::move(skipped);
    } else if (!absl::IsNotFound(summary.status())) {  // that is when another part was quicker
      return summary.status();
    }
    ASSIGN_OR_RETURN(begun, destination.Look());
    if (begun) return summary.status();
  }
  if (destination.record()) return Complete(destination, plan, report);
  return absl::FailedPreconditionError(fmt::format(
      "{}: while this was packed, somebody else has removed or replaced it; see what is there, and pack again",
      destination.Uri()));
}

}  // namespace

absl::Status CheckApart(const Location& source, const Location& destination) {
  const std::string from = source.store->Uri(source.Key(""));
  const std::string to = destination.store->Uri(destination.Key(""));
  if (!to.starts_with(from) && !from.starts_with(to)) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("cannot pack {} into {}: one lies within the other", from, to));
}

absl::StatusOr<PackReport> Pack(Runtime& runtime, Stores& stores, const Dataset& source,
                                std::string_view destination_uri, const PackOptions& options) {
  RETURN_IF_ERROR(CheckOptions(source, options));
  ASSIGN_OR_RETURN(const Location location, stores.Open(destination_uri));
  RETURN_IF_ERROR(CheckApart({&source.store(), source.StoreKey("")}, location));

  const uint64_t samples = source.index().size();
  const PackOrder order =
      options.shuffle_seed ? PackOrder::Shuffled(samples, *options.shuffle_seed) : PackOrder(samples);
  const ClassMap* const classes = options.classes ? &*options.classes : nullptr;
  ASSIGN_OR_RETURN(const PackPlan plan,
                   MakePackPlan(source.index(), order, classes, TarEncoder(), options.shard_bytes));
  ASSIGN_OR_RETURN(const PackJob job, JobOf(source, plan, options));
  PackDestination destination(location, ".tar", options.stop);
  RETURN_IF_ERROR(destination.Begin(job, options.force, options.parts == 1));

  PackReport report;
  report.without_image = plan.without_image;
  report.first_without_image = plan.first_without_image;
  if (destination.record()) {
    report.shards_kept = plan.shards();
    RETURN_IF_ERROR(Complete(destination, plan, &report));
    return report;
  }
  std::vector<uint64_t> to_write;
  for (uint64_t shard = options.part; shard < plan.shards(); shard += options.parts) {
    ++report.shards;
    report.shard_bytes += plan.bytes[shard];
    report.samples += plan.starts[shard + 1] - plan.starts[shard];
    if (destination.Has(shard)) {
      ++report.shards_kept;
    } else {
      to_write.push_back(shard);
    }
  }
  if (!to_write.empty()) {
    const PackWork work{.source = source,
                        .order = order,
                        .plan = plan,
                        .classes = classes,
                        .destination = destination,
                        .skip_bad = options.skip_bad};
    RETURN_IF_ERROR(Packers(runtime, work, options, std::move(to_write)).Run(&report.skipped));
  }
  report.samples -= report.skipped.size();
  RETURN_IF_ERROR(FinishJob(runtime, destination, plan, options.stop, &report));
  return report;
}

}  // namespace millrace
