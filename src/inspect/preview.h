#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "dataset/index_walk.h"
#include "inspect/contact_sheet.h"

namespace millrace {

struct PreviewedSample {
  SamplePlace place;
  std::string label;
  std::string problem;  // why it cannot be shown; "" if it is shown
};

struct Preview {
  ContactSheet sheet;
  std::vector<PreviewedSample> samples;  // as the places of the sheet
};

/// Reads `samples` samples, evenly spread over the data set, and draws them. It draws the first image field of each, at
/// a reduced size, or the fields as text if there is no image. There are 1 to kMaxTiles samples, at most all of them.
/// The same data give the same sheet. A bad sample is not an error; a failure of the store or the network is. It takes
/// half of the budget for samples in flight, and ContactSheetBytes, out of the budget: ResourceExhausted.
absl::StatusOr<Preview> MakePreview(const Dataset& dataset, uint64_t samples, MemoryBudget& memory,
                                    const std::stop_token& stop);

}  // namespace millrace
