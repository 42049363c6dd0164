#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "net/http_message.h"
#include "s3/object.h"

/// These functions handle the checksums of objects, and of their parts, that stores keep. Source: Amazon S3 User Guide,
/// "Checking object integrity".

namespace millrace {

/// Returns the checksum of the whole object in the head of an answer. It is CRC32C, CRC64NVME or CRC32, from the
/// headers x-amz-checksum-..., which S3 sends when x-amz-checksum-mode asks for them. Otherwise it is an ETag that
/// looks like the MD5 of an object put in one piece. Returns nullopt if there is none, or only one of the parts'
/// checksums (COMPOSITE).
std::optional<ObjectChecksum> WholeObjectChecksum(const HttpHeaders& headers);

/// Returns the checksum of the parts' checksums (COMPOSITE), if that is what the store keeps of the whole object.
std::optional<ObjectChecksum> CompositeChecksum(const HttpHeaders& headers);

/// Returns the checksum of the bytes of one part, from the answer to a range that is just that part. S3 sends it of
/// objects whose own is COMPOSITE. A checksum without that word may be of something else, and is passed over.
std::optional<ObjectChecksum> PartChecksum(const HttpHeaders& headers);

/// Returns the digest of `bytes`, in the form of ObjectChecksum.
std::string DigestOf(ObjectChecksum::Kind kind, ByteSpan bytes);

// Returns the CRC of any kind except kMd5, as a number, which can be combined.
uint64_t CrcOf(ObjectChecksum::Kind kind, ByteSpan bytes);
/// Returns the CRC of two pieces, the second of which has `second_bytes` bytes. The CRC of nothing is 0.
uint64_t CombineCrcs(ObjectChecksum::Kind kind, uint64_t first, uint64_t second, uint64_t second_bytes);
std::string CrcDigest(ObjectChecksum::Kind kind, uint64_t crc);
/// Returns the number again.
uint64_t CrcOfDigest(std::string_view digest);

/// Returns "CRC32C", ...: for messages.
std::string_view ChecksumKindName(ObjectChecksum::Kind kind);

/// Returns the header in which it is sent and comes, "x-amz-checksum-crc32c"; for CRCs only.
std::string ChecksumHeaderName(ObjectChecksum::Kind kind);
/// Returns the value of that header.
std::string ChecksumHeaderValue(const ObjectChecksum& checksum);

/// Returns a CRC32C as x-amz-checksum-crc32c has it.
std::string Crc32cHeader(uint32_t crc);

}  // namespace millrace
