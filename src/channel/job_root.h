#pragma once

#include <functional>
#include <string>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"

namespace millrace {

/// Is the root of a job (TrainingJob::root), which one run at a time may use. The file input/config/millrace-run is
/// locked while a run has the root, and it names the job of the last run.
class JobRoot {
 public:
  /// Takes the root for a job, which `identity` distinguishes from other jobs. If another job has left files, they are
  /// moved to a new folder beside theirs. This affects the folders model, output/data and `checkpoint_folder`, and
  /// input/config without the records of channels. `say` gets a message for each of the first three.
  ///
  /// If no earlier job is recorded, two kinds of folders keep their files: mount points, which containers have, and a
  /// `checkpoint_folder` outside of the root.
  ///
  /// FailedPrecondition if another run has the root, or if something cannot be moved, such as a mount point with files
  /// of another job.
  static absl::StatusOr<JobRoot> Take(const std::string& root, const std::string& identity,
                                      const std::string& checkpoint_folder,
                                      const std::function<void(const std::string&)>& say);

  /// Records that input/config/resourceconfig.json, as it is now, was written by this run. Blocking.
  absl::Status RecordResources() const;

  /// Returns true if resourceconfig.json in a folder input/config was written by a run of Millrace that has ended, and
  /// not by the platform.
  static bool IsLeftBehind(const std::string& config_folder);

 private:
  JobRoot(UniqueFd lock, std::string config, std::string record)
      : lock_(std::move(lock)), config_(std::move(config)), record_(std::move(record)) {}

  UniqueFd lock_;
  std::string config_;  // the folder
  std::string record_;  // its first lines
};

}  // namespace millrace
