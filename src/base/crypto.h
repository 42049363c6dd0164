#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/hex.h"

/// Hashes and checksums. Cryptographic ones are OpenSSL's, CRC32C is ISA-L's, XXH3 is xxHash's.

namespace millrace {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest Sha256(ByteSpan data);
Sha256Digest HmacSha256(ByteSpan key, ByteSpan data);
std::array<uint8_t, 16> Md5(ByteSpan data);
/// Computes SHA-1 for names that other programs form by it, never for security.
std::array<uint8_t, 20> Sha1(ByteSpan data);

/// Computes MD5 of a stream, for the ETags of objects that do not fit into memory. Not thread-safe.
class Md5Stream {
 public:
  /// Returns false on hosts in FIPS mode, which do not have MD5.
  static bool Available();
  Md5Stream();
  ~Md5Stream();
  Md5Stream(const Md5Stream&) = delete;
  Md5Stream& operator=(const Md5Stream&) = delete;
  void Update(ByteSpan data);
  std::array<uint8_t, 16> Finish();

 private:
  void* context_;  // EVP_MD_CTX; OpenSSL stays inside crypto.cc
};

/// Computes SHA-256 of a stream. Not thread-safe.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(const Sha256Stream&) = delete;
  Sha256Stream& operator=(const Sha256Stream&) = delete;
  void Update(ByteSpan data);
  /// Returns the digest of the bytes since the start or the last Finish; then begins again.
  Sha256Digest Finish();

 private:
  void* context_;  // EVP_MD_CTX
};

/// Returns CRC32 of zlib and gzip: Crc32("123456789") = 0xcbf43926. `crc` continues an earlier result.
uint32_t Crc32(ByteSpan data, uint32_t crc = 0);

/// Returns CRC-64/NVME, a checksum of S3: Crc64Nvme("123456789") = 0xae8b14860a799888. `crc` continues an earlier
/// result.
uint64_t Crc64Nvme(ByteSpan data, uint64_t crc = 0);

/// Returns CRC32C (Castagnoli), as in RFC 3720: Crc32c("123456789") = 0xe3069283. `crc` continues an earlier result.
uint32_t Crc32c(ByteSpan data, uint32_t crc = 0);

uint64_t Xxh3(ByteSpan data, uint64_t seed = 0);

/// Holds a 128-bit number; addition wraps modulo 2^128.
struct Uint128 {
  uint64_t high = 0;
  uint64_t low = 0;

  Uint128& operator+=(Uint128 other) {
    low += other.low;
    high += other.high + (low < other.low ? 1 : 0);
    return *this;
  }
  friend bool operator==(const Uint128&, const Uint128&) = default;

  /// Returns 32 lower-case hex digits, high half first.
  std::string Hex() const;
};

/// Computes XXH3-128 of a stream, seed 0. Not thread-safe; Reset() begins again.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  Xxh3Stream(const Xxh3Stream&) = delete;
  Xxh3Stream& operator=(const Xxh3Stream&) = delete;
  void Reset();
  void Update(ByteSpan data);
  void UpdateLe64(uint64_t value);
  Uint128 Digest() const;

 private:
  void* state_;  // XXH3_state_t; xxHash stays inside crypto.cc
};

std::string Base64Encode(std::span<const uint8_t> bytes);

/// Returns bytes from the system's random generator, as hex; for temporary names and upload ids.
std::string RandomHex(size_t bytes);

/// Compares without leaking the place of the first difference.
bool EqualConstantTime(std::string_view a, std::string_view b);

}  // namespace millrace
