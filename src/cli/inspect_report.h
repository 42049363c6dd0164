#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/decode_check.h"
#include "cli/duplicate_keys.h"
#include "cli/preview.h"
#include "cli/survey.h"
#include "dataset/dataset.h"

namespace millrace::cli {

/// All that `inspect` found. The data set must outlive it.
struct InspectReport {
  const Dataset& dataset;
  Survey survey;
  DuplicateKeys duplicates;
  std::optional<DecodeReport> decode;  // when it was asked for
  std::optional<Preview> preview;      // likewise
  std::string preview_uri;             // where the sheet was written
  std::vector<std::string> advice;     // sentences
};

/// What to do about the order of the samples and the sizes of the objects, in sentences. Looks up every shard.
absl::StatusOr<std::vector<std::string>> Advise(const Dataset& dataset);

/// One JSON object in one line. DataLoss when the index is damaged.
absl::StatusOr<std::string> InspectJson(const InspectReport& report);

/// The same for people.
absl::StatusOr<std::string> InspectText(const InspectReport& report);

}  // namespace millrace::cli
