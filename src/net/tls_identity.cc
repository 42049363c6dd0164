#include "net/tls_identity.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

namespace millrace {

namespace {

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeCertificate {
  void operator()(X509* certificate) const { X509_free(certificate); }
};
struct FreeBio {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
struct FreeExtension {
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
};
using Key = std::unique_ptr<EVP_PKEY, FreeKey>;
using Certificate = std::unique_ptr<X509, FreeCertificate>;
using Bio = std::unique_ptr<BIO, FreeBio>;

absl::Status TlsError(std::string_view what) {
  char text[256];
  ERR_error_string_n(ERR_get_error(), text, sizeof text);
  return absl::InternalError(std::string("making a TLS certificate: ").append(what).append(": ").append(text));
}

bool AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, FreeExtension> extension(
      X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool SetRandomSerial(X509* certificate) {
  uint64_t serial = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) != 1) return false;
  return ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial >> 1) == 1;
}

/// Makes a certificate without extensions and signature. If `issuer` is null, it is its own issuer.
Certificate NewCertificate(const char* name, EVP_PKEY* key, X509* issuer) {
  constexpr long kDay = 24 * 3600;
  Certificate certificate(X509_new());
  if (certificate == nullptr || !SetRandomSerial(certificate.get())) return nullptr;
  X509* raw = certificate.get();
  X509_NAME* subject = X509_get_subject_name(raw);
  const bool ok = X509_set_version(raw, X509_VERSION_3) == 1 &&
                  X509_gmtime_adj(X509_getm_notBefore(raw), -kDay) != nullptr &&
                  X509_gmtime_adj(X509_getm_notAfter(raw), 30 * kDay) != nullptr && X509_set_pubkey(raw, key) == 1 &&
                  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name),
                                             -1, -1, 0) == 1 &&
                  X509_set_issuer_name(raw, issuer == nullptr ? subject : X509_get_subject_name(issuer)) == 1;
  return ok ? std::move(certificate) : nullptr;
}

std::string BioText(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<size_t>(size));
}

absl::StatusOr<std::string> Pem(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || PEM_write_bio_X509(bio.get(), certificate) != 1) return TlsError("writing a certificate");
  return BioText(bio.get());
}

std::string AlternativeNames(const std::string& host) {
  std::string names = "DNS:localhost,DNS:*.localhost,IP:127.0.0.1,IP:::1";
  unsigned char address[sizeof(in6_addr)];
  const bool numeric =
      inet_pton(AF_INET, host.c_str(), address) == 1 || inet_pton(AF_INET6, host.c_str(), address) == 1;
  if (!host.empty() && host != "localhost") names += (numeric ? ",IP:" : ",DNS:") + host;
  return names;
}

}  // namespace

absl::StatusOr<ThrowawayTls> MakeThrowawayTls(const std::string& host) {
  if (host.find_first_of(",\n") != std::string::npos) return absl::InvalidArgumentError("not a host name: " + host);
  const Key ca_key(EVP_EC_gen("P-256"));
  const Key key(EVP_EC_gen("P-256"));
  if (ca_key == nullptr || key == nullptr) return TlsError("generating a key");

  const Certificate ca = NewCertificate("Millrace throw-away CA", ca_key.get(), nullptr);
  if (ca == nullptr || !AddExtension(ca.get(), ca.get(), NID_basic_constraints, "critical,CA:TRUE") ||
      !AddExtension(ca.get(), ca.get(), NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !AddExtension(ca.get(), ca.get(), NID_subject_key_identifier, "hash") ||
      X509_sign(ca.get(), ca_key.get(), EVP_sha256()) == 0) {
    return TlsError("making the authority");
  }
  const Certificate server = NewCertificate("localhost", key.get(), ca.get());
  if (server == nullptr || !AddExtension(server.get(), ca.get(), NID_basic_constraints, "critical,CA:FALSE") ||
      !AddExtension(server.get(), ca.get(), NID_key_usage, "critical,digitalSignature") ||
      !AddExtension(server.get(), ca.get(), NID_ext_key_usage, "serverAuth,clientAuth") ||
      !AddExtension(server.get(), ca.get(), NID_authority_key_identifier, "keyid") ||
      !AddExtension(server.get(), ca.get(), NID_subject_alt_name, AlternativeNames(host)) ||
      X509_sign(server.get(), ca_key.get(), EVP_sha256()) == 0) {
    return TlsError("making the server's certificate");
  }

  ThrowawayTls made;
  ASSIGN_OR_RETURN(made.ca_pem, Pem(ca.get()));
  ASSIGN_OR_RETURN(made.server.certificate_pem, Pem(server.get()));
  const Bio bio(BIO_new(BIO_s_secmem()));
  if (bio == nullptr || PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return TlsError("writing the key");
  }
  made.server.key_pem = BioText(bio.get());
  return made;
}

}  // namespace millrace
