#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>

#include "channel/channel.h"
#include "channel/training_job.h"
#include "store/stores.h"
#include "transfer/bulk_job.h"

namespace millrace {

/// Makes the folders of the job below its root (input/config, input/data, model, output/data, checkpoints, code) and
/// writes its configuration files, in place of older ones. The job must have been checked.
absl::Status MakeJobTree(const TrainingJob& job);

/// Returns FailedPrecondition if the folder of the channel holds files that FillChannel did not copy there.
absl::Status CheckFolderIsOurs(const TrainingJob& job, const Channel& channel);

struct FileModeOptions {
  std::function<void(const BulkProgress&)> progress;  // on any thread, one call at a time; must not block
  /// Gets each object that the folder gets or has already, in order of keys, with its URI; its error ends the work.
  std::function<absl::Status(const std::string& uri, const ObjectInfo&)> found = {};
  std::stop_token stop;
};

struct FileModeReport {
  uint64_t objects = 0;  // that the channel has
  uint64_t copied = 0;   // of them, those that were not there yet
  uint64_t bytes = 0;    // of what was copied
};

/// Makes the folder of a channel like the objects that its URI names. These are the objects below it, by their names
/// there, or one object, or those of a manifest, by their names behind its prefix. A sharded channel has only the part
/// of this host. It copies files that the folder lacks or that have changed (transfer/sync.h), so a second call on the
/// same machine copies little or nothing. It removes files that are not there any more, but only from a folder that
/// this function made. input/config/channel-NAME.uri names these folders. MakeJobTree comes first.
///
/// Blocking. NotFound if the URI names nothing; ResourceExhausted, before anything is copied, if the file system has
/// too little room; FailedPrecondition if the folder holds files of another origin; the error of an object that could
/// not be copied, whose message says how many there were; Cancelled after a stop.
absl::StatusOr<FileModeReport> FillChannel(Stores& stores, const TrainingJob& job, const Channel& channel,
                                           const FileModeOptions& options);

}  // namespace millrace
