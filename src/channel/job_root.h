#pragma once

#include <functional>
#include <string>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"

namespace millrace {

/// The root of a job (TrainingJob::root), which one run at a time may use, and of which it is known whose it is: the
/// file input/config/millrace-run is locked while a run has the root, and says which job that was.
class JobRoot {
 public:
  /// Takes it for a job, of which `identity` is what distinguishes it from other jobs. What another job has left is
  /// moved aside, beside where it is, and `say` is told: what is in the folders model, output/data and
  /// `checkpoint_folder`, and in input/config all but what is kept there about channels. Files of which
  /// no job of Millrace is known stay only in a folder that is a mount of its own, as containers have them.
  ///
  /// FailedPrecondition if another run has the root, or if something cannot be moved.
  static absl::StatusOr<JobRoot> Take(const std::string& root, const std::string& identity,
                                      const std::string& checkpoint_folder,
                                      const std::function<void(const std::string&)>& say);

  /// Whether the files in a folder input/config are what a run of Millrace has left that has ended.
  static bool IsLeftBehind(const std::string& config_folder);

 private:
  explicit JobRoot(UniqueFd lock) : lock_(std::move(lock)) {}

  UniqueFd lock_;
};

}  // namespace millrace
