#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "channel/channel_items.h"
#include "channel/training_job.h"
#include "cli/run_lineage.h"
#include "cli/run_mounts.h"
#include "supervisor/supervisor.h"

namespace millrace::cli {

/// A channel in Pipe mode, and what is in it.
struct PipeInput {
  Channel channel;
  ChannelItems items;
};

/// What belongs to a job beside its channels.
struct JobPlaces {
  std::optional<uint64_t> max_seconds;  // that it may run, all attempts together
  std::string output;                   // URI of a folder for its model and output at the end; "": none
  bool archives = true;                 // as model.tar.gz and output.tar.gz; false: file by file
  std::string checkpoints;              // URI of a folder that is kept like that of its checkpoints; "": none
  std::string checkpoint_folder;
  JobLineage* lineage = nullptr;  // told of epochs that were read; or nullptr

  bool any() const { return max_seconds || !output.empty() || !checkpoints.empty(); }
};

/// RunSupervised for a job with channels that are served while it runs: in Pipe mode by this process, while the
/// supervisor is another one, and in FastFile mode by those of `mounts`. Each attempt begins with the first epoch. If a
/// channel cannot be read any more, the command is ended, is not started again, and the result is 1.
///
/// After `max_seconds` it gets SIGTERM, as if somebody asked it to end. While it runs and at its end its checkpoints
/// are sent to their place; and its model and output at the end, before the hooks: after a failure only the output, and
/// nothing if it goes on on another machine. The result is 1 if that fails, too; SIGTERM ends it. Call it once, without
/// threads and other children.
absl::StatusOr<int> RunServed(const TrainingJob& job, const std::vector<PipeInput>& pipes, ChannelMounts& mounts,
                              const JobPlaces& places, const SupervisorOptions& options);

}  // namespace millrace::cli
