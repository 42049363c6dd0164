#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "service/placement.h"
#include "service/worker_places.h"

namespace millrace {

/// Looks every two seconds which workers there are, on a thread of its own, and tells the placement.
class Membership {
 public:
  /// The placement outlives it.
  Membership(std::unique_ptr<WorkerFinder> finder, Placement& placement);
  /// Waits for a look that is under way, a few seconds at most.
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

 private:
  void Run();

  const std::unique_ptr<WorkerFinder> finder_;
  Placement& placement_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

/// Keeps a worker registered at a place in etcd while it lives: under a lease that ends ten seconds after the worker
/// was killed, and at once with this object. If etcd does not answer, the worker is registered when it does.
class Registration {
 public:
  /// The address in place of one that means all addresses of this machine: the one from which `etcd` is reached. "" if
  /// there is no way to it.
  static std::string AddressTowards(const HttpEndpoint& etcd, uint16_t port);

  /// `place` is one of kEtcd. NotFound or InvalidArgument: what ETCDCTL_CACERT and the like name cannot be used.
  static absl::StatusOr<std::unique_ptr<Registration>> Begin(Runtime& runtime, const WorkerPlace& place,
                                                             std::string address);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  Registration(Runtime& runtime, const WorkerPlace& place, EtcdAccess access, std::string address);
  void Run();
  absl::Status Renew();

  const std::string place_;
  const std::string key_;
  const std::string address_;
  EtcdClient etcd_;
  int64_t lease_ = 0;  // 0: none
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace millrace
