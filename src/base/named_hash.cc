#include "base/named_hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <xxhash.h>

#include <array>
#include <utility>

#include "base/hex.h"

namespace millrace {

namespace {

class DigestHash final : public NamedHash {
 public:
  explicit DigestHash(EVP_MD_CTX* context) : context_(context) {}
  ~DigestHash() override { EVP_MD_CTX_free(context_); }
  DigestHash(const DigestHash&) = delete;
  DigestHash& operator=(const DigestHash&) = delete;

  void Update(ByteSpan data) override { EVP_DigestUpdate(context_, data.data(), data.size()); }
  std::string Finish() override {
    std::array<uint8_t, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    EVP_DigestFinal_ex(context_, digest.data(), &size);
    return HexEncode(std::span(digest).first(size));
  }

 private:
  EVP_MD_CTX* const context_;
};

class Xxh32Hash final : public NamedHash {
 public:
  Xxh32Hash() : state_(XXH32_createState()) { XXH32_reset(state_, 0); }
  ~Xxh32Hash() override { XXH32_freeState(state_); }
  void Update(ByteSpan data) override { XXH32_update(state_, data.data(), data.size()); }
  std::string Finish() override { return fmt::format("{:08x}", XXH32_digest(state_)); }

 private:
  XXH32_state_t* const state_;
};

class Xxh64Hash final : public NamedHash {
 public:
  Xxh64Hash() : state_(XXH64_createState()) { XXH64_reset(state_, 0); }
  ~Xxh64Hash() override { XXH64_freeState(state_); }
  void Update(ByteSpan data) override { XXH64_update(state_, data.data(), data.size()); }
  std::string Finish() override { return fmt::format("{:016x}", XXH64_digest(state_)); }

 private:
  XXH64_state_t* const state_;
};

class Xxh3Hash final : public NamedHash {
 public:
  explicit Xxh3Hash(bool wide) : wide_(wide), state_(XXH3_createState()) {
    wide_ ? XXH3_128bits_reset(state_) : XXH3_64bits_reset(state_);
  }
  ~Xxh3Hash() override { XXH3_freeState(state_); }
  void Update(ByteSpan data) override {
    wide_ ? XXH3_128bits_update(state_, data.data(), data.size())
          : XXH3_64bits_update(state_, data.data(), data.size());
  }
  std::string Finish() override {
    if (!wide_) return fmt::format("{:016x}", XXH3_64bits_digest(state_));
    const XXH128_hash_t digest = XXH3_128bits_digest(state_);
    return fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
  }

 private:
  const bool wide_;
  XXH3_state_t* const state_;
};

// Returns OpenSSL's name of the hash. Returns null if it does not have the hash.
const char* DigestName(std::string_view name) {
  static constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"md5", "MD5"},           {"sha1", "SHA1"},         {"sha224", "SHA224"},      {"sha256", "SHA256"},
      {"sha384", "SHA384"},     {"sha512", "SHA512"},     {"sha3_224", "SHA3-224"},  {"sha3_256", "SHA3-256"},
      {"sha3_384", "SHA3-384"}, {"sha3_512", "SHA3-512"}, {"blake2b", "BLAKE2b512"}, {"blake2s", "BLAKE2s256"}};
  for (const auto& [ours, theirs] : kNames) {
    if (ours == name) return theirs;
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<NamedHash> NamedHash::Make(std::string_view name) {
  if (name == "xxh32") return std::make_unique<Xxh32Hash>();
  if (name == "xxh64") return std::make_unique<Xxh64Hash>();
  if (name == "xxh3_64") return std::make_unique<Xxh3Hash>(false);
  if (name == "xxh128" || name == "xxh3_128") return std::make_unique<Xxh3Hash>(true);
  const char* const digest = DigestName(name);
  if (digest == nullptr) return nullptr;
  EVP_MD* const md = EVP_MD_fetch(nullptr, digest, nullptr);
  if (md == nullptr) return nullptr;
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
  const bool begun = context != nullptr && EVP_DigestInit_ex(context, md, nullptr) == 1;
  EVP_MD_free(md);
  if (begun) return std::make_unique<DigestHash>(context);
  EVP_MD_CTX_free(context);
  return nullptr;
}

}  // namespace millrace
