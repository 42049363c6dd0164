#pragma once

#include <openssl/types.h>

#include <string>

// This is private to src/net.

namespace millrace {

/// The context trusts the authorities in the folder that OpenSSL knows (SSL_CERT_DIR), and those in `file` (PEM). The
/// file is read when no valid issuer was found without it. To read the file of a distribution takes 20 ms of CPU time,
/// which a client of a private authority need not spend. A file that cannot be read has no authorities. Returns false
/// if there is no memory for it.
bool TrustSystem(SSL_CTX* context, std::string file);

}  // namespace millrace
