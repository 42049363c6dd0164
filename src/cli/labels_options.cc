#include "cli/labels_options.h"

namespace millrace::cli {

std::optional<LabelsFile> LabelsFlags::file() const {
  if (uri.empty()) return std::nullopt;
  return LabelsFile{.uri = uri, .key_column = key_column, .label_column = label_column, .quotes = !no_quotes};
}

void AddLabelsOptions(Command command, LabelsFlags* flags, bool with_missing) {
  Option labels = command.Add("--labels", &flags->uri,
                              "CSV, TSV or JSON lines with the labels of samples, by their keys: the label becomes the "
                              "field 'cls', other columns become fields");
  const Command with_labels = command.Beside(labels);
  with_labels.Add("--key-column", &flags->key_column, "The column of --labels with the keys [key, id, path, ...]");
  with_labels.Add("--label-column", &flags->label_column, "The column of --labels with the label [cls, label, class]");
  with_labels.AddFlag("--no-csv-quotes", &flags->no_quotes, "Quotes in the CSV or TSV of --labels are text");
  if (!with_missing) return;
  with_labels
      .Add("--missing-labels", &flags->missing,
           "Samples that --labels does not name: end with an error, or leave them out [error]")
      .Words({"error", "drop"});
}

}  // namespace millrace::cli
