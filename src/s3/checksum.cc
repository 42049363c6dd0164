#include "s3/checksum.h"

#include <array>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/hex.h"
#include "s3/etag.h"

namespace millrace {

namespace {

using Kind = ObjectChecksum::Kind;

struct Header {
  std::string_view name;
  Kind kind;
  size_t bytes;
};
// The cheapest first.
constexpr std::array kHeaders = {Header{"x-amz-checksum-crc32c", Kind::kCrc32c, 4},
                                 Header{"x-amz-checksum-crc32", Kind::kCrc32, 4},
                                 Header{"x-amz-checksum-crc64nvme", Kind::kCrc64Nvme, 8}};

std::string BigEndian(uint64_t value, size_t bytes) {
  std::string out(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) out[bytes - 1 - i] = static_cast<char>(value >> (8 * i));
  return out;
}

// Objects that are encrypted with keys of a key service, or of the client, have other ETags.
bool EtagMayBeMd5(const HttpHeaders& headers) {
  const std::string_view encryption = headers.Find("x-amz-server-side-encryption").value_or("");
  return !absl::StartsWith(ToAbsl(encryption), "aws:kms") &&
         !headers.Has("x-amz-server-side-encryption-customer-algorithm");
}

}  // namespace

std::optional<ObjectChecksum> WholeObjectChecksum(const HttpHeaders& headers) {
  const std::string_view type = headers.Find("x-amz-checksum-type").value_or("FULL_OBJECT");
  for (const Header& header : kHeaders) {
    const std::optional<std::string_view> value = headers.Find(header.name);
    if (!value || type != "FULL_OBJECT" || value->find('-') != value->npos) continue;
    std::string digest;
    if (absl::Base64Unescape(ToAbsl(*value), &digest) && digest.size() == header.bytes)
      return ObjectChecksum{header.kind, std::move(digest)};
  }
  if (!EtagMayBeMd5(headers) || !Md5Stream::Available()) return std::nullopt;
  std::optional<std::string> md5 = HexDecode(StripETagQuotes(headers.Find("etag").value_or("")));
  if (!md5 || md5->size() != 16) return std::nullopt;
  return ObjectChecksum{Kind::kMd5, *std::move(md5)};
}

DigestStream::DigestStream(Kind kind) : kind_(kind) {
  if (kind == Kind::kMd5) md5_ = std::make_unique<Md5Stream>();
}

void DigestStream::Update(ByteSpan bytes) {
  switch (kind_) {
    case Kind::kCrc32:
      crc_ = Crc32(bytes, static_cast<uint32_t>(crc_));
      break;
    case Kind::kCrc32c:
      crc_ = Crc32c(bytes, static_cast<uint32_t>(crc_));
      break;
    case Kind::kCrc64Nvme:
      crc_ = Crc64Nvme(bytes, crc_);
      break;
    case Kind::kMd5:
      md5_->Update(bytes);
      break;
  }
}

std::string DigestStream::Finish() {
  if (kind_ == Kind::kMd5) {
    const auto digest = md5_->Finish();
    return {digest.begin(), digest.end()};
  }
  return BigEndian(crc_, kind_ == Kind::kCrc64Nvme ? 8 : 4);
}

std::string DigestOf(Kind kind, ByteSpan bytes) {
  DigestStream stream(kind);
  stream.Update(bytes);
  return stream.Finish();
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
