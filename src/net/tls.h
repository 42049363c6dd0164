#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "base/status.h"

// Private to src/net.

namespace millrace {

/// A client's TLS settings: TLS 1.2 or later, the server's chain verified against the system's authorities and those in
/// `ca_file` (PEM; "": no further ones). InvalidArgument when the file cannot be used.
absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> MakeClientTls(const std::string& ca_file);

/// Why the peer's certificate was refused; "" when it was not.
std::string CertificateProblem(const SSL* ssl);

}  // namespace millrace
