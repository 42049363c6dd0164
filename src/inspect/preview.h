#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "inspect/contact_sheet.h"
#include "inspect/index_walk.h"

namespace millrace {

struct PreviewedSample {
  SamplePlace place;
  std::string label;
  std::string problem;  // why it cannot be shown; "" when it is
};

struct Preview {
  ContactSheet sheet;
  std::vector<PreviewedSample> samples;  // as the places of the sheet
};

/// Reads so many samples, evenly spread over the data set, and draws them: the first image field of each, at a reduced
/// size; the fields as text where there is none. 1 to kMaxTiles samples, at most those that there are. The same data
/// give the same sheet. A bad sample is no error; what is wrong with the store or the network is. Memory: half of the
/// budget at a time for what is read, and ContactSheetBytes, out of the budget: ResourceExhausted.
absl::StatusOr<Preview> MakePreview(const Dataset& dataset, uint64_t samples, MemoryBudget& memory,
                                    const std::stop_token& stop);

}  // namespace millrace
