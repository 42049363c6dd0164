// Measures the cost of dividing a data set by its classes: time, memory at the peak and of the result, and the time of
// an item of balanced sampling. The data set is only an index, of shards of 500 samples; no shard is read.
//   subset_bench FOLDER [SAMPLES [CLASSES [even|zipf|sorted]]]     10,000,000 samples, 65,536 classes, even
// The index is written below FOLDER where it is not there yet (0.4 us a sample), and kept.
//
// even: each sample has any class; zipf: class k is k times as rare as the first; sorted: one class after the other.

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "dataset/dataset.h"
#include "dataset/index_writer.h"
#include "pipeline/source.h"
#include "plan/mix.h"

namespace millrace {
namespace {

constexpr uint64_t kShardSamples = 500;  // so many shards that opening does not look for them
constexpr double kMb = 1e6;

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

/// Returns the CPU time of all threads of the process, which depends less on other work of the machine.
double CpuSeconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

/// Returns bytes of this process that are no mapped file.
uint64_t MemoryInUse() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::strtoull(line.c_str() + 8, nullptr, 10) * 1024;
  }
  return 0;
}

/// Represents the most memory in use while it lives, looked at every few milliseconds.
class PeakMeter {
 public:
  PeakMeter() : thread_([this](const std::stop_token& stop) { Run(stop); }) {}
  uint64_t Stop() {
    thread_.request_stop();
    thread_.join();
    return peak_;
  }

 private:
  void Run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      peak_ = std::max(peak_, MemoryInUse());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    peak_ = std::max(peak_, MemoryInUse());
  }
  uint64_t peak_ = 0;
  std::jthread thread_;
};

struct Shape {
  uint64_t samples = 10'000'000;
  uint64_t classes = 65'536;
  std::string how = "even";

  uint64_t ClassOf(uint64_t sample, Rng& rng) const {
    if (how == "sorted") return static_cast<uint64_t>(static_cast<unsigned __int128>(sample) * classes / samples);
    if (how == "even") return rng.Below(classes);
    // This is the inverse of the integral of 1 / x.
    const double uniform = static_cast<double>(rng.Next() >> 11) * 0x1p-53;
    const double class_number = std::pow(static_cast<double>(classes + 1), uniform) - 1;
    return std::min(classes - 1, static_cast<uint64_t>(class_number));
  }
};

absl::Status WriteIndex(Stores& stores, const std::string& folder, const Shape& shape) {
  ASSIGN_OR_RETURN(const Location place, stores.Open(folder));
  ASSIGN_OR_RETURN(std::unique_ptr<ObjectWriter> out, place.store->Write(place.Key(".millrace/index"), {}));
  Rng rng(1);
  IndexWriter writer(DataKind::kTar, std::move(out));
  for (uint64_t shard = 0; shard * kShardSamples < shape.samples; ++shard) {
    uint64_t offset = 0;
    for (uint64_t i = shard * kShardSamples; i < std::min(shape.samples, (shard + 1) * kShardSamples); ++i) {
      const std::string key = fmt::format("{:010}", i);
      const std::string label = fmt::format("{}", shape.ClassOf(i, rng));
      const uint64_t jpeg = 60'000 + rng.Below(110'000);
      const NewSampleField fields[] = {
          {.name = "jpg", .offset = offset + 512, .length = jpeg},
          {.name = "cls", .offset = offset + 1024 + (jpeg + 511) / 512 * 512, .length = label.size()}};
      offset = fields[1].offset + 512;
      RETURN_IF_ERROR(writer.AddSample(
          {.key = key, .fields = fields, .crc32c = static_cast<uint32_t>(rng.Next()), .label = label}));
    }
    RETURN_IF_ERROR(writer.AddObject({.key = fmt::format("shard-{:07}.tar", shard),
                                      .size = offset + 1024,
                                      .etag = fmt::format("{:032x}-40", rng.Next())}));
  }
  return writer.Finish().status();
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenOrMake(Runtime& runtime, Stores& stores, const std::string& folder,
                                                    const Shape& shape) {
  absl::StatusOr<std::unique_ptr<Dataset>> opened = Dataset::Open(runtime, stores, folder);
  if (!absl::IsNotFound(opened.status())) return opened;
  RETURN_IF_ERROR(WriteIndex(stores, folder, shape));
  return Dataset::Open(runtime, stores, folder);
}

