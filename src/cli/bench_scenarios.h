#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "base/status.h"
#include "cli/bench_home.h"
#include "cli/bench_report.h"
#include "cli/bench_request.h"
#include "diagnose/temporary_folder.h"

/// Runs the scenarios of `millrace bench`, one after the other.

namespace millrace::cli {

/// Represents the place of the data, for the length of a run.
struct BenchPlace {
  std::unique_ptr<LocalServer> server;
  std::unique_ptr<LocalServer> stormy;  // for scenario g
  std::unique_ptr<TemporaryFolder> folder;
  std::string root;  // of synthetic data sets: a URI
};

/// Call it before there are threads: servers are made by a fork.
absl::StatusOr<BenchPlace> MakeBenchPlace(const BenchFlags& flags, const BenchRequest& request);

/// Runs what was asked for, and says meanwhile how far it is. Cancelled soon after a stop is requested.
absl::StatusOr<BenchReport> RunBench(const BenchFlags& flags, BenchRequest request, const BenchPlace& place,
                                     std::stop_token stop);

}  // namespace millrace::cli
