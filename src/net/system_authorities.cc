#include "net/system_authorities.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <memory>
#include <mutex>
#include <utility>

namespace millrace {

namespace {

/// Belongs to the store of one context. Connections of several loops ask at the same time.
struct LateFile {
  std::string path;
  X509_LOOKUP* lookup = nullptr;  // of the store
  std::once_flag once;

  void Read() {
    std::call_once(once, [this] {
      ERR_set_mark();  // an error of this file is none of the handshake
      X509_load_cert_crl_file(lookup, path.c_str(), X509_FILETYPE_PEM);
      ERR_pop_to_mark();
    });
  }
};

int FileIndex() {
  static const int index = X509_STORE_get_ex_new_index(
      0, nullptr, nullptr, nullptr,
      [](void*, void* file, CRYPTO_EX_DATA*, int, long, void*) { delete static_cast<LateFile*>(file); });
  return index;
}

// An authority of the same name with another key, or one that has expired, does not hide that of the file.
int FindIssuer(X509** issuer, X509_STORE_CTX* context, X509* certificate) {
  const int found = X509_STORE_CTX_get1_issuer(issuer, context, certificate);
  if (found < 0) return found;
  if (found == 1 && X509_cmp_current_time(X509_get0_notAfter(*issuer)) > 0) return found;
  auto* const file = static_cast<LateFile*>(X509_STORE_get_ex_data(X509_STORE_CTX_get0_store(context), FileIndex()));
  if (file == nullptr) return found;
  if (found == 1) X509_free(std::exchange(*issuer, nullptr));
  file->Read();
  return X509_STORE_CTX_get1_issuer(issuer, context, certificate);
}

}  // namespace

bool TrustSystem(SSL_CTX* context, std::string file) {
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  auto late = std::make_unique<LateFile>();
  late->path = std::move(file);
  late->lookup = X509_STORE_add_lookup(store, X509_LOOKUP_file());
  if (late->lookup == nullptr || SSL_CTX_set_default_verify_dir(context) != 1 || FileIndex() < 0 ||
      X509_STORE_set_ex_data(store, FileIndex(), late.get()) != 1) {
    return false;
  }
  late.release();  // the store deletes it
  X509_STORE_set_get_issuer(store, FindIssuer);
  return true;
}

}  // namespace millrace
