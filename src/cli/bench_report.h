#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "diagnose/bench.h"
#include "diagnose/limit.h"
#include "diagnose/machine.h"
#include "diagnose/prices.h"
#include "diagnose/rivals.h"

/// What `millrace bench` found, and how it is told.

namespace millrace::cli {

struct BenchReport {
  std::string version;
  MachineDescription machine;
  std::string uri;
  std::string data;   // what the data set is, in a sentence; may be empty
  std::string store;  // the same of the store
  BenchSettings settings;
  PriceList prices;
  bool priced = false;  // requests of this store cost money, or stand for some that do

  std::vector<BenchPoint> rate;                         // scenario d, by threads
  std::vector<std::pair<Shuffle, BenchPoint>> orders;   // scenario a, by order, then by threads
  std::vector<EpochCost> epochs;                        // scenario b
  std::vector<EpochCost> cached_epochs;                 // the same with a cache
  std::vector<std::pair<uint64_t, BenchPoint>> shards;  // scenario c, by the bytes of a shard
  std::vector<FirstBatchPoint> first_batch;             // scenario e, by samples
  std::optional<ResumePoint> resume;                    // scenario f

  /// An epoch of the same data, twice.
  struct Storm {
    EpochCost calm;
    EpochCost rough;  // while the store has these faults
    std::vector<std::string> faults;

    bool same_bytes() const { return calm.digest == rough.digest && calm.samples == rough.samples; }
  };
  std::optional<Storm> storm;  // scenario g

  std::optional<FirstBatchPoint> beside_rivals;  // of Millrace, measured with them
  std::vector<RivalPoint> rivals;                // --rival

  /// Of scenario a: the rate of a random order as a share of that of the sequential one, with as many threads.
  struct OrderRatio {
    Shuffle order = Shuffle::kWindow;
    int threads = 1;
    double rate = 0;
    double busy_cpus = 0;  // in the sequential order, by all programs: a local store is one of them
  };
  std::vector<OrderRatio> order_ratios() const;

  /// The fastest of all rates; null if none was measured.
  const BenchPoint* best() const;
  PipelineLimit limit() const;  // of the fastest
};

/// The rates that AWS's comparison of S3 clients published for one vCPU: 8,000 and 12,000 samples/s on 32 vCPUs.
inline constexpr double kPublishedRates[] = {250, 375};
inline constexpr const char* kPublishedSource =
    "AWS's comparison of S3 clients (AWS Machine Learning Blog, 'Applying data loading best practices for ML training "
    "with Amazon S3 clients'): shards read in order, JPEGs of some 115 KB decoded and resized to 224 x 224, no model, "
    "32 vCPUs; 8,000 samples/s with 8 workers and 12,000 with 32 to 64";

/// "12.3", "1,234": three digits, or all before the point.
std::string ShortNumber(double value);
/// "Linux ...": for texts that say what belongs to what.
std::string NameOf(const BenchPoint& point);                        // "2 threads"
std::string NameOf(const std::pair<uint64_t, BenchPoint>& shards);  // "64 MiB shards"
std::string NameOf(const std::pair<Shuffle, BenchPoint>& order);    // "global, 2 threads"
std::string NameOf(const FirstBatchPoint& point);                   // "1000 samples"
std::string NameOf(const RivalPoint& point);                        // "dataloader, 8 workers"
/// "0.98 of the sequential rate, 1 thread, 0.97 CPUs busy".
std::string TextOf(const BenchReport::OrderRatio& ratio);

/// Samples a second of a CPU that does nothing else; 0 if it is not known.
double CpuRate(const BenchSummary& measured);
/// "GPUs meanwhile: 8 x NVIDIA H100, busy 12 % of the time ...". There are some.
std::string GpuText(const BenchReport& report, const BenchSummary& measured);
/// "$0.000072", "$12.30".
std::string DollarText(double dollars);

std::string BenchText(const BenchReport& report);
std::string BenchJson(const BenchReport& report);

}  // namespace millrace::cli
