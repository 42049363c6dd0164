#include "net/tls.h"

#include <fmt/format.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdlib>
#include <filesystem>

namespace millrace {

namespace ssl = boost::asio::ssl;

namespace {

constexpr const char* kAuthorityFiles[] = {
    "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch, Gentoo
    "/etc/pki/tls/certs/ca-bundle.crt",                   // Fedora, RHEL, Amazon Linux
    "/etc/ssl/ca-bundle.pem",                             // SUSE
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // later Fedora and RHEL
    "/etc/ssl/cert.pem",                                  // others
};

}  // namespace

std::string AuthoritiesElsewhere(const std::string& own_file, const std::string& own_folder,
                                 std::span<const char* const> files) {
  namespace fs = std::filesystem;
  if (std::getenv(X509_get_default_cert_file_env()) != nullptr) return "";
  if (std::getenv(X509_get_default_cert_dir_env()) != nullptr) return "";
  std::error_code error;
  if (fs::exists(own_file, error)) return "";
  const bool nothing = fs::is_empty(own_folder, error);
  if (!error && !nothing) return "";
  for (const char* file : files) {
    if (fs::is_regular_file(file, error)) return file;
  }
  return "";
}

absl::StatusOr<std::shared_ptr<ssl::context>> MakeClientTls(const std::string& ca_file) {
  boost::system::error_code error;
  auto context = std::make_shared<ssl::context>(ssl::context::tls_client);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  // A handshake in the midst of a body that is being written cannot be carried out.
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_RENEGOTIATION);
  // A machine without system authorities can still use those of ca_file; nothing is trusted by mistake.
  context->set_default_verify_paths(error);
  const std::string elsewhere =
      AuthoritiesElsewhere(X509_get_default_cert_file(), X509_get_default_cert_dir(), kAuthorityFiles);
  boost::system::error_code ignored;
  if (!elsewhere.empty()) context->load_verify_file(elsewhere, ignored);
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
