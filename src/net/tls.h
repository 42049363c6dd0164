#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "net/tls_identity.h"

// These are private to src/net.

namespace millrace {

/// Returns the place of the authorities, if this OpenSSL was built for a distribution that keeps them elsewhere, as in
/// a wheel: the first of `files` (PEM) that exists. Returns "" if OpenSSL finds them by itself: SSL_CERT_FILE or
/// SSL_CERT_DIR is set, the file `own_file` exists, or the folder `own_folder` has something in it. Returns "" also if
/// none of `files` exists.
std::string AuthoritiesElsewhere(const std::string& own_file, const std::string& own_folder,
                                 std::span<const char* const> files);

/// Makes a client's TLS settings: TLS 1.2 or later. The server's chain is verified against the system's authorities,
/// unless `only_ca_file`, and those in `ca_file` (PEM; "": none). `identity` is shown to servers that ask for one.
/// Returns InvalidArgument when one of them cannot be used.
absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> MakeClientTls(const std::string& ca_file, bool only_ca_file,
                                                                         const TlsIdentity* identity);

/// Gives the context a certificate, with those that lead to its authority after it, and its key. False: it cannot be
/// used.
bool UseIdentity(SSL_CTX* context, const TlsIdentity& identity);

/// The authorities in a text of PEM certificates become those that clients' certificates must come from: a client
/// without one is not served. False: there is none in the text.
bool RequireClients(SSL_CTX* context, const std::string& authorities_pem);

/// Returns why the peer's certificate was refused; "" when it was not.
std::string CertificateProblem(const SSL* ssl);

}  // namespace millrace
