#include "base/hmac_key.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <utility>

// The state of a hash is copied for each text. EVP does that by allocations, and costs more than the hash.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace millrace {

// RFC 2104: H(key ^ opad, H(key ^ ipad, text)).
struct HmacKey::State {
  State() = default;
  State(const State&) = default;
  State& operator=(const State&) = delete;
  ~State() { OPENSSL_cleanse(this, sizeof(*this)); }  // it signs as the key does

  SHA256_CTX inner, outer;  // after the block that the key makes
};

HmacKey::HmacKey(ByteSpan key) : state_(std::make_unique<State>()) {
  std::array<unsigned char, SHA256_CBLOCK> block{};
  if (key.size() > block.size()) {
    const Sha256Digest digest = Sha256(key);
    std::copy(digest.begin(), digest.end(), block.begin());
  } else {
    std::transform(key.begin(), key.end(), block.begin(),
                   [](std::byte byte) { return static_cast<unsigned char>(byte); });
  }
  const auto absorb = [&block](SHA256_CTX* context, unsigned char pad) {
    std::array<unsigned char, SHA256_CBLOCK> padded;
    std::transform(block.begin(), block.end(), padded.begin(),
                   [pad](unsigned char byte) { return static_cast<unsigned char>(byte ^ pad); });
    SHA256_Init(context);
    SHA256_Update(context, padded.data(), padded.size());
    OPENSSL_cleanse(padded.data(), padded.size());
  };
  absorb(&state_->inner, 0x36);
  absorb(&state_->outer, 0x5c);
  OPENSSL_cleanse(block.data(), block.size());
}

HmacKey::HmacKey(std::unique_ptr<State> state) : state_(std::move(state)) {}
HmacKey::~HmacKey() = default;
HmacKey::HmacKey(HmacKey&&) noexcept = default;
HmacKey& HmacKey::operator=(HmacKey&&) noexcept = default;

Sha256Digest HmacKey::Sign(ByteSpan data) const {
  State state = *state_;
  Sha256Digest digest;
  SHA256_Update(&state.inner, data.data(), data.size());
  SHA256_Final(digest.data(), &state.inner);
  SHA256_Update(&state.outer, digest.data(), digest.size());
  SHA256_Final(digest.data(), &state.outer);
  return digest;
}

HmacKey HmacKey::After(ByteSpan beginning) const {
  auto state = std::make_unique<State>(*state_);
  SHA256_Update(&state->inner, beginning.data(), beginning.size());
  return HmacKey(std::move(state));
}

}  // namespace millrace

#pragma GCC diagnostic pop
