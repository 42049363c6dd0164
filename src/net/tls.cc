#include "net/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

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

struct FreeTlsObject {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using PemText = std::unique_ptr<BIO, FreeTlsObject>;
using PemCertificate = std::unique_ptr<X509, FreeTlsObject>;
using PemKey = std::unique_ptr<EVP_PKEY, FreeTlsObject>;

PemText TextOf(const std::string& pem) {
  return PemText(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// None: the text has no certificate, or something else after one.
std::vector<PemCertificate> CertificatesIn(const std::string& pem) {
  std::vector<PemCertificate> certificates;
  const PemText text = TextOf(pem);
  if (text == nullptr) return certificates;
  ERR_clear_error();
  while (X509* certificate = PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(certificate);
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!at_end) certificates.clear();
  return certificates;
}

// A key with a password is not usable: nobody is there to type it.
int NoPassword(char*, int, int, void*) {
  return -1;
}

}  // namespace

bool UseIdentity(SSL_CTX* context, const TlsIdentity& identity) {
  const std::vector<PemCertificate> chain = CertificatesIn(identity.certificate_pem);
  const PemText key_text = TextOf(identity.key_pem);
  if (chain.empty() || key_text == nullptr) return false;
  const PemKey key(PEM_read_bio_PrivateKey(key_text.get(), nullptr, NoPassword, nullptr));
  bool ok = key != nullptr && SSL_CTX_use_certificate(context, chain.front().get()) == 1 &&
            SSL_CTX_use_PrivateKey(context, key.get()) == 1 && SSL_CTX_check_private_key(context) == 1;
  for (size_t i = 1; i < chain.size(); ++i) ok = ok && SSL_CTX_add1_chain_cert(context, chain[i].get()) == 1;
  ERR_clear_error();
  return ok;
}

bool RequireClients(SSL_CTX* context, const std::string& authorities_pem) {
  const std::vector<PemCertificate> authorities = CertificatesIn(authorities_pem);
  bool ok = !authorities.empty();
  for (const PemCertificate& authority : authorities) {
    ok = ok && X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) == 1 &&
         SSL_CTX_add_client_CA(context, authority.get()) == 1;
  }
  // A session that is taken up again has been verified by a server of this name only.
  constexpr unsigned char kSessions[] = "millrace";
  SSL_CTX_set_session_id_context(context, kSessions, sizeof kSessions - 1);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  ERR_clear_error();
  return ok;
}

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

absl::StatusOr<std::shared_ptr<ssl::context>> MakeClientTls(const std::string& ca_file, bool only_ca_file,
                                                            const TlsIdentity* identity) {
  boost::system::error_code error;
  auto context = std::make_shared<ssl::context>(ssl::context::tls_client);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  // A handshake in the midst of a body that is being written cannot be carried out.
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_RENEGOTIATION);
  // A machine without system authorities can still use those of ca_file; nothing is trusted by mistake.
  if (!only_ca_file) {
    context->set_default_verify_paths(error);
    const std::string elsewhere =
        AuthoritiesElsewhere(X509_get_default_cert_file(), X509_get_default_cert_dir(), kAuthorityFiles);
    boost::system::error_code ignored;
    if (!elsewhere.empty()) context->load_verify_file(elsewhere, ignored);
  }
  context->set_verify_mode(ssl::verify_peer, error);
  if (error) return absl::InternalError(fmt::format("TLS cannot be set up: {}", error.message()));
  if (!ca_file.empty()) {
    context->load_verify_file(ca_file, error);
    if (error) {
      return absl::InvalidArgumentError(
          only_ca_file
              ? fmt::format("the file {} of authorities cannot be used ({})", ca_file, error.message())
              : fmt::format("the CA file {} cannot be used ({}); check AWS_CA_BUNDLE", ca_file, error.message()));
    }
  }
  if (identity != nullptr && !UseIdentity(context->native_handle(), *identity)) {
    return absl::InvalidArgumentError("the client's TLS certificate or key cannot be used");
  }
  return context;
}

std::string CertificateProblem(const SSL* ssl) {
  const long result = SSL_get_verify_result(ssl);
  return result == X509_V_OK ? std::string() : X509_verify_cert_error_string(result);
}

}  // namespace millrace
