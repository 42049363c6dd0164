#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "channel/channel.h"
#include "channel/training_job.h"

namespace millrace {

/// Has the contents of a CreateTrainingJob request of SageMaker, for a job that runs elsewhere.
struct JobRequest {
  std::string name;
  std::vector<Channel> channels;  // checked
  std::map<std::string, std::string> hyperparameters;
  std::vector<InstanceGroup> groups;  // of hosts algo-1, algo-2, ... in this order; empty: not told
  std::map<std::string, std::string> environment;
  std::string output_uri;         // below which the job's name is a folder of its own; "": none
  bool output_compressed = true;  // as tar.gz
  std::string checkpoint_uri;     // "": none
  std::string checkpoint_folder;  // "": that of the tree
  std::optional<uint64_t> retries;
  std::optional<uint64_t> max_seconds;  // that the job may run
  std::vector<std::string> no_effect;   // members that SageMaker knows and that mean nothing here, "A.B"
};

/// Reads such a request in JSON. `file_systems` are the folders on which this machine has EFS and FSx file systems, by
/// their IDs.
///
/// Returns InvalidArgument for text that is not JSON, for values that SageMaker refuses, and for a file system that is
/// not among those given. Members that SageMaker does not know are InvalidArgument, too: the message names all of them.
/// Unimplemented for sources of data that cannot be had elsewhere.
absl::StatusOr<JobRequest> ParseJobRequest(std::string_view text,
                                           const std::map<std::string, std::string>& file_systems);

}  // namespace millrace
