#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "channel/channel.h"

namespace millrace {

inline constexpr size_t kMaxChannels = 20;
inline constexpr size_t kMaxHyperparameters = 100;

/// Describes hosts of one kind.
struct InstanceGroup {
  std::string name;
  std::string type = "local";      // of the instances
  std::vector<std::string> hosts;  // sorted
};

/// Describes a job as SageMaker describes it to the program that it runs.
struct TrainingJob {
  std::string root = "/opt/ml";  // an absolute path without '/' at its end
  std::vector<Channel> channels;
  std::map<std::string, std::string> hyperparameters;
  std::vector<std::string> hosts = {"algo-1"};  // sorted
  std::vector<InstanceGroup> groups;            // each host is in one; empty: all are in one, of the usual name
  std::string current_host = "algo-1";          // one of them
  int cpus = 1;
  int gpus = 0;

  std::vector<InstanceGroup> AllGroups() const;
  /// Returns the hosts that get the data of a channel, sorted; and the place of the current one among them, their
  /// number if it gets no data.
  std::vector<std::string> HostsOf(const Channel& channel) const;
  uint64_t RankIn(const Channel& channel) const;
  /// Returns the program that `sagemaker_program` names; "" if it names no program.
  std::string EntryPoint() const;
  /// The pipes of Pipe mode are beside it, and that mode has no such folder.
  std::string ChannelFolder(const Channel& channel) const { return root + "/input/data/" + channel.name; }
};

/// Returns InvalidArgument for jobs that SageMaker refuses. These have too many channels or hyperparameters, two
/// channels of a name, text that is not UTF-8, or a current host that is not among the hosts. It also returns
/// InvalidArgument if a channel has the name of a pipe of another one, or names an unknown group. The same holds if
/// groups do not hold each host once.
absl::Status CheckTrainingJob(const TrainingJob& job);

/// Reads hyperparameters from a JSON object. A value that is not a string is its JSON text. InvalidArgument if the text
/// is not such an object.
absl::StatusOr<std::map<std::string, std::string>> ParseHyperparameters(std::string_view json);

/// Returns the configuration files below the root, by path from there: input/config/inputdataconfig.json,
/// resourceconfig.json and hyperparameters.json. The job must have been checked.
std::map<std::string, std::string> ConfigFiles(const TrainingJob& job);

/// Returns the variables that SageMaker's training toolkit gives to the program, SM_HOSTS to SM_HP_*, with its
/// spelling. SAGEMAKER_BASE_DIR gives that toolkit the root. A hyperparameter whose value is JSON is JSON in SM_HPS.
/// The job must have been checked.
std::map<std::string, std::string> JobVariables(const TrainingJob& job);

}  // namespace millrace
