#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <stop_token>
#include <vector>

#include "pipeline/loader.h"

namespace millrace {

/// The facts about a loader that are known before it reads anything.
struct LoaderFacts {
  std::vector<BatchShape> shapes;
  uint64_t steps_per_epoch = 0;
  Position start;  // of the first batch; if the rest of an epoch is dropped, the start of the next epoch
};

/// Checks the options as Loader::Create does, with the same errors, and starts nothing; memory need not be free.
absl::StatusOr<LoaderFacts> DescribeLoader(const Source& source, LoaderOptions options);

/// Logs which samples are left out (image_samples.h), and reads some of the classes that may be no numbers
/// (class_check.h). Call it before the first batch. Blocking; errors are those of Loader::Create and CheckClasses, and
/// Cancelled soon after a stop is requested.
absl::Status CheckSamples(const Source& source, LoaderOptions options, const std::stop_token& stop);

}  // namespace millrace
