#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/command_line.h"
#include "diagnose/bench.h"
#include "diagnose/prices.h"
#include "diagnose/rivals.h"

/// Makes the request that the command line of `millrace bench` makes.

namespace millrace::cli {

struct BenchFlags {
  std::string uri;
  bool synthetic = false;
  std::vector<std::string> scenarios = {"rate"};
  bool quick = false;
  std::string html;
  std::string json;
  std::optional<uint64_t> repeats;
  double seconds = 0;
  std::string threads;
  int io_threads = 1;
  uint64_t batch = 128;
  int size = 224;
  std::string shuffle = "window";
  std::string memory = "512MiB";
  std::string prices;
  uint64_t samples = 0;
  uint64_t first_byte_ms = 30;
  double step_ms = 0;
  std::string cache;
  std::string store = "devstore";
  std::vector<std::string> rivals;
  std::string rival_workers;
  std::string rival_environments;
};

/// The meaning of the flags, checked as far as that needs no data.
struct BenchRequest {
  std::set<std::string> scenarios;  // by name: "rate", "orders", ...
  std::set<int> threads;
  BenchSettings settings;
  PriceList prices;
  uint64_t samples = 0;  // of a synthetic data set
  std::vector<RivalRequest> rivals;
  std::set<int> rival_workers;
  /// Numbers of workers of the rivals that also read synthetic data in the scenarios "orders" and "shards"; empty if no
  /// rival does.
  std::set<int> curve_workers;
};

void AddBenchOptions(Command bench, BenchFlags* flags);

/// Errors are usage errors, but for folders of reports that do not exist, and for price lists that cannot be read.
absl::StatusOr<BenchRequest> ToBenchRequest(const BenchFlags& flags);

}  // namespace millrace::cli
