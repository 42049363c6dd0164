#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "channel/channel.h"

namespace millrace {

inline constexpr size_t kMaxChannels = 20;
inline constexpr size_t kMaxHyperparameters = 100;

/// A job as SageMaker describes it to the program that it runs.
struct TrainingJob {
  std::string root = "/opt/ml";  // an absolute path without '/' at its end
  std::vector<Channel> channels;
  std::map<std::string, std::string> hyperparameters;
  std::vector<std::string> hosts = {"algo-1"};  // sorted; all in one instance group
  std::string current_host = "algo-1";          // one of them
  int cpus = 1;
  int gpus = 0;

  std::string ChannelFolder(const Channel& channel) const { return root + "/input/data/" + channel.name; }
};

/// InvalidArgument for what SageMaker refuses, too: too many channels or hyperparameters, two channels of a name, text
/// that is not UTF-8, a current host that is not among the hosts.
absl::Status CheckTrainingJob(const TrainingJob& job);

/// The configuration files below the root, by path from there: input/config/inputdataconfig.json, resourceconfig.json
/// and hyperparameters.json. The job must have been checked.
std::map<std::string, std::string> ConfigFiles(const TrainingJob& job);

/// The variables that SageMaker's training toolkit gives to the program, SM_HOSTS to SM_HP_*, spelled as it does, and
/// SAGEMAKER_BASE_DIR, which tells that toolkit the root. A hyperparameter whose value is JSON is told as JSON in
/// SM_HPS. The job must have been checked.
std::map<std::string, std::string> JobVariables(const TrainingJob& job);

}  // namespace millrace
