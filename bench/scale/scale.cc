// Simulates a training job on many hosts: the requests of its readers to S3, and the resource that is used up first.
// Orders, walks, fetch decisions, paces and back-off are those of the program itself. The store, the network, decoding
// and the model are numbers. docs/scale.md describes the output: one block, or with --json one line, for each number of
// ranks.
//   scale --folder DIR --samples 100000000 --ranks 1,64,1024 --lanes 1024 --prefixes 128

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/size.h"
#include "pipeline/cache_forecast.h"
#include "simulated_data.h"
#include "simulation.h"

namespace millrace {
namespace {

struct Flags {
  std::string folder;
  std::string data;  // a URI, in place of simulated data
  DataModel made;
  std::vector<uint64_t> ranks = {1};
  JobModel job;
  std::string memory = "512MiB";
  uint64_t seed = 0;
  std::optional<uint64_t> extent;
  std::optional<uint64_t> window;
  std::optional<uint64_t> lanes;
  std::string shuffle = "window";
  std::optional<uint64_t> lose_step;
  JobModel::Loss loss;
  bool has_index = false;
  std::string cache;
  uint64_t epochs = 3;
  bool json = false;
};

void AddFlags(CLI::App& app, Flags* flags) {
  JobModel& job = flags->job;
  const auto add = [&app](const char* name, auto& value, const char* what) {
    return app.add_option(name, value, what)->capture_default_str();
  };
  app.add_option("--folder", flags->folder, "Where the index of the simulated data is kept, and found the next time");
  app.add_option("--data", flags->data, "URI of a data set whose index is used instead");
  add("--samples", flags->made.samples, "Of the simulated data");
  add("--sample-bytes", flags->made.sample_bytes, "Bytes of a sample, on average");
  add("--shard-bytes", flags->made.shard_bytes, "Bytes of a shard, about");
  add("--prefixes", flags->made.prefixes, "Folders that the shards lie in");
  add("--ranks", flags->ranks, "Numbers of ranks to simulate, with commas between them")->delimiter(',');
  add("--ranks-per-host", job.ranks_per_host, "Processes of a host");
  add("--steps", job.steps, "Steps to simulate; 0: an epoch");
  add("--batch", job.loader.batch, "Samples of a rank's batch");
  add("--memory", flags->memory, "Memory budget of a rank's loader");
  add("--seed", flags->seed, "Of the order");
  add("--shuffle", flags->shuffle, "window, global or none");
  app.add_option("--extent", flags->extent, "Samples of an extent [by their size]");
  app.add_option("--window", flags->window, "Extents of a window [by their size]");
  app.add_option("--lanes", flags->lanes, "Lanes of a window [64]");
  add("--threads", job.decode.threads, "Decoding threads of a rank");
  add("--decode-ms", job.decode.sample_ms, "Time of a thread for a sample");
  add("--gbit", job.host_gbit, "Network of a host, Gbit/s; 0: no limit");
  add("--step-ms", job.step_ms, "Time of the model for a step");
  add("--workers", job.workers_per_rank, "Data service: workers for each rank; 0: none");
  add("--first-byte-ms", job.store.latency.first_byte_ms, "Median time to the first byte");
  add("--first-byte-sigma", job.store.latency.first_byte_sigma, "Standard deviation of its logarithm");
  add("--first-byte-tail-ms", job.store.latency.tail_ms, "Time to the first byte of slow requests");
  add("--tail-fraction", job.store.latency.tail_fraction, "Share of slow requests");
  add("--rate-per-prefix", job.store.rate_per_prefix, "Requests a second of a prefix; 0: no limit");
  add("--bandwidth", job.store.connection_bandwidth, "Bytes a second of a connection; 0: no limit");
  add("--refusal-ms", job.store.refusal_ms, "Time to a 503");
  add("--store-seed", job.store.seed, "Of its delays");
  app.add_flag("--has-index", flags->has_index, "Hosts have a copy of the index already");
  app.add_option("--lose-step", flags->lose_step, "The step before which hosts are lost");
  add("--lose-hosts", flags->loss.hosts, "Hosts that are lost then");
  add("--checkpoint-every", flags->loss.checkpoint_every, "Steps from a checkpoint to the next");
  app.add_flag("--replaced", flags->loss.replaced, "Others take the place of these hosts at once");
  app.add_option("--cache", flags->cache, "Size of a cache on each host's disk, e.g. 2TB: its hits are forecast");
  add("--epochs", flags->epochs, "Epochs of that forecast");
  app.add_flag("--json", flags->json, "A JSON object a line");
}

struct Run {
  JobModel model;
  JobResult result;
  double took_seconds = 0;  // to simulate
  std::optional<CacheForecast> forecast;
};

double EpochSeconds(const JobResult& result) {
  const double rate = result.steady.samples_per_second;
  return rate > 0 ? static_cast<double>(result.samples) / rate : 0;
}

double Amplification(const JobResult& result) {
  return result.fetched.wanted > 0
             ? static_cast<double>(result.fetched.bytes) / static_cast<double>(result.fetched.wanted)
             : 1;
}

double SamplesOfRequest(const JobResult& result) {
  return result.fetched.requests > 0
             ? static_cast<double>(result.fetched.samples) / static_cast<double>(result.fetched.requests)
             : 0;
}

double HitShare(const CacheForecast::Epoch& epoch) {
  return epoch.bytes > 0 ? static_cast<double>(epoch.hits.ours) / static_cast<double>(epoch.bytes) : 0;
}

std::string ToText(const Run& run) {
  const JobResult& found = run.result;
  const JobResult::Steady& steady = found.steady;
  std::string text = fmt::format("{} ranks, {} samples, extents of {}, windows of {}, {} lanes\n", run.model.ranks,
                                 found.samples, found.policy.extent, found.policy.window, found.policy.lanes);
  text += fmt::format("  index          {}, {:.1f} bytes a sample\n", FormatSize(found.index_bytes),
                      static_cast<double>(found.index_bytes) / static_cast<double>(found.samples));
  text += fmt::format("  opening        {:.2f} s, {} requests\n", found.open_seconds, found.opening_requests);
  text += fmt::format("  first batch    {:.2f} s later\n", found.first_batch_seconds);
  text += fmt::format("  simulated      {} steps of {} samples in {:.2f} s; {:.1f} s of this machine\n", found.steps,
                      found.delivered, found.seconds, run.took_seconds);
  text += fmt::format("  rate           {:.0f} samples/s, {}/s\n", steady.samples_per_second,
                      FormatSize(static_cast<uint64_t>(steady.bytes_per_second)));
  text += fmt::format(
      "  requests       {:.0f}/s, {:.2f} samples each; the busiest of {} prefixes: {:.0f}/s, at most {} "
      "in a second; {} refused, {} attempts at most\n",
      steady.requests_per_second, SamplesOfRequest(found), found.prefixes, steady.busiest_prefix_per_second,
      found.most_in_a_second, found.refused, found.most_attempts);
  text += fmt::format("  read           {:.3f} bytes for a byte that is wanted", Amplification(found));
  if (run.model.loss) {
    text += fmt::format("; {} again after the loss, {:.2f} s until the next step", FormatSize(found.refetched_bytes),
                        found.recovery_seconds);
  }
  text += fmt::format("\n  in use         model {:.0f} %, prefix {:.0f} %, network {:.0f} %, CPUs {:.0f} %\n",
                      100 * steady.model, 100 * steady.prefix, 100 * steady.network, 100 * steady.cpu);
  text += fmt::format("  limit          {}\n", found.limit());
  text += fmt::format("  epoch          {:.0f} s at this rate (extrapolated)\n", EpochSeconds(found));
  if (run.forecast) {
    text += "  cache          ";
    for (const CacheForecast::Epoch& epoch : run.forecast->epochs)
      text += fmt::format("{:.1f} % ", 100 * HitShare(epoch));
    text += "of the bytes of each epoch come from it\n";
  }
  return text;
}

nlohmann::json ToJson(const Run& run) {
  const JobResult& found = run.result;
  const JobResult::Steady& steady = found.steady;
  nlohmann::json stalls;
  for (size_t i = 0; i < kStallCauses; ++i) {
    stalls[std::string(StallCauseName(static_cast<StallCause>(i)))] = found.stalls[i];
  }
  nlohmann::json json{{"ranks", run.model.ranks},
                      {"samples", found.samples},
                      {"extent", found.policy.extent},
                      {"window", found.policy.window},
                      {"lanes", found.policy.lanes},
                      {"index_bytes", found.index_bytes},
                      {"open_seconds", found.open_seconds},
                      {"opening_requests", found.opening_requests},
                      {"first_batch_seconds", found.first_batch_seconds},
                      {"steps", found.steps},
                      {"delivered", found.delivered},
                      {"seconds", found.seconds},
                      {"requests", found.fetched.requests},
                      {"bytes", found.fetched.bytes},
                      {"wanted_bytes", found.fetched.wanted},
                      {"fetched_samples", found.fetched.samples},
                      {"refetched_bytes", found.refetched_bytes},
                      {"refused", found.refused},
                      {"most_attempts", found.most_attempts},
                      {"most_in_a_second", found.most_in_a_second},
                      {"recovery_seconds", found.recovery_seconds},
                      {"limit", found.limit()},
                      {"stalls", stalls},
                      {"steady",
                       {{"samples_per_second", steady.samples_per_second},
                        {"requests_per_second", steady.requests_per_second},
                        {"busiest_prefix_per_second", steady.busiest_prefix_per_second},
                        {"bytes_per_second", steady.bytes_per_second},
                        {"prefix", steady.prefix},
                        {"network", steady.network},
                        {"cpu", steady.cpu},
                        {"model", steady.model}}},
                      {"epoch_seconds_extrapolated", EpochSeconds(found)},
                      {"simulation_seconds", run.took_seconds}};
  if (run.forecast) {
    for (const CacheForecast::Epoch& epoch : run.forecast->epochs) json["cache_hits"].push_back(HitShare(epoch));
  }
  return json;
}

absl::StatusOr<Run> RunOne(const Flags& flags, const Dataset& data, uint64_t ranks) {
  Run run{.model = flags.job};
  run.model.ranks = ranks;
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(run.result, SimulateJob(data, run.model));
  run.took_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (flags.cache.empty()) return run;
  CacheForecastOptions cache{.epochs = flags.epochs, .local_ranks = std::min(ranks, run.model.ranks_per_host)};
  ASSIGN_OR_RETURN(cache.capacity_bytes, ParseSize(flags.cache));
  LoaderOptions options = run.model.loader;
  options.world = ranks;
  ASSIGN_OR_RETURN(run.forecast, ForecastCache(Source(data), options, cache));
  return run;
}

absl::Status Settings(Flags* flags) {
  LoaderOptions& loader = flags->job.loader;
  ASSIGN_OR_RETURN(loader.memory_bytes, ParseSize(flags->memory));
  ASSIGN_OR_RETURN(loader.shuffle, ParseShuffle(flags->shuffle));
  loader.seed = flags->seed;
  loader.extent = flags->extent;
  loader.window = flags->window;
  loader.lanes = flags->lanes;
  loader.allow_arrays = true;
  flags->job.copies_index = !flags->has_index;
  if (flags->lose_step) {
    flags->job.loss = flags->loss;
    flags->job.loss->step = *flags->lose_step;
  }
  if (flags->folder.empty() == flags->data.empty()) {
    return absl::InvalidArgumentError("give either --folder, for simulated data, or --data, for a data set");
  }
  return absl::OkStatus();
}

absl::Status Main(Flags flags) {
  RETURN_IF_ERROR(Settings(&flags));
  Runtime runtime({.io_threads = 1, .cpu_threads = 1, .memory_bytes = uint64_t{1} << 30});
  Stores::Wrap wrap;
  if (flags.data.empty()) {
    ASSIGN_OR_RETURN(wrap, AsOnS3(runtime));
  }
  Stores stores(runtime, wrap);
  const DataModel& made = flags.made;
  const std::string folder =
      fmt::format("{}/{}-{}-{}-{}", flags.folder, made.samples, made.sample_bytes, made.shard_bytes, made.prefixes);
  if (flags.data.empty()) std::filesystem::create_directories(folder);
  ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> data, flags.data.empty()
                                                            ? OpenSimulatedData(runtime, stores, folder, made)
                                                            : Dataset::Open(runtime, stores, flags.data));
  for (const uint64_t ranks : flags.ranks) {
    ASSIGN_OR_RETURN(const Run run, RunOne(flags, *data, ranks));
    const std::string text = flags.json ? ToJson(run).dump() + "\n" : ToText(run) + "\n";
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  CLI::App app("Simulates a training job on many hosts (docs/scale.md)", "scale");
  millrace::Flags flags;
  flags.job.store.latency.first_byte_ms = 30;
  flags.job.steps = 100;
  millrace::AddFlags(app, &flags);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = millrace::Main(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "scale: %s\n", std::string(status.message()).c_str());
  return 1;
}
