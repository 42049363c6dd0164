#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/labels_options.h"
#include "net/runtime.h"
#include "pipeline/loader.h"

namespace millrace::cli {

/// The sources of `feed`: data sets, the same part of each, and how they are mixed.
struct SourceFlags {
  std::vector<std::string> uris;
  std::string split;  // "train=0.9,valid=0.1"
  std::string take;   // "train"
  uint64_t split_seed = 0;
  bool split_groups = false;
  std::vector<std::string> where;
  LabelsFlags labels;
  bool balance = false;
  std::vector<std::string> weights;  // "3,1" or "100000:1,1"
  uint64_t epoch_samples = 0;
  std::string draws = "exact";
};

void AddSourceOptions(Command feed, SourceFlags* flags);

/// The meaning of the flags, checked as far as that needs no data.
struct SourceRequest {
  std::optional<KeyRange> keys;
  bool key_groups = false;
  MissingLabels missing_labels = MissingLabels::kRefuse;
  std::vector<Filter> filters;
  struct Range {
    uint64_t first = 0;
    uint64_t last = 0;
  };
  std::optional<std::vector<Range>> samples;  // ascending, apart
  /// Returns true if the classes of samples decide which of them are fed.
  bool NeedsClasses() const;
  bool balance = false;
  std::optional<MixOptions> mix;
};
/// Returns the name of a part in texts: the data set's URI, with the class if parts are balanced classes.
std::string PartTitle(std::string_view uri, std::string_view class_name);

absl::StatusOr<SourceRequest> ParseSource(const SourceFlags& flags);

/// The source over open data sets, which have to outlive it, and the mix that it is for: of equal classes where those
/// are balanced and nothing else is said.
struct FeedSource {
  Source source;
  std::optional<MixOptions> mix;
};
absl::StatusOr<FeedSource> MakeSource(Runtime& runtime, const std::vector<std::unique_ptr<Dataset>>& datasets,
                                      const SourceRequest& request);

}  // namespace millrace::cli
