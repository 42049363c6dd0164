#include "net/tls.h"

#include <fmt/format.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace millrace {

namespace ssl = boost::asio::ssl;

absl::StatusOr<std::shared_ptr<ssl::context>> MakeClientTls(const std::string& ca_file) {
  boost::system::error_code error;
  auto context = std::make_shared<ssl::context>(ssl::context::tls_client);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  // A handshake in the midst of a body that is being written cannot be carried out.
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_RENEGOTIATION);
  // A machine without system authorities can still use those of ca_file; nothing is trusted by mistake.
  context->set_default_verify_paths(error);
  context->set_verify_mode(ssl::verify_peer, error);
  if (error) return absl::InternalError(fmt::format("TLS cannot be set up: {}", error.message()));
  if (!ca_file.empty()) {
    context->load_verify_file(ca_file, error);
    if (error) {
      return absl::InvalidArgumentError(
          fmt::format("the CA file {} cannot be used ({}); check AWS_CA_BUNDLE", ca_file, error.message()));
    }
  }
  return context;
}

std::string CertificateProblem(const SSL* ssl) {
  const long result = SSL_get_verify_result(ssl);
  return result == X509_V_OK ? std::string() : X509_verify_cert_error_string(result);
}

}  // namespace millrace
