#include "cli/bench_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/number.h"
#include "cli/console.h"
#include "cli/usage.h"
#include "net/runtime.h"

namespace millrace::cli {

namespace {

constexpr int kMaxTried = 1024;  // of threads, and of workers

/// "1,2,4", in ascending order, each once.
absl::StatusOr<std::set<int>> ParseCounts(std::string_view option, const std::string& text) {
  std::set<int> counts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const auto n = ParseNumber<int>(std::string_view(text).substr(at, end - at));
    if (!n || *n < 1 || *n > kMaxTried) {
      return UsageError("{} takes whole numbers from 1 to {} with commas between them, not '{}'", option, kMaxTried,
                        text);
    }
    counts.insert(*n);
    at = end + 1;
  }
  return counts;
}

std::set<int> UsualThreads(bool quick) {
  const int cpus = UsableCpus();
  std::set<int> threads = {1, cpus};
  for (int n = 2; n < cpus && !quick; n *= 2) threads.insert(n);
  return threads;
}

// One that waits for each object, two for each CPU, and as many as AWS's comparison of S3 clients needs to hide first
// bytes of tens of milliseconds: 64 on 8 CPUs.
std::set<int> UsualCurveWorkers() {
  const int cpus = UsableCpus();
  return {1, std::min(2 * cpus, kMaxTried), std::min(8 * cpus, kMaxTried)};
}

absl::Status CheckBenchFlags(const BenchFlags& flags) {
  if (flags.synthetic == !flags.uri.empty()) {
    return UsageError("{}", flags.synthetic ? "--synthetic makes its own data: leave out the URI"
                                            : "name the URI of a data set, or --synthetic");
  }
  if (!flags.synthetic) RETURN_IF_ERROR(CheckUri(flags.uri));
  RETURN_IF_ERROR(CheckFolderOf("--html", flags.html));
  return CheckFolderOf("--json", flags.json == "-" ? "" : flags.json);
}

}  // namespace

