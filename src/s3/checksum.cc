#include "s3/checksum.h"

#include <array>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/crc_combine.h"
#include "base/crypto.h"
#include "base/hex.h"
#include "base/number.h"
#include "s3/etag.h"

namespace millrace {

namespace {

using Kind = ObjectChecksum::Kind;

struct Header {
  std::string_view name;
  Kind kind;
  size_t bytes;
};
// The cheapest is first.
constexpr std::array kHeaders = {Header{"x-amz-checksum-crc32c", Kind::kCrc32c, 4},
                                 Header{"x-amz-checksum-crc32", Kind::kCrc32, 4},
                                 Header{"x-amz-checksum-crc64nvme", Kind::kCrc64Nvme, 8}};

std::string BigEndian(uint64_t value, size_t bytes) {
  std::string out(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) out[bytes - 1 - i] = static_cast<char>(value >> (8 * i));
  return out;
}

/// Returns the number of parts after a composite checksum: 3 of "-3". Returns 0 if it is not composite.
uint32_t PartCount(std::string_view text) {
  return ParseNumber<uint32_t>(text.substr(1)).value_or(0);
}

std::optional<ObjectChecksum> FindChecksum(const HttpHeaders& headers, bool composite = false) {
  for (const Header& header : kHeaders) {
    const std::string_view value = headers.Find(header.name).value_or("");
    const size_t dash = value.find('-');
    if (value.empty() || (dash != value.npos) != composite) continue;
    ObjectChecksum found{.kind = header.kind, .digest = {}};
    if (!absl::Base64Unescape(ToAbsl(value.substr(0, dash)), &found.digest) || found.digest.size() != header.bytes)
      continue;
    if (composite) found.parts = PartCount(value.substr(dash));
    if (composite == (found.parts > 0)) return found;
  }
  return std::nullopt;
}

// Objects that are encrypted with keys of a key service, or of the client, have other ETags.
bool EtagMayBeMd5(const HttpHeaders& headers) {
  const std::string_view encryption = headers.Find("x-amz-server-side-encryption").value_or("");
  return !absl::StartsWith(ToAbsl(encryption), "aws:kms") &&
         !headers.Has("x-amz-server-side-encryption-customer-algorithm");
}

}  // namespace

std::optional<ObjectChecksum> WholeObjectChecksum(const HttpHeaders& headers) {
  if (headers.Find("x-amz-checksum-type").value_or("FULL_OBJECT") == "FULL_OBJECT") {
    if (auto found = FindChecksum(headers)) return found;
  }
  if (!EtagMayBeMd5(headers) || !Md5Stream::Available()) return std::nullopt;
  std::optional<std::string> md5 = HexDecode(StripETagQuotes(headers.Find("etag").value_or("")));
  if (!md5 || md5->size() != 16) return std::nullopt;
  return ObjectChecksum{Kind::kMd5, *std::move(md5)};
}

std::optional<ObjectChecksum> CompositeChecksum(const HttpHeaders& headers) {
  if (headers.Find("x-amz-checksum-type") != "COMPOSITE") return std::nullopt;
  return FindChecksum(headers, /*composite=*/true);
}

std::optional<ObjectChecksum> PartChecksum(const HttpHeaders& headers) {
  if (headers.Find("x-amz-checksum-type") != "COMPOSITE") return std::nullopt;
  return FindChecksum(headers);
}

uint64_t CrcOf(Kind kind, ByteSpan bytes) {
  switch (kind) {
    case Kind::kCrc32:
      return Crc32(bytes);
    case Kind::kCrc32c:
      return Crc32c(bytes);
    case Kind::kCrc64Nvme:
      return Crc64Nvme(bytes);
    case Kind::kMd5:
      break;
  }
  return 0;
}

uint64_t CombineCrcs(Kind kind, uint64_t first, uint64_t second, uint64_t second_bytes) {
  switch (kind) {
    case Kind::kCrc32:
      return Crc32Combine(static_cast<uint32_t>(first), static_cast<uint32_t>(second), second_bytes);
    case Kind::kCrc32c:
      return Crc32cCombine(static_cast<uint32_t>(first), static_cast<uint32_t>(second), second_bytes);
    case Kind::kCrc64Nvme:
      return Crc64NvmeCombine(first, second, second_bytes);
    case Kind::kMd5:
      break;
  }
  return 0;
}

std::string CrcDigest(Kind kind, uint64_t crc) {
  return BigEndian(crc, kind == Kind::kCrc64Nvme ? 8 : 4);
}

uint64_t CrcOfDigest(std::string_view digest) {
  uint64_t crc = 0;
  for (const char byte : digest) crc = crc << 8 | static_cast<uint8_t>(byte);
  return crc;
}

std::string DigestOf(Kind kind, ByteSpan bytes) {
  if (kind != Kind::kMd5) return CrcDigest(kind, CrcOf(kind, bytes));
  const auto digest = Md5(bytes);
  return {digest.begin(), digest.end()};
}

std::string_view ChecksumKindName(Kind kind) {
  switch (kind) {
    case Kind::kCrc32:
      return "CRC32";
    case Kind::kCrc32c:
      return "CRC32C";
    case Kind::kCrc64Nvme:
      return "CRC64NVME";
    case Kind::kMd5:
      return "MD5";
  }
  return "";
}

std::string ChecksumHeaderName(Kind kind) {
  return absl::StrCat("x-amz-checksum-", absl::AsciiStrToLower(ToAbsl(ChecksumKindName(kind))));
}

std::string ChecksumHeaderValue(const ObjectChecksum& checksum) {
  const std::string& digest = checksum.digest;
  return Base64Encode(std::span(reinterpret_cast<const uint8_t*>(digest.data()), digest.size()));
}

std::string Crc32cHeader(uint32_t crc) {
  return ChecksumHeaderValue({Kind::kCrc32c, BigEndian(crc, 4)});
}

}  // namespace millrace
