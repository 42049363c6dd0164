#pragma once

#include <string>
#include <string_view>

#include "dataset/skipped_objects.h"
#include "pack/pack.h"
#include "pipeline/image_samples.h"

namespace millrace::cli {

/// The result of packing, and the files beside the source that hold no samples.
struct PackResult {
  PackReport report;
  SkippedObjects passed_over;
  ImageSamples::LeftOut left_out;  // samples of the source
};

/// Prints the warnings about samples and shards that were left out, or will not do for `feed`.
void WarnOfPack(const PackReport& report);

/// The result for machines: JSON in one line.
std::string PackReportJson(const PackResult& result, double seconds);
/// The same for people. `part` and `destination`: as they were given.
std::string PackReportText(const PackReport& report, std::string_view part, std::string_view destination,
                           double seconds);

}  // namespace millrace::cli