absl::StatusOr<BenchRequest> ToBenchRequest(const BenchFlags& flags) {
  RETURN_IF_ERROR(CheckBenchFlags(flags));
  BenchRequest request;
  for (const std::string& scenario : flags.scenarios) {
    if (scenario == "all") {
      request.scenarios.insert({"rate", "orders", "first-batch", "resume"});
      if (flags.synthetic || !flags.cache.empty()) request.scenarios.insert("cache");
      if (flags.synthetic) request.scenarios.insert("shards");
      if (flags.synthetic && flags.store == "devstore") request.scenarios.insert("faults");
    } else {
      request.scenarios.insert(scenario);
    }
  }
  if (request.scenarios.contains("shards") && !flags.synthetic) {
    return UsageError("--scenario shards compares data sets with shards of several sizes: it needs --synthetic");
  }
  if (request.scenarios.contains("cache") && !flags.synthetic && flags.cache.empty()) {
    return UsageError(
        "--scenario cache keeps what it reads on the local disk: say where by --cache, or use --synthetic");
  }
  if (request.scenarios.contains("faults") && (!flags.synthetic || flags.store != "devstore")) {
    return UsageError("--scenario faults needs a store that fails on purpose: --synthetic with --store devstore");
  }
  ASSIGN_OR_RETURN(request.threads, ParseCounts("--threads", flags.threads));
  if (request.threads.empty()) request.threads = UsualThreads(flags.quick);
  ASSIGN_OR_RETURN(request.rival_workers, ParseCounts("--rival-workers", flags.rival_workers));
  ASSIGN_OR_RETURN(request.rivals, AsUsage(ParseRivals(flags.rivals)));
  if (!request.rivals.empty()) request.scenarios.insert("rate");  // the rivals are compared with it
  if (!request.rivals.empty() && flags.synthetic && !flags.quick) {
    request.curve_workers = request.rival_workers.empty() ? UsualCurveWorkers() : request.rival_workers;
  }
  if (request.rival_workers.empty()) request.rival_workers = {UsableCpus()};
  ASSIGN_OR_RETURN(request.prices, AsUsage(ReadPrices(flags.prices)));
  BenchSettings& settings = request.settings;
  settings.io_threads = flags.io_threads;
  settings.warm_up_seconds = flags.quick ? 1 : 3;
  settings.window_seconds = flags.seconds > 0 ? flags.seconds : (flags.quick ? 2 : 6);
  settings.windows = static_cast<int>(flags.repeats.value_or(flags.quick ? 3 : 5));
  if (!(flags.seconds >= 0 && flags.seconds <= 86'400)) {
    return UsageError("--seconds takes the time of a repeat in seconds, up to 86,400");
  }
  if (flags.seconds > 0) settings.warm_up_seconds = std::min(settings.warm_up_seconds, flags.seconds);
  if (!(flags.step_ms >= 0 && flags.step_ms <= 600'000)) {
    return UsageError("--step-ms takes a time in milliseconds, 0 to 600,000");
  }
  settings.step_seconds = flags.step_ms / 1000;
  settings.loader.batch = flags.batch;
  settings.loader.image.height = settings.loader.image.width = flags.size;
  settings.loader.image.augment = true;
  settings.loader.allow_arrays = true;
  settings.loader.bad_samples = BadSamples::kReplace;
  settings.loader.log_damage = false;
  ASSIGN_OR_RETURN(settings.loader.shuffle, ParseShuffle(flags.shuffle));
  ASSIGN_OR_RETURN(settings.loader.memory_bytes, TakeSizeOrZero("--memory", flags.memory));
  request.samples = flags.samples > 0 ? flags.samples : (flags.quick ? 1000 : 2000);
  return request;
}

void AddBenchOptions(Command bench, BenchFlags* flags) {
  const auto add = [bench](const char* name, auto* value, const char* what) {
    return bench.AddShown(name, value, what);
  };
  bench.Add("uri", &flags->uri, "A data set: a bucket with a prefix, or a folder");
  bench.AddFlag("--synthetic", &flags->synthetic, "Make a data set, use it, and leave nothing behind");
  add("--scenario", &flags->scenarios,
      "`rate`: the maximum rate. `orders`: sequential and random orders. `first-batch`: the time to the first batch. "
      "`resume`: resuming within an epoch. `cache`: epochs with and without a cache, with --synthetic or --cache. "
      "`shards`: sequential reading of shards of several sizes, with --synthetic. `faults`: an epoch while the store "
      "fails, with --synthetic. `all`: each scenario that the data allow. Repeatable")
      .Words({"rate", "orders", "cache", "shards", "first-batch", "resume", "faults", "all"})
      .FormerNames({{"a", "orders"},
                    {"b", "cache"},
                    {"c", "shards"},
                    {"d", "rate"},
                    {"e", "first-batch"},
                    {"f", "resume"},
                    {"g", "faults"}});
  bench.AddFlag("--quick", &flags->quick, "Shorter repeats, and fewer of them");
  bench.Add("--html FILE", &flags->html, "Write the report as a page that needs nothing else; a Python draws it");
  bench.Add("--json FILE", &flags->json, "Write all figures as JSON; -: to stdout, instead of the text");
  bench.Add("--repeats", &flags->repeats, "How often each setting is measured [5; 3 if --quick]").Number(1, 1000);
  bench.Add("--seconds", &flags->seconds, "Min time of each repeat [6; 2 if --quick]");
  bench.Add("--threads", &flags->threads, "Numbers of decoding threads to try, for example 1,2,4 [up to all CPUs]");
  add("--io-threads", &flags->io_threads, "Network threads").Number(1, 64);
  add("--batch", &flags->batch, "Samples of a batch").Number(1);
  add("--size", &flags->size, "Height and width of the images").Number(1, 16384);
  add("--shuffle", &flags->shuffle, "Order of the samples in the scenarios rate and first-batch")
      .Words({"window", "global", "none"});
  add("--memory", &flags->memory, "Budget for fetched bytes and batches");
  bench.Add("--step-ms", &flags->step_ms,
            "A model in the scenarios orders, shards and rate: a pause of this time after each batch [none]");
  bench.Add("--cache DIR", &flags->cache,
            "Folder of the cache in the scenario cache; its content stays there [a temporary folder]");
  bench.Add("--prices FILE", &flags->prices, "A price list to use instead of the built-in one (docs/advise.md)");
  bench.Add("--samples", &flags->samples, "Images of a synthetic data set [2000; 1000 if --quick]")
      .Number(1, 10'000'000);
  add("--store", &flags->store, "Where a synthetic data set is: a local S3 server, or a temporary folder")
      .Words({"devstore", "folder"});
  bench.Add(
      "--rival NAME[=URI]", &flags->rivals,
      "Other loaders to measure beside Millrace, with commas between several. NAME=URI names the same data in the "
      "loader's own format. Names: dataloader, s3torchconnector, webdataset, mosaicml, litdata, spdl, huggingface, "
      "tfdata, dali, ray, s3fs, rclone, all");
  bench.Add("--rival-workers", &flags->rival_workers,
            "Numbers of worker processes, or threads that decode, to try of each of them, for example 2,8,32 [all "
            "CPUs; over raw objects 1, and 2 and 8 for each CPU]");
  bench.Add("--rival-environments DIR", &flags->rival_environments,
            "Folder with an environment of Python for each of them, DIR/NAME [rivals in the cache folder]");
  add("--first-byte-ms", &flags->first_byte_ms, "Median time to the first byte of the server of --store devstore")
      .Number(0, 10'000);
}

}  // namespace millrace::cli
