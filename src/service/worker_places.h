#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "net/http_message.h"
#include "net/runtime.h"
#include "service/etcd_client.h"

namespace millrace {

/// Where workers are to be found, as a user writes it:
///
///   HOST:PORT                one
///   dns:NAME:PORT            one at each address of the name
///   slurm:NODES:PORT         one on each node of a list of Slurm, such as node[1-4,7]
///   sagemaker:GROUP:PORT     one on each host of an instance group, by SageMaker's resourceconfig.json
///   etcd://HOST:PORT/NAME    those that are registered under the name in etcd; with TLS: etcds://
struct WorkerPlace {
  enum class Kind : uint8_t { kAddress, kDns, kSlurm, kSageMaker, kEtcd };

  Kind kind = Kind::kAddress;
  std::string text;   // as it was written
  std::string name;   // the host, the name in DNS or etcd, the list, the group
  uint16_t port = 0;  // of workers; not of kEtcd
  HttpEndpoint etcd;

  /// Whether workers may come and go there.
  bool changes() const { return kind == Kind::kDns || kind == Kind::kEtcd; }
};

/// InvalidArgument if the text is none.
absl::StatusOr<WorkerPlace> ParseWorkerPlace(std::string_view text);

/// The hosts of a group in the text of a resourceconfig.json. NotFound if there is no such group, InvalidArgument if
/// the text is something else.
absl::StatusOr<std::vector<std::string>> HostsOfGroup(std::string_view resource_config, const std::string& group);

/// Under which key of etcd a worker registers, but for its address.
std::string EtcdPrefix(const WorkerPlace& place);

/// Finds the workers of some places, again and again. Not thread-safe.
class WorkerFinder {
 public:
  /// InvalidArgument or NotFound: what ETCDCTL_CACERT and the like name cannot be used.
  static absl::StatusOr<std::unique_ptr<WorkerFinder>> Make(Runtime& runtime, std::vector<WorkerPlace> places);

  /// Addresses HOST:PORT in the order of the places, each once. A place that does not answer now counts with what it
  /// said last, which is logged once. An error of a place that does not change, such as a group that does not exist, is
  /// returned. May take seconds.
  absl::StatusOr<std::vector<std::string>> Find();
  bool changes() const;

 private:
  struct Entry {
    WorkerPlace place;
    std::unique_ptr<EtcdClient> etcd;
    std::vector<std::string> last;
    bool failing = false;
  };
  explicit WorkerFinder(std::vector<Entry> entries) : entries_(std::move(entries)) {}

  std::vector<Entry> entries_;
};

}  // namespace millrace
