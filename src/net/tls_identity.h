#pragma once

#include <string>

#include "base/status.h"

namespace millrace {

/// A TLS server proves itself with this, as PEM text. The key is a secret: never logged, never written to a file.
struct TlsIdentity {
  std::string certificate_pem;
  std::string key_pem;
};

struct ThrowawayTls {
  TlsIdentity server;
  std::string ca_pem;  // what clients must trust
};

/// Makes an authority and a server certificate signed by it, for `localhost`, `*.localhost`, 127.0.0.1, ::1 and `host`
/// (a name or an address). Both are new at each call and valid for 30 days; the authority's key is forgotten on return.
absl::StatusOr<ThrowawayTls> MakeThrowawayTls(const std::string& host);

}  // namespace millrace
