#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "diagnose/bench.h"
#include "diagnose/cost_model.h"
#include "diagnose/damaged_samples.h"
#include "diagnose/data_source.h"
#include "diagnose/prices.h"
#include "diagnose/read_rates.h"
#include "diagnose/trials.h"
#include "shard/data_kind.h"

/// Measures a data set and its store, and predicts what each way of feeding a training costs.

namespace millrace {

/// File mode is taken to download so many objects at a time, if it was not tried.
inline constexpr int kDownloadsAtOnce = 16;
/// A loader has at most this many requests in flight.
inline constexpr int kStreamsAtOnce = 256;

struct AdviseSettings {
  BenchSettings bench;  // how the loader is tried
  PriceList prices;
  std::optional<MachinePrice> machine;  // absent: this one, whose price is not known
  uint64_t epochs = 10;
  uint64_t workers = 0;          // of FastFile mode; 0: one for each vCPU
  bool published_rates = false;  // listing and File mode at the rates of the price list, not at those measured here
  bool random_access = false;    // the training reads within files in any order
  bool packable = true;          // small files may be made into larger ones
  bool in_efs = false;           // the data lie in EFS, too
  double step_seconds = 0;       // of the model, for a batch of each accelerator; 0: not known
  std::function<void(const std::string& what)> on_phase;  // may be empty
};

/// Describes the data set as it was found.
struct DataFacts {
  std::string uri;
  DataKind kind = DataKind::kRawObjects;
  uint64_t samples = 0;
  uint64_t objects = 0;
  uint64_t object_bytes = 0;
  uint64_t index_bytes = 0;
  uint64_t median_sample_bytes = 0;
  uint64_t p99_sample_bytes = 0;
  double compressed_share = 1;  // what zstd leaves of some of the bytes
};

/// Describes the store as it was measured.
struct StoreFacts {
  double first_byte_seconds = 0;
  double one_bytes_per_second = 0;  // of one connection, behind the first byte
  ReadRate download;                // kDownloadsAtOnce
  int streams_at_once = 0;          // kStreamsAtOnce, or as many as memory and the download's rate allow
  ReadRate stream;                  // with these, of ranges as the plan asks for them
  ListRate list;
};

/// States the CPUs that a model's step needs.
struct AcceleratorFacts {
  int accelerators = 1;
  double vcpus_each = 0;
  VcpuNeed need;
  double dollars_per_100_steps = 0;  // 0: the machine's price is not known
  double step_seconds = 0;           // with the data that the CPUs can make
};

struct Advice {
  DataFacts data;
  StoreFacts store;
  LoaderTrial loader_trial;   // no tries: it cannot be tried
  DamagedSamples damaged;     // that the loader has met
  CopyTrial copy_trial;       // the same; not tried for a machine that is not this one
  std::string no_cpu_reason;  // why the loader could not be tried; empty if it could
  CostInputs inputs;
  std::vector<CostPrediction> predictions;
  SourceChoice choice;
  std::optional<AcceleratorFacts> accelerator;
  std::vector<std::string> recommendations;  // sentences
};

/// Opens the data set (and builds its index if it does not exist). It reads parts of it for some seconds, tries the
/// loader on it, and copies some of it to temporary files. It changes nothing else. The trials count if the training is
/// to run on this machine: AdviseSettings::machine names none, or one with as many vCPUs. Blocking. Errors are those of
/// Dataset::Open and of reading; Cancelled soon after a stop is requested.
absl::StatusOr<Advice> Advise(const std::string& uri, const AdviseSettings& settings);

/// Is the recommendation, in words that programs read, too.
struct Recommendation {
  std::string mode;                        // of the prediction that the answer chooses (advise_answer.h)
  std::string source;                      // of AWS's decision flow, without Millrace
  std::string format;                      // "tar", or how the data are now
  uint64_t shard_bytes = 0;                // 0: as it is
  uint64_t data_workers = 0;               // of readers that wait for each file; Millrace needs one process
  std::vector<std::string> no_difference;  // other modes that take as long (advise_answer.h)
};
Recommendation RecommendedBy(const Advice& advice);

/// Returns those that can be compared. A file system has to be created first, which takes minutes that no prediction
/// has. Packing is paid once for many trainings. Data in a folder are read as they are. Pure.
std::vector<CostPrediction> ComparableOf(const std::vector<CostPrediction>& all, const CostInputs& inputs);

/// Returns the predictions that make sense for these data. Pure.
std::vector<CostPrediction> PredictAll(const CostInputs& inputs, const PriceList& prices);

/// Returns how many readers that wait for each file or part reach the rate of many requests; 0: the store was not
/// measured. Pure.
uint64_t ReadersForRate(const CostInputs& inputs);

/// Sums up the predictions in sentences. Pure.
std::vector<std::string> RecommendFrom(const std::vector<CostPrediction>& predictions, const CostInputs& inputs,
                                       const SourceChoice& choice);

}  // namespace millrace
