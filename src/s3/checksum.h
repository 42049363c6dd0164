#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "net/http_message.h"
#include "s3/object.h"

/// The checksums of objects, and of their parts, that stores keep. Source: Amazon S3 User Guide, "Checking object
/// integrity".

namespace millrace {

/// What the head of an answer says of the whole object: CRC32C, CRC64NVME or CRC32 (x-amz-checksum-..., which S3 sends
/// when x-amz-checksum-mode asks for it), else an ETag that looks like the MD5 of an object put in one piece. nullopt
/// if there is none, or only one of the parts' checksums (COMPOSITE).
std::optional<ObjectChecksum> WholeObjectChecksum(const HttpHeaders& headers);

/// The checksum of the parts' checksums (COMPOSITE), where that is what the store keeps of the whole object.
std::optional<ObjectChecksum> CompositeChecksum(const HttpHeaders& headers);

/// The checksum of the bytes of one part, from the answer to a range that is just that part. S3 tells it of objects
/// whose own is COMPOSITE; what comes without that word may be of something else, and is passed over.
std::optional<ObjectChecksum> PartChecksum(const HttpHeaders& headers);

/// The digest of `bytes`, in the form of ObjectChecksum.
std::string DigestOf(ObjectChecksum::Kind kind, ByteSpan bytes);

// Of all kinds but kMd5, as a number, which can be combined.
uint64_t CrcOf(ObjectChecksum::Kind kind, ByteSpan bytes);
/// The CRC of two pieces, the second of which has `second_bytes` bytes. That of nothing is 0.
uint64_t CombineCrcs(ObjectChecksum::Kind kind, uint64_t first, uint64_t second, uint64_t second_bytes);
std::string CrcDigest(ObjectChecksum::Kind kind, uint64_t crc);
/// The number again.
uint64_t CrcOfDigest(std::string_view digest);

/// "CRC32C", ...: for messages.
std::string_view ChecksumKindName(ObjectChecksum::Kind kind);

/// The header in which it is sent and comes, "x-amz-checksum-crc32c"; of CRCs only.
std::string ChecksumHeaderName(ObjectChecksum::Kind kind);
/// What stands there.
std::string ChecksumHeaderValue(const ObjectChecksum& checksum);

/// A CRC32C as x-amz-checksum-crc32c has it.
std::string Crc32cHeader(uint32_t crc);

}  // namespace millrace
