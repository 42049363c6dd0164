#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "channel/channel_items.h"
#include "channel/training_job.h"
#include "job/channel_mounts.h"
#include "job/job_lineage.h"
#include "job/job_options.h"

namespace millrace {

/// Represents a channel in Pipe mode, and what is in it.
struct PipeInput {
  Channel channel;
  ChannelItems items;
};

/// Represents the channels of a job that are served while it runs.
struct ServedChannels {
  std::vector<PipeInput> pipes;
  std::vector<MountInput> mounts;
  bool any() const { return !pipes.empty() || !mounts.empty(); }
};

/// Shows how much of something is done. It is destroyed when that ends.
using ShowProgress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

/// Represents the reports of a job about itself, for people.
struct JobTalk {
  std::function<void(const std::string&)> say;  // one sentence each, without its end
  std::function<ShowProgress(const std::string& label)> progress;
};

/// Makes the tree of the job and copies the data of its channels in File mode, and its checkpoints, there. Returns the
/// other channels. `lineage` may be nullptr. An interrupt ends it. Leaves no threads.
absl::StatusOr<ServedChannels> PrepareJob(const TrainingJob& job, const JobPlaces& places, JobLineage* lineage,
                                          const JobTalk& talk);

}  // namespace millrace
