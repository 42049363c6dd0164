#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "dataset/staged_dataset.h"
#include "errors.h"
#include "pipeline/staged_loader.h"
#include "process.h"

namespace millrace::python {

/// This is _core.StagedDataset: the shards of a data set, as they were listed. Its members are called with the GIL
/// held.
class StagedHandle {
 public:
  /// Lists the shards; the GIL is released meanwhile. `progress` as of DatasetHandle, for the first stage.
  StagedHandle(const std::string& uri, nb::object progress, OpenOptions options, const AwsChoice& choice);

  void CheckOwnProcess() const { python::CheckOwnProcess(maker_, "Loader"); }
  const std::string& uri() const { return uri_; }
  const std::shared_ptr<Process>& process() const { return process_; }
  uint64_t total_bytes() const { return data_->total_bytes(); }

  /// Opens the first stage for a loader with these options, and shows progress.
  StagedFacts Describe(const LoaderOptions& options);
  absl::StatusOr<Position> Settle(const LoaderOptions& options) const { return SettleStaged(*data_, options); }
  absl::StatusOr<std::unique_ptr<StagedLoader>> Make(const LoaderOptions& options, const StagedFacts& facts) const {
    return StagedLoader::Create(process_->runtime, data_->Again(), options, facts);
  }

 private:
  const pid_t maker_ = getpid();
  const std::string uri_;
  const std::shared_ptr<Process> process_;
  const nb::object progress_;
  ProcessLocal<StagedDataset> data_;
};

}  // namespace millrace::python
