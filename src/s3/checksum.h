#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/crypto.h"
#include "net/http_message.h"
#include "s3/object.h"

/// The checksums of whole objects that stores keep. Source: Amazon S3 User Guide, "Checking object integrity".

namespace millrace {

/// What the head of an answer says of the whole object: CRC32C, CRC64NVME or CRC32 (x-amz-checksum-..., which S3 sends
/// when x-amz-checksum-mode asks for it), else an ETag that looks like the MD5 of an object put in one piece. nullopt
/// when there is none, or only one of the parts' checksums (COMPOSITE).
std::optional<ObjectChecksum> WholeObjectChecksum(const HttpHeaders& headers);

/// The checksum of bytes that come in order. Not thread-safe.
class DigestStream {
 public:
  explicit DigestStream(ObjectChecksum::Kind kind);
  void Update(ByteSpan bytes);
  /// The digest of what came so far, in the form of ObjectChecksum. Once.
  std::string Finish();

 private:
  ObjectChecksum::Kind kind_;
  uint64_t crc_ = 0;
  std::unique_ptr<Md5Stream> md5_;
};

/// As DigestStream gives it.
std::string DigestOf(ObjectChecksum::Kind kind, ByteSpan bytes);

/// "CRC32C", ...: for messages.
std::string_view ChecksumKindName(ObjectChecksum::Kind kind);

/// The header in which it is sent and comes, "x-amz-checksum-crc32c"; of CRCs only.
std::string ChecksumHeaderName(ObjectChecksum::Kind kind);
/// What stands there.
std::string ChecksumHeaderValue(const ObjectChecksum& checksum);

/// A CRC32C as x-amz-checksum-crc32c has it.
std::string Crc32cHeader(uint32_t crc);

}  // namespace millrace
