#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "dataset/dataset.h"
#include "dataset/duplicate_keys.h"
#include "dataset/skipped_objects.h"
#include "inspect/decode_check.h"
#include "inspect/preview.h"
#include "inspect/survey.h"

namespace millrace {

/// Has all findings about a data set, which must outlive the report.
struct InspectReport {
  const Dataset& dataset;
  Survey survey;
  DuplicateKeys duplicates;
  SkippedObjects skipped;
  std::string not_listed;              // why these are not known; "" if they are
  std::string refused;                 // why a Loader of images and labels does not start; "" if it does
  std::optional<DecodeReport> decode;  // if it was asked for
  std::optional<Preview> preview;      // if it was asked for
  std::string preview_uri;             // where the sheet was written
  std::vector<std::string> advice;     // sentences
};

/// Counts the objects that hold samples. A manifest that lists raw objects is an object of the index, too, but it holds
/// no samples.
uint64_t CountObjects(const Index& index);

/// Returns advice about the order of the samples and the sizes of the objects, in sentences. Looks up every shard.
absl::StatusOr<std::vector<std::string>> AdviseOnDataset(const Dataset& dataset);

}  // namespace millrace
