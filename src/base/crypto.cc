#include "base/crypto.h"

#include <fmt/format.h>
#include <isa-l/crc.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <xxhash.h>

#include <algorithm>
#include <stdexcept>

#include "absl/strings/escaping.h"

namespace millrace {

namespace {

const uint8_t* U8(ByteSpan data) { return reinterpret_cast<const uint8_t*>(data.data()); }

}  // namespace

Sha256Digest Sha256(ByteSpan data) {
  Sha256Digest digest;
  SHA256(U8(data), data.size(), digest.data());
  return digest;
}

Sha256Digest HmacSha256(ByteSpan key, ByteSpan data) {
  Sha256Digest digest;
  unsigned length = digest.size();
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), U8(data), data.size(), digest.data(), &length);
  return digest;
}

std::array<uint8_t, 16> Md5(ByteSpan data) {
  Md5Stream stream;
  stream.Update(data);
  return stream.Finish();
}

Md5Stream::Md5Stream() : context_(EVP_MD_CTX_new()) {
  EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_md5(), nullptr);
}
Md5Stream::~Md5Stream() { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_)); }
void Md5Stream::Update(ByteSpan data) {
  EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), data.data(), data.size());
}
std::array<uint8_t, 16> Md5Stream::Finish() {
  std::array<uint8_t, 16> digest;
  unsigned length = digest.size();
  EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), digest.data(), &length);
  return digest;
}

uint32_t Crc32c(ByteSpan data, uint32_t crc) {
  // ISA-L takes an int length and works without the usual inversions.
  constexpr size_t kChunk = size_t{1} << 30;
  uint32_t state = ~crc;
  while (!data.empty()) {
    const size_t n = std::min(data.size(), kChunk);
    state = crc32_iscsi(const_cast<uint8_t*>(U8(data)), static_cast<int>(n), state);
    data = data.subspan(n);
  }
  return ~state;
}

uint64_t Xxh3(ByteSpan data, uint64_t seed) { return XXH3_64bits_withSeed(data.data(), data.size(), seed); }

std::string Uint128::Hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Xxh3Stream::Xxh3Stream() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  Reset();
}
Xxh3Stream::~Xxh3Stream() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }
void Xxh3Stream::Reset() { XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_)); }
void Xxh3Stream::Update(ByteSpan data) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), data.data(), data.size());
}
void Xxh3Stream::UpdateLe64(uint64_t value) { Update({reinterpret_cast<const std::byte*>(&value), sizeof value}); }
Uint128 Xxh3Stream::Digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_));
  return {hash.high64, hash.low64};
}

std::string HexEncode(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const uint8_t byte : bytes) {
    out.push_back(kDigits[byte >> 4]);
    out.push_back(kDigits[byte & 15]);
  }
  return out;
}

std::string Base64Encode(std::span<const uint8_t> bytes) {
  return absl::Base64Escape(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

std::string RandomHex(size_t bytes) {
  std::string raw(bytes, '\0');
  if (RAND_bytes(reinterpret_cast<uint8_t*>(raw.data()), static_cast<int>(bytes)) != 1) {
    throw std::runtime_error("the system has no source of randomness");
  }
  return HexEncode({reinterpret_cast<const uint8_t*>(raw.data()), raw.size()});
}

bool EqualConstantTime(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace millrace
