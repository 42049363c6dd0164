#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/json_text.h"
#include "diagnose/bench.h"
#include "diagnose/damaged_samples.h"
#include "diagnose/limit.h"
#include "diagnose/machine.h"
#include "diagnose/prices.h"
#include "diagnose/rivals.h"

/// Holds the findings of `millrace bench`, and their text.

namespace millrace::cli {

struct BenchReport {
  std::string version;
  MachineDescription machine;
  std::string uri;
  std::string data;   // what the data set is, in a sentence; may be empty
  std::string store;  // the same of the store
  BenchSettings settings;
  PriceList prices;
  bool priced = false;     // requests of this store cost money, or stand for some that do
  DamagedSamples damaged;  // of all measurements

  /// One setting of scenario orders.
  struct OrderPoint {
    Shuffle order = Shuffle::kNone;
    bool raw = false;  // of the same images as raw objects, which no order reads together
    BenchPoint point;
  };

  std::vector<BenchPoint> rate;                         // scenario rate, by threads
  std::vector<OrderPoint> orders;                       // scenario orders, by order, then by threads
  std::vector<EpochCost> epochs;                        // scenario cache
  std::vector<EpochCost> cached_epochs;                 // the same with a cache
  std::vector<RivalEpochs> object_epochs;               // likewise over raw objects: Millrace's two, then others'
  std::vector<std::pair<uint64_t, BenchPoint>> shards;  // scenario shards, by the bytes of a shard
  std::vector<FirstBatchPoint> first_batch;             // scenario first-batch, by samples
  std::vector<std::pair<uint64_t, Spread>> downloads;   // beside it: seconds to copy the data to files, by samples
  std::optional<ResumePoint> resume;                    // scenario resume

  /// Represents an epoch of the same data, twice.
  struct Storm {
    EpochCost calm;
    EpochCost rough;  // while the store has these faults
    std::vector<std::string> faults;

    bool same_bytes() const { return calm.digest == rough.digest && calm.samples == rough.samples; }
  };
  std::optional<Storm> storm;  // scenario faults

  std::optional<FirstBatchPoint> beside_rivals;  // of Millrace, measured with them
  std::vector<RivalPoint> rivals;                // --rival
  std::vector<RivalPoint> object_rivals;         // over the raw objects of scenario orders, by name, then by workers
  std::vector<std::pair<uint64_t, RivalPoint>> shard_rivals;  // over those of scenario shards, by the bytes of a shard

  /// The rate of a random order in the scenario orders, as a share of the rate of the sequential order with as many
  /// threads. Each round of repeats has a share of its own, so that a machine that becomes faster or slower meanwhile
  /// matters little.
  struct OrderRatio {
    Shuffle order = Shuffle::kWindow;
    bool raw = false;  // as OrderPoint; the sequential order is that of shards
    int threads = 1;
    Spread rate;
    double busy_cpus = 0;     // in the sequential order, by all programs: a local store is one of them
    double decode_share = 0;  // of the waiting in the random order, what was for decoding, and not for the store
  };
  std::vector<OrderRatio> order_ratios() const;
  /// Says that the orders of the scenario orders are not as random as they may be, since the data fit into memory; ""
  /// if they do not fit.
  std::string orders_note() const;

  /// Returns the fastest of all rates; null if none was measured.
  const BenchPoint* best() const;
  /// Returns the fastest of those over raw objects; null if there is none.
  const BenchPoint* best_of_objects() const;
  PipelineLimit limit() const;  // of the fastest
};

/// These are the rates that AWS's comparison of S3 clients published for one vCPU: 8,000 and 12,000 samples/s on 32
/// vCPUs.
inline constexpr double kPublishedRates[] = {250, 375};
inline constexpr const char* kPublishedSource =
    "AWS's comparison of S3 clients (AWS Machine Learning Blog, 'Applying data loading best practices for ML training "
    "with Amazon S3 clients'). Shards are read in order, JPEGs of about 115 KB are decoded and resized to 224 x 224, "
    "without a model, on 32 vCPUs: 8,000 samples/s with 8 workers and 12,000 with 32 to 64";

/// "12.3", "1,234": three digits, or all before the point.
std::string ShortNumber(double value);
/// Returns "Linux ...": for texts that say what belongs to what.
std::string NameOf(const BenchPoint& point);                        // "2 threads"
std::string NameOf(const std::pair<uint64_t, BenchPoint>& shards);  // "64 MiB shards"
std::string NameOf(const BenchReport::OrderPoint& order);           // "global, 2 threads"
std::string_view OrderName(Shuffle order, bool raw);                // "global"; "raw"
std::string NameOf(const FirstBatchPoint& point);                   // "1000 samples"
std::string NameOf(const RivalPoint& point);                        // "dataloader, 8 workers"
std::string NameOf(const RivalEpochs& epochs);                      // "dataloader, with a cache"
std::string NameOf(const std::pair<uint64_t, RivalPoint>& shards);  // "dataloader, 64 MiB shards"
/// "window, 1 thread: 0.980 of the sequential rate, at which 1.09 CPUs were busy; 100 % of ...".
std::string TextOf(const BenchReport::OrderRatio& ratio);

/// Samples a second of a CPU that does nothing else; 0 if it is not known.
double CpuRate(const BenchSummary& measured);
/// Returns the fastest of the other loaders, and the one that takes the least CPU, in a sentence; "" if none has
/// figures.
std::string BesideText(const BenchReport& report);
/// Returns "GPUs meanwhile: 8 x NVIDIA H100, busy 12 % of the time ...". There are some.
std::string GpuText(const BenchReport& report, const BenchSummary& measured);

/// Tells the damaged samples that `bench` and `advise` have met:
/// "3 samples, whose places others took; the first: ...", with what lists all of them. There are some.
std::string DamagedText(const DamagedSamples& damaged, const std::string& uri);
/// Adds `bad_samples`, their number, and `first_bad_sample`, which is null if there is none.
void AddDamaged(const DamagedSamples& damaged, JsonObject* json);

std::string BenchText(const BenchReport& report);
std::string BenchJson(const BenchReport& report);
/// Returns the same, and below "page" what else the page shows (python/millrace/bench).
std::string BenchPageJson(const BenchReport& report);

}  // namespace millrace::cli
