#pragma once

#include <optional>
#include <string>

#include "cli/command_line.h"
#include "dataset/labels_file.h"
#include "pipeline/subset.h"

namespace millrace::cli {

/// The file of labels that a command reads, in place of what samples have themselves.
struct LabelsFlags {
  std::string uri;
  std::string key_column;
  std::string label_column;
  std::string missing = "error";
  bool no_quotes = false;

  std::optional<LabelsFile> file() const;  // nullopt: none
  MissingLabels missing_labels() const { return missing == "drop" ? MissingLabels::kDrop : MissingLabels::kRefuse; }
};

/// --labels, --key-column, --label-column, --no-csv-quotes and, if samples without labels may be left out,
/// --missing-labels.
void AddLabelsOptions(Command command, LabelsFlags* flags, bool with_missing);

}  // namespace millrace::cli
