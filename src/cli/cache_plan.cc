#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/counted.h"
#include "base/size.h"
#include "cache/disk_cache.h"
#include "cli/cache_option.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/forecast_text.h"
#include "cli/json_text.h"
#include "cli/usage.h"
#include "dataset/dataset.h"
#include "net/runtime.h"
#include "pipeline/cache_forecast.h"
#include "pipeline/warm_cache.h"
#include "store/stores.h"

namespace millrace::cli {

namespace {

struct PlanFlags {
  std::string uri;
  CacheOption cache;
  std::string shuffle = "window";
  LoaderOptions loader{.allow_arrays = true, .batch = 1};  // no batch is made
  std::string capacity = "25%";
  uint64_t epochs = 5;
  uint64_t local_ranks = 0;
  bool json = false;
};

void AddPlanOptions(const Command& command, PlanFlags* flags) {
  command.Add("uri", &flags->uri, "The data set, as 'millrace feed' takes it").Required();
  command.AddShown("--shuffle", &flags->shuffle, "Order of the samples").Words({"window", "global", "none"});
  command.AddShown("--seed", &flags->loader.seed, "Seed of the order").Number(0);
  command.Add("--extent", &flags->loader.extent, "As in 'millrace feed'; also the next two").Number(1);
  command.Add("--window", &flags->loader.window, "Extents shuffled together").Number(1);
  command.Add("--lanes", &flags->loader.lanes, "Divisions of a window").Number(1);
}

absl::StatusOr<LoaderOptions> ToOptions(const PlanFlags& flags) {
  LoaderOptions options = flags.loader;
  ASSIGN_OR_RETURN(options.shuffle, ParseShuffle(flags.shuffle));
  options.image.height = options.image.width = 1;
  return options;
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenIt(Runtime& runtime, Stores& stores, const std::string& uri,
                                                const std::stop_token& stop) {
  RETURN_IF_ERROR(CheckUri(uri));
  ProgressLine progress("indexing " + uri, ProgressLine::Unit::kBytes);
  OpenOptions open;
  open.progress = [&](uint64_t done, uint64_t total) { progress.Update(done, total); };
  open.stop = stop;
  return Dataset::Open(runtime, stores, uri, open);
}

absl::Status Warm(const PlanFlags& flags) {
  ASSIGN_OR_RETURN(LoaderOptions options, AsUsage(ToOptions(flags)));
  ASSIGN_OR_RETURN(const RangeCacheOptions disk, flags.cache.TakeFolder("it would be gone with this command"));
  const InterruptStop interrupt;
  Runtime runtime;
  Stores stores(runtime);
  ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> dataset, OpenIt(runtime, stores, flags.uri, interrupt.token()));
  if (dataset->store().traits().is_memory())
    return absl::InvalidArgumentError(fmt::format("{}: what lies in memory is not cached", flags.uri));
  ASSIGN_OR_RETURN(options.cache, DiskCache::Open(disk));
  WarmReport report;
  {
    ProgressLine progress("warming " + flags.cache.place, ProgressLine::Unit::kBytes);
    ASSIGN_OR_RETURN(report, WarmCache(*dataset, options, progress.Task(interrupt.token())));
  }
  const KeepCounts& kept = report.kept;
  if (flags.json) {
    return WriteStdout(JSON_OF(report.sample_bytes, Named("there_bytes", report.cache.hit_bytes),
                               Named("read_bytes", report.cache.miss_bytes), report.cache.requests, kept.written_bytes,
                               Named("no_room_bytes", kept.not_admitted_bytes), kept.dropped_bytes)
                           .Versioned("cache.warm"));
  }
  return WriteStdout(fmt::format(
      "{} of samples: {} were in {} already, {} came from the store in {}, and {} of them are kept\n",
      FormatSize(report.sample_bytes), FormatSize(report.cache.hit_bytes), flags.cache.place,
      FormatSize(report.cache.miss_bytes), Counted(report.cache.requests, "request"), FormatSize(kept.written_bytes)));
}

/// "25%" of the data, or a size.
struct Capacity {
  std::string text;
  std::optional<double> share;
  uint64_t bytes = 0;
};

absl::StatusOr<std::vector<Capacity>> ParseCapacities(const std::string& text) {
  std::vector<Capacity> capacities;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    Capacity one{.text = std::string(item), .share = {}, .bytes = 0};
    if (one.text.ends_with('%')) {
      char* end = nullptr;
      one.share = std::strtod(one.text.c_str(), &end) / 100;
      if (end != one.text.c_str() + one.text.size() - 1 || end == one.text.c_str() || !(*one.share > 0) ||
          *one.share > 1000)
        return absl::InvalidArgumentError(fmt::format("--capacity {}: no share of the data", one.text));
    } else {
      ASSIGN_OR_RETURN(one.bytes, TakeSize("--capacity", one.text));
    }
    capacities.push_back(std::move(one));
  }
  return capacities;
}

absl::Status Simulate(const PlanFlags& flags) {
  ASSIGN_OR_RETURN(const LoaderOptions options, AsUsage(ToOptions(flags)));
  ASSIGN_OR_RETURN(const std::vector<Capacity> capacities, AsUsage(ParseCapacities(flags.capacity)));
  if (flags.local_ranks > flags.loader.world) return UsageError("--local-ranks is more than --world");
  const InterruptStop interrupt;
  Runtime runtime;
  Stores stores(runtime);
  ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> dataset, OpenIt(runtime, stores, flags.uri, interrupt.token()));
  const Source source(*dataset);
  for (const Capacity& capacity : capacities) {
    if (interrupt.token().stop_requested()) return absl::CancelledError("interrupted");
    CacheForecastOptions cache{
        .capacity_bytes = capacity.bytes, .epochs = flags.epochs, .local_ranks = flags.local_ranks};
    if (capacity.share)
      cache.capacity_bytes = static_cast<uint64_t>(*capacity.share * static_cast<double>(source.total_bytes()));
    ASSIGN_OR_RETURN(const CacheForecast found, ForecastCache(source, options, cache));
    if (!flags.json) {
      RETURN_IF_ERROR(WriteStdout(ForecastText(cache.capacity_bytes, found)));
      continue;
    }
    RETURN_IF_ERROR(WriteStdout(ForecastJson(cache.capacity_bytes, found).Versioned("cache.simulate")));
  }
  return absl::OkStatus();
}

}  // namespace

