#pragma once

#include <string>

#include "base/status.h"
#include "net/tls_identity.h"

namespace millrace {

/// With these, trainers and workers prove to each other who they are: both have a certificate of the same authority,
/// and accept no other one.
struct WorkerTls {
  TlsIdentity identity;
  std::string ca_file;  // PEM
  std::string ca_pem;   // what is in it
  std::string name;     // that a worker's certificate must have; "" = the host at which it is asked
};

/// Reads ca.crt, tls.crt and tls.key of a folder, as Kubernetes mounts a certificate. NotFound and the like (one cannot
/// be read), InvalidArgument (one is empty or no PEM). Messages show nothing of the key.
absl::StatusOr<WorkerTls> ReadWorkerTls(const std::string& folder);

}  // namespace millrace
