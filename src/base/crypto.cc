#include "base/crypto.h"

#include <fmt/format.h>
#include <isa-l/crc.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <xxhash.h>

#include <algorithm>
#include <stdexcept>

#include "absl/strings/escaping.h"
#include "base/hmac_key.h"

namespace millrace {

namespace {

constexpr size_t kCrcChunk = size_t{1} << 30;  // ISA-L's lengths are ints

const uint8_t* U8(ByteSpan data) {
  return reinterpret_cast<const uint8_t*>(data.data());
}

/// Eight tables, so that eight bytes are taken at a time: table k advances a byte by k more zero bytes.
using Crc64Tables = std::array<std::array<uint64_t, 256>, 8>;
constexpr Crc64Tables MakeCrc64NvmeTables() {
  constexpr uint64_t kPolynomial = 0x9a6c9329ac4bc9b5;  // reflected
  Crc64Tables tables{};
  for (uint64_t byte = 0; byte < 256; ++byte) {
    uint64_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      tables[k][byte] = tables[0][tables[k - 1][byte] & 0xff] ^ (tables[k - 1][byte] >> 8);
    }
  }
  return tables;
}
constexpr Crc64Tables kCrc64NvmeTables = MakeCrc64NvmeTables();

}  // namespace

// OpenSSL 3 looks algorithms up by name, under locks, for each hash by its one-call functions: several times the cost
// of hashing a request. Its EVP functions with a context that is kept take a quarter more than these.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
Sha256Digest Sha256(ByteSpan data) {
  Sha256Digest digest;
  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Update(&context, data.data(), data.size());
  SHA256_Final(digest.data(), &context);
  return digest;
}
#pragma GCC diagnostic pop

Sha256Digest HmacSha256(ByteSpan key, ByteSpan data) {
  return HmacKey(key).Sign(data);
}

std::array<uint8_t, 20> Sha1(ByteSpan data) {
  std::array<uint8_t, 20> digest;
  SHA1(U8(data), data.size(), digest.data());
  return digest;
}

std::array<uint8_t, 16> Md5(ByteSpan data) {
  Md5Stream stream;
  stream.Update(data);
  return stream.Finish();
}

bool Md5Stream::Available() {
  static const bool available = [] {
    EVP_MD* const md = EVP_MD_fetch(nullptr, "MD5", nullptr);
    EVP_MD_free(md);
    return md != nullptr;
  }();
  return available;
}

Md5Stream::Md5Stream() : context_(EVP_MD_CTX_new()) {
  EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_md5(), nullptr);
}
Md5Stream::~Md5Stream() {
  EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_));
}
void Md5Stream::Update(ByteSpan data) {
  EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), data.data(), data.size());
}
std::array<uint8_t, 16> Md5Stream::Finish() {
  std::array<uint8_t, 16> digest;
  unsigned length = digest.size();
  EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), digest.data(), &length);
  return digest;
}

Sha256Stream::Sha256Stream() : context_(EVP_MD_CTX_new()) {
  EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_sha256(), nullptr);
}
Sha256Stream::~Sha256Stream() {
  EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_));
}
void Sha256Stream::Update(ByteSpan data) {
  EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), data.data(), data.size());
}
Sha256Digest Sha256Stream::Finish() {
  Sha256Digest digest;
  unsigned length = digest.size();
  EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), digest.data(), &length);
  EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), nullptr, nullptr);
  return digest;
}

uint32_t Crc32(ByteSpan data, uint32_t crc) {
  while (!data.empty()) {
    const size_t n = std::min(data.size(), kCrcChunk);
    crc = crc32_gzip_refl(crc, U8(data), n);
    data = data.subspan(n);
  }
  return crc;
}

uint64_t Crc64Nvme(ByteSpan data, uint64_t crc) {
  constexpr auto& kTables = kCrc64NvmeTables;
  uint64_t state = ~crc;
  for (; data.size() >= 8; data = data.subspan(8)) {
    state ^= LoadLe<uint64_t>(data.data());
    uint64_t next = 0;
    for (int i = 0; i < 8; ++i) next ^= kTables[7 - i][(state >> (8 * i)) & 0xff];
    state = next;
  }
  for (const std::byte byte : data) state = kTables[0][(state ^ static_cast<uint8_t>(byte)) & 0xff] ^ (state >> 8);
  return ~state;
}

uint32_t Crc32c(ByteSpan data, uint32_t crc) {
  // ISA-L takes an int length and works without the usual inversions.
  uint32_t state = ~crc;
  while (!data.empty()) {
    const size_t n = std::min(data.size(), kCrcChunk);
    state = crc32_iscsi(const_cast<uint8_t*>(U8(data)), static_cast<int>(n), state);
    data = data.subspan(n);
  }
  return ~state;
}

uint64_t Xxh3(ByteSpan data, uint64_t seed) {
  return XXH3_64bits_withSeed(data.data(), data.size(), seed);
}

std::string Uint128::Hex() const {
  return fmt::format("{:016x}{:016x}", high, low);
}

Xxh3Stream::Xxh3Stream() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  Reset();
}
Xxh3Stream::~Xxh3Stream() {
  XXH3_freeState(static_cast<XXH3_state_t*>(state_));
}
void Xxh3Stream::Reset() {
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}
void Xxh3Stream::Update(ByteSpan data) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), data.data(), data.size());
}
void Xxh3Stream::UpdateLe64(uint64_t value) {
  Update({reinterpret_cast<const std::byte*>(&value), sizeof value});
}
Uint128 Xxh3Stream::Digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_));
  return {hash.high64, hash.low64};
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