/// Measures nanoseconds for an item of balanced sampling, and its number in the index.
void MeasureFeed(const std::vector<Subset>& classes) {
  const Source source(classes);
  Mix mix;
  mix.fresh_passes = true;
  mix.length = source.size();
  mix.stages.emplace_back();
  for (const Subset& part : classes) {
    mix.parts.push_back({part.size(), {.shuffle = Shuffle::kGlobal}});
    mix.stages.front().weights.push_back(part.size() > 0 ? 1 : 0);
  }
  const uint64_t items = std::min<uint64_t>(mix.length, 2'000'000);
  auto start = Clock::now();
  const Plan plan(mix, 1, 0);
  Plan::Cursor cursor(plan, 0);
  std::vector<uint64_t> drawn;
  for (uint64_t i = 0; i < items; ++i) drawn.push_back(cursor.Next());
  const double order = Seconds(start) / static_cast<double>(items) * 1e9;
  uint64_t sum = 0;
  double best = 1e9;
  for (int run = 0; run < 3; ++run) {
    start = Clock::now();
    for (const uint64_t item : drawn) sum += source.SampleOf(item);
    best = std::min(best, Seconds(start) / static_cast<double>(items) * 1e9);
  }
  fmt::print("an item of balanced sampling: {:.0f} ns for the order, {:.0f} ns for its number in the index{}\n", order,
             best, sum == 0 ? "?" : "");
}

absl::Status Bench(const std::string& folder, const Shape& shape) {
  Runtime runtime;
  Stores stores(runtime);
  ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> dataset, OpenOrMake(runtime, stores, folder, shape));
  const Index& index = dataset->index();
  RETURN_IF_ERROR(index.Verify());  // all of it is in the page cache
  auto start = Clock::now();
  uint64_t labelled = 0;
  RETURN_IF_ERROR(index.Scan(0, std::min<uint64_t>(index.size(), 2'000'000),
                             [&](uint64_t, const IndexedSample& entry) { labelled += entry.label ? 1 : 0; }));
  fmt::print("{} samples, {} classes, {}; one thread reads an entry in {:.0f} ns\n", index.size(),
             index.class_counts().size(), shape.how,
             Seconds(start) / static_cast<double>(std::max<uint64_t>(labelled, 1)) * 1e9);
  for (int run = 0; run < 3; ++run) {
    ::malloc_trim(0);
    const uint64_t before = MemoryInUse();
    PeakMeter meter;
    start = Clock::now();
    const double cpu_before = CpuSeconds();
    ASSIGN_OR_RETURN(const std::vector<Subset> classes, ByClass(runtime, *dataset));
    const double seconds = Seconds(start);
    const double cpu = CpuSeconds() - cpu_before;
    const uint64_t peak = meter.Stop() - before;
    ::malloc_trim(0);
    const uint64_t after = MemoryInUse() - before;
    uint64_t selections = 0;
    uint64_t hash = 0;
    for (const Subset& part : classes) {
      selections += part.selection ? part.selection->memory_bytes() : 0;
      hash = HashKey(hash, {part.fingerprint(), part.size(), part.total_bytes});
    }
    const auto count = static_cast<double>(index.size());
    fmt::print(
        "dealt in {:.2f} s ({} threads, {:.0f} CPU-ns a sample); at most {:.0f} MB, kept {:.0f} MB ({:.2f} bytes a "
        "sample; "
        "selections {:.0f} MB), hash of all {:016x}\n",
        seconds, runtime.cpu().threads(), cpu / count * 1e9, static_cast<double>(peak) / kMb,
        static_cast<double>(after) / kMb, static_cast<double>(after) / count, static_cast<double>(selections) / kMb,
        hash);
    if (run == 2) MeasureFeed(classes);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  millrace::Shape shape;
  if (argc > 2) shape.samples = std::strtoull(argv[2], nullptr, 10);
  if (argc > 3) shape.classes = std::strtoull(argv[3], nullptr, 10);
  if (argc > 4) shape.how = argv[4];
  const bool known = shape.how == "even" || shape.how == "zipf" || shape.how == "sorted";
  if (argc < 2 || argc > 5 || shape.samples == 0 || shape.classes == 0 || !known) {
    fmt::print(stderr, "usage: subset_bench FOLDER [SAMPLES [CLASSES [even|zipf|sorted]]]\n");
    return 2;
  }
  const absl::Status status = millrace::Bench(argv[1], shape);
  if (!status.ok()) fmt::print(stderr, "subset_bench: {}\n", status.ToString());
  return status.ok() ? 0 : 1;
}
