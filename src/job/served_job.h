#pragma once

#include <vector>

#include "base/status.h"
#include "channel/training_job.h"
#include "job/channel_mounts.h"
#include "job/job_channels.h"
#include "job/job_lineage.h"
#include "job/job_options.h"
#include "supervisor/supervisor.h"

namespace millrace {

/// Works as RunSupervised, for a job with channels that are served while it runs. This process serves those in Pipe
/// mode, and the supervisor is another one; `mounts` serve those in FastFile mode. Each attempt begins with the first
/// epoch. If a channel cannot be read any more, the command is ended, is not started again, and the result is 1.
/// `lineage`, which may be nullptr, gets each epoch that was read.
///
/// After `max_seconds` it gets SIGTERM, as if somebody asked it to end. Its checkpoints are sent to their place while
/// it runs and at its end. Its model and output are saved at the end, before the hooks: after a failure only the
/// output, and nothing if the job continues on another machine. If that fails, the result is 1; SIGTERM ends it. Call
/// it once, without threads and other children.
absl::StatusOr<int> RunServed(const TrainingJob& job, const std::vector<PipeInput>& pipes, ChannelMounts& mounts,
                              const JobPlaces& places, JobLineage* lineage, const SupervisorOptions& options);

}  // namespace millrace
