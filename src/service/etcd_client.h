#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "net/http_client.h"
#include "net/runtime.h"

namespace millrace {

/// How etcd is to be talked to.
struct EtcdAccess {
  std::string user;      // "" = none
  std::string password;  // secret: never logged
  std::string ca_file;   // with TLS: the only authorities that are trusted; "" = those of the system
  std::optional<TlsIdentity> identity;

  /// What etcdctl takes from the environment: ETCDCTL_USER (NAME:PASSWORD), ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY.
  /// NotFound or InvalidArgument if a file cannot be used.
  static absl::StatusOr<EtcdAccess> FromEnvironment();
};

/// The few calls of etcd's version 3 that membership needs, by its JSON gateway. Each waits for its answer, a few
/// seconds at most. Errors: those that etcd says, and Unavailable if it does not answer. One thread at a time.
class EtcdClient {
 public:
  EtcdClient(Runtime& runtime, HttpEndpoint endpoint, EtcdAccess access);

  /// Keys that begin with `prefix`, which is not empty, and their values.
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> List(const std::string& prefix);
  absl::StatusOr<int64_t> Grant(int64_t seconds);
  absl::Status Put(std::string_view key, std::string_view value, int64_t lease);
  /// NotFound: the lease has ended.
  absl::Status KeepAlive(int64_t lease);
  absl::Status Revoke(int64_t lease);

 private:
  absl::StatusOr<std::string> Post(std::string_view path, std::string body);
  absl::StatusOr<std::string> PostOnce(std::string_view path, const std::string& body);
  absl::Status Authenticate();

  Runtime& runtime_;
  const HttpEndpoint endpoint_;
  const EtcdAccess access_;
  std::string token_;  // of this user's session
  HttpClient client_;
};

}  // namespace millrace
