#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "errors.h"
#include "pipeline/subset.h"
#include "process.h"

namespace millrace::python {

/// This is _core.Dataset: an open data set, or a subset of one, and what it needs. Its members are called with the GIL
/// held.
class DatasetHandle {
 public:
  /// Opens `uri`; the GIL is released meanwhile. `progress` (None, or a function of bytes done and in total) is called
  /// on this thread, about ten times a second.
  DatasetHandle(const std::string& uri, const nb::object& progress, OpenOptions options, const AwsChoice& choice);
  /// Makes a subset of that of `whole`, which it keeps.
  DatasetHandle(std::shared_ptr<const DatasetHandle> whole, Subset subset);

  /// These are for loaders, on whatever thread. They keep the handle, which keeps these alive.
  Runtime& runtime() const { return process_->runtime; }
  const Subset& subset() const { return *subset_; }
  const std::shared_ptr<Process>& process() const { return process_; }
  Stores& stores() const { return *stores_; }

  void CheckOwnProcess() const { python::CheckOwnProcess(maker_, "Dataset"); }
  const Index& index() const {
    CheckOwnProcess();
    return subset_->index();
  }
  const std::string& uri() const { return uri_; }

  /// Returns (extent, window, lanes) that a Loader uses by default.
  std::tuple<uint64_t, uint64_t, uint64_t> Policy(const std::string& shuffle) const;

 private:
  const pid_t maker_ = getpid();
  const std::string uri_;
  const std::shared_ptr<Process> process_;
  Stores* const stores_;                              // of the process
  const std::shared_ptr<const DatasetHandle> whole_;  // null: this is
  ProcessLocal<const Dataset> dataset_;               // null in a subset
  std::optional<Subset> subset_;
};

/// Returns the value of the option `index`.
IndexUse ToIndexUse(const std::string& index);

/// Adds what reads keys and single fields of samples.
void BindSampleColumns(nb::class_<DatasetHandle>& dataset);

}  // namespace millrace::python
