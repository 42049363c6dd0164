#pragma once

#include <optional>
#include <vector>

#include "base/status.h"
#include "channel/channel_items.h"
#include "channel/training_job.h"
#include "cli/run_mounts.h"
#include "supervisor/supervisor.h"

namespace millrace::cli {

/// A channel in Pipe mode, and what is in it.
struct PipeInput {
  Channel channel;
  ChannelItems items;
};

/// RunSupervised for a job with channels that are served while it runs: in Pipe mode by this process, while the
/// supervisor is another one, and in FastFile mode by those of `mounts`. Each attempt begins with the first epoch. If a
/// channel cannot be read any more, the command is ended, is not started again, and the result is 1. Call it once,
/// without threads and other children.
/// After `max_seconds` it gets SIGTERM, as if somebody asked it to end.
absl::StatusOr<int> RunServed(const TrainingJob& job, const std::vector<PipeInput>& pipes, ChannelMounts& mounts,
                              std::optional<uint64_t> max_seconds, const SupervisorOptions& options);

}  // namespace millrace::cli
