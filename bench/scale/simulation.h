#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "dataset/dataset.h"
#include "pipeline/loader.h"
#include "simulated_rank.h"
#include "simulated_store.h"

namespace millrace {

/// A training job on many hosts that read one data set. All ranks make their steps together.
struct JobModel {
  LoaderOptions loader;  // of a rank; rank and world are the job's, `batch` that of a trainer
  uint64_t ranks = 1;
  uint64_t ranks_per_host = 8;
  DecodeModel decode;        // of a rank, or of a stream of the data service
  double host_gbit = 0;      // of the network of a host, in Gbit/s; 0: no limit
  double step_ms = 0;        // of the model
  uint64_t steps = 0;        // that are simulated; 0: an epoch
  bool copies_index = true;  // each host begins without a copy of the index
  StoreModel store;

  /// The data service: so many workers make each trainer's batch together, on hosts of their own; 0: there is none.
  uint64_t workers_per_rank = 0;

  /// Represents hosts that are lost when this step begins. Trainers begin again at the last checkpoint, in a world
  /// without the ranks of these hosts, or with others in their place; streams of the data service continue elsewhere.
  struct Loss {
    uint64_t step = 0;
    uint64_t hosts = 1;
    uint64_t checkpoint_every = 100;  // steps
    bool replaced = false;
  };
  std::optional<Loss> loss;
};

/// The results. Rates and shares are those of the steps behind the first quarter, in which look-ahead is filled.
struct JobResult {
  OrderPolicy policy;
  uint64_t samples = 0;  // of an epoch
  uint64_t index_bytes = 0;
  double open_seconds = 0;         // until all hosts have the index and all processes have listed what they must
  double first_batch_seconds = 0;  // from then on, until all ranks have their first one
  uint64_t steps = 0;              // made, those that were made again too
  uint64_t delivered = 0;          // samples in them
  double seconds = 0;              // from the first step to the end of the last

  SimulatedRank::Counts fetched;  // by all ranks, from the beginning
  uint64_t refetched_bytes = 0;   // of them: had been fetched by ranks that were lost or began again
  uint64_t refused = 0;           // answers 503
  int most_attempts = 0;          // of one request
  uint64_t opening_requests = 0;

  struct Steady {
    double seconds = 0;
    uint64_t steps = 0;
    uint64_t delivered = 0;
    double samples_per_second = 0;
    double requests_per_second = 0;
    double busiest_prefix_per_second = 0;  // served
    double bytes_per_second = 0;
    // Shares of what there is.
    double prefix = 0;   // of the requests of the busiest prefix
    double network = 0;  // of all hosts that read
    double cpu = 0;      // of all threads that decode
    double model = 0;    // of the time
  } steady;
  uint64_t most_in_a_second = 0;  // requests to one prefix
  uint64_t prefixes = 0;          // of the data

  std::array<double, kStallCauses> stalls{};  // of all ranks together; "consumer" is waiting for other ranks
  double recovery_seconds = 0;                // from the loss until the next step begins

  /// Returns the resource that is used up first: "the model", "requests of a prefix", "network", "CPUs", or "latency".
  std::string limit() const;
};

/// The same input gives the same result. Errors are those of Settle, and of a walk that fails.
absl::StatusOr<JobResult> SimulateJob(const Dataset& dataset, const JobModel& model);

}  // namespace millrace
