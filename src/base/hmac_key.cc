#include "base/hmac_key.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>

#include <stdexcept>
#include <string>

namespace millrace {

struct HmacKey::State {
  EVP_MAC* const mac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
  EVP_MAC_CTX* const context = EVP_MAC_CTX_new(mac);

  explicit State(ByteSpan key) {
    std::string digest = "SHA256";
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest.data(), 0),
                                 OSSL_PARAM_construct_end()};
    static constexpr unsigned char kNone = 0;  // a null key means the one before
    const auto* const bytes = key.empty() ? &kNone : reinterpret_cast<const unsigned char*>(key.data());
    if (context == nullptr || EVP_MAC_init(context, bytes, key.size(), params) != 1) {
      EVP_MAC_CTX_free(context);
      EVP_MAC_free(mac);
      throw std::runtime_error("OpenSSL has no HMAC with SHA-256");
    }
  }
  ~State() {
    EVP_MAC_CTX_free(context);
    EVP_MAC_free(mac);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

HmacKey::HmacKey(ByteSpan key) : state_(std::make_unique<State>(key)) {}
HmacKey::~HmacKey() = default;
HmacKey::HmacKey(HmacKey&&) noexcept = default;
HmacKey& HmacKey::operator=(HmacKey&&) noexcept = default;

Sha256Digest HmacKey::Sign(ByteSpan data) const {
  Sha256Digest digest{};
  size_t length = digest.size();
  EVP_MAC_CTX* const context = state_->context;
  const bool signed_all =
      EVP_MAC_init(context, nullptr, 0, nullptr) == 1 &&  // with the key that it has
      EVP_MAC_update(context, reinterpret_cast<const unsigned char*>(data.data()), data.size()) == 1 &&
      EVP_MAC_final(context, digest.data(), &length, digest.size()) == 1;
  if (!signed_all) throw std::runtime_error("OpenSSL failed to sign with HMAC and SHA-256");
  return digest;
}

}  // namespace millrace