void AddCacheWarm(Command cache) {
  const Command warm = cache.AddCommand("warm", "Read a data set into a cache before a job needs it");
  auto flags = std::make_shared<PlanFlags>();
  AddPlanOptions(warm, flags.get());
  const Option folder = warm.Add("--cache DIR", &flags->cache.place, "The folder of the cache").Required();
  AddCacheTenant(warm, folder, &flags->cache.tenant);
  warm.Add("--cache-size", &flags->cache.size, "Max size of the cache on disk [all but 5 %]");
  warm.AddFlag("--pin", &flags->loader.pin, "Keep it until it is cleared; other data do not replace it");
  warm.AddFlag("--json", &flags->json,
               R"(One JSON object: {"sample_bytes", "there_bytes", "read_bytes", "requests", "written_bytes", )"
               R"("no_room_bytes", "dropped_bytes"})");
  warm.Footer(
      "If the data are larger than the cache, it keeps the part that a loader with the same order and seed needs "
      "first.\n\nExamples:\n"
      "  millrace cache warm s3://bucket/train --cache /nvme/millrace --cache-size 500GiB\n"
      "  millrace cache warm s3://bucket/train --cache /nvme/millrace --shuffle global --seed 7");
  warm.Run([flags] { return ExitStatus("cache", HintAtS3(Warm(*flags), {flags->uri})); });
}

void AddCacheSimulate(Command cache) {
  const Command simulate =
      cache.AddCommand("simulate", "Predict what a cache of a size would bring, from the index alone");
  auto flags = std::make_shared<PlanFlags>();
  AddPlanOptions(simulate, flags.get());
  simulate.AddShown("--capacity", &flags->capacity, "Sizes of the cache, or shares of the data: 100GiB,25%,50%");
  simulate.AddShown("--epochs", &flags->epochs, "Epochs, with an empty cache before the first").Number(1, 1000);
  simulate.AddShown("--world", &flags->loader.world, "Ranks of the job").Number(1);
  simulate.Add("--local-ranks", &flags->local_ranks, "Ranks that share one cache, those of one machine [all]")
      .Number(1);
  simulate.AddFlag("--json", &flags->json,
                   R"(One JSON object for each capacity: {"capacity_bytes", "data_bytes", "units", "sampled", "all", )"
                   R"("epochs": [{"bytes", "hit_rate", "store_bytes"}]}, of "ours", "lru" and "optimum" each)");
  simulate.Footer(
      "Three policies are compared: Millrace's (ours), LRU as other caches have it, and the optimum (L. Belady). No "
      "cache beats the optimum if all ranges have one size. If sizes differ, ours may have slightly more. No sample is "
      "read.\n\nExamples:\n"
      "  millrace cache simulate s3://bucket/train --capacity 100GiB,200GiB --epochs 10\n"
      "  millrace cache simulate s3://bucket/train --capacity 50% --shuffle global --world 16 --local-ranks 8 --json");
  simulate.Run([flags] { return ExitStatus("cache", HintAtS3(Simulate(*flags), {flags->uri})); });
}

}  // namespace millrace::cli
