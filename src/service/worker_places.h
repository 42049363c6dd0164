#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "net/http_message.h"

namespace millrace {

/// Names workers to be found, as a user writes it:
///
///   HOST:PORT                one
///   dns:NAME:PORT            one at each address of the name
///   slurm:NODES:PORT         one on each node of a list of Slurm, such as node[1-4,7]
///   sagemaker:GROUP:PORT     one on each host of an instance group, by SageMaker's resourceconfig.json
struct WorkerPlace {
  enum class Kind : uint8_t { kAddress, kDns, kSlurm, kSageMaker };

  Kind kind = Kind::kAddress;
  std::string text;   // as it was written
  std::string name;   // the host, the name in DNS, the list, the group
  uint16_t port = 0;  // of workers

  /// Returns whether workers may come and go there.
  bool changes() const { return kind == Kind::kDns; }
};

/// Returns InvalidArgument if the text is not a place.
absl::StatusOr<WorkerPlace> ParseWorkerPlace(std::string_view text);

/// Returns the hosts of a group in the text of a resourceconfig.json. Returns NotFound if there is no such group,
/// InvalidArgument if the text is something else.
absl::StatusOr<std::vector<std::string>> HostsOfGroup(std::string_view resource_config, const std::string& group);

/// Finds the workers of some places, again and again. Not thread-safe.
class WorkerFinder {
 public:
  explicit WorkerFinder(std::vector<WorkerPlace> places);

  /// Returns addresses HOST:PORT in the order of the places, each once. If a place does not answer now, its last answer
  /// counts, which is logged once. An error of a place that does not change, such as a group that does not exist, is
  /// returned. May take seconds.
  absl::StatusOr<std::vector<std::string>> Find();
  bool changes() const;

 private:
  struct Entry {
    WorkerPlace place;
    std::vector<std::string> last;
    bool failing = false;
  };
  std::vector<Entry> entries_;
};

}  // namespace millrace
