#include "service/open_datasets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <utility>

#include "absl/cleanup/cleanup.h"

namespace millrace {

absl::StatusOr<std::shared_ptr<const Dataset>> OpenDatasets::Open(const StreamSpec::Part& part,
                                                                  const std::stop_token& stop) {
  RETURN_IF_ERROR(allowed_.Check(part.uri));
  if (part.labels) RETURN_IF_ERROR(allowed_.Check(part.labels->uri));
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    if (entries_.size() > kMaxUnused) {
      std::erase_if(entries_, [](const auto& each) { return each.second.use_count() == 1; });
    }
    const std::string labels = part.labels ? "\n" + part.labels->uri : "";
    const std::string classes = part.classes.empty() ? "" : fmt::format("\n\n{}", fmt::join(part.classes, "\n"));
    std::shared_ptr<Entry>& found = entries_[part.uri + labels + classes];
    if (found == nullptr) found = std::make_shared<Entry>();
    entry = found;
  }
  const auto is_that = [&part](const Dataset& dataset) {
    return dataset.index().fingerprint() == part.fingerprint && dataset.index().size() == part.samples &&
           dataset.labels_id() == part.labels_id && dataset.classes() == part.classes;
  };
  std::unique_lock lock(entry->mutex);
  // A stream that is closed does not wait: it would count as one of the worker's.
  if (!entry->changed.wait(lock, stop, [&entry] { return !entry->opening; }))
    return absl::CancelledError("the session has ended");
  if (entry->dataset != nullptr && is_that(*entry->dataset)) return entry->dataset;
  // It was not opened yet, or has changed since.
  entry->opening = true;
  lock.unlock();
  const absl::Cleanup over = [&entry] {
    const std::lock_guard over_lock(entry->mutex);
    entry->opening = false;
    entry->changed.notify_all();
  };
  absl::StatusOr<std::shared_ptr<const Dataset>> opened = OpenNow(part);
  if (opened.ok() && !is_that(**opened)) {
    opened = absl::FailedPreconditionError(fmt::format(
        "{} is another data set for the worker ({} samples, fingerprint {:016x}) than for the trainer ({}, {:016x}); "
        "let both see the same data, and index it again if it has changed",
        part.uri, (*opened)->index().size(), (*opened)->index().fingerprint(), part.samples, part.fingerprint));
  }
  if (opened.ok()) {
    const std::lock_guard opened_lock(entry->mutex);
    entry->dataset = *opened;
  }
  return opened;
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenDatasets::OpenNow(const StreamSpec::Part& part) {
  OpenOptions options;
  options.stop = stop_.get_token();
  options.labels = part.labels;
  options.classes = part.classes;
  try {
    ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> dataset, Dataset::Open(runtime_, stores_, part.uri, options));
    if (dataset->labels_id() == part.labels_id) return dataset;
    return absl::FailedPreconditionError(fmt::format(
        "{}: the labels {} are others for the worker than for the trainer; start the trainer again if they were "
        "replaced, and let both see the same ones",
        part.uri, part.labels ? part.labels->uri : "of the data"));
  } catch (const std::exception& error) {  // std::bad_alloc
    return absl::ResourceExhaustedError(fmt::format("the worker has too little memory ({})", error.what()));
  }
}

}  // namespace millrace
