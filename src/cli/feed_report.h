#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "pipeline/loader.h"
#include "store/request_counts.h"

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

/// The result for machines: JSON in one line. `source`: null for a staged loader, whose source is not known as a whole.
std::string FeedJson(const Source* source, const FeedResult& result, const RequestCounts& counters);
/// Returns the same for people. `memory` and `cache`: the options `--memory` and `--cache` as they were given.
std::string FeedText(std::string_view memory, std::string_view cache, const Source* source, const FeedResult& result,
                     const RequestCounts& counters);

}  // namespace millrace::cli
