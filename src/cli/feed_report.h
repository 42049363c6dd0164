#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dataset/dataset.h"
#include "pipeline/loader.h"

namespace millrace::cli {

/// Times and sizes of one run of `feed`, beside what the loader reports.
struct FeedResult {
  double open_seconds = 0;
  double seconds = 0;
  double first_batch_seconds = 0;
  double cpu_seconds = 0;
  uint64_t batches = 0;
  LoaderReport report;
};

/// What a run has asked its stores for.
struct RequestCounts {
  uint64_t get = 0, head = 0, put = 0, list = 0, del = 0, retries = 0, hedges = 0, bytes_read = 0;
};
/// Of all data sets; those of one store have their counters in common, which count once.
RequestCounts CountRequests(const std::vector<std::unique_ptr<Dataset>>& datasets);

/// The result for machines: JSON in one line.
std::string FeedJson(const Source& source, const FeedResult& result, const RequestCounts& counters);
/// And for people. `memory` and `cache`: the options `--memory` and `--cache` as they were given.
std::string FeedText(std::string_view memory, std::string_view cache, const Source& source, const FeedResult& result,
                     const RequestCounts& counters);

}  // namespace millrace::cli
