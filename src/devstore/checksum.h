#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/crypto.h"
#include "base/status.h"

namespace millrace {

/// These are the additional checksums of S3 that devstore supports. (SHA-1 and the newest ones are refused with
/// NotImplemented.)
enum class ChecksumAlgorithm { kCrc32, kCrc32c, kCrc64Nvme, kSha256 };

inline constexpr std::array kChecksumAlgorithms = {ChecksumAlgorithm::kCrc32, ChecksumAlgorithm::kCrc32c,
                                                   ChecksumAlgorithm::kCrc64Nvme, ChecksumAlgorithm::kSha256};

/// Returns "CRC32", "CRC32C", "CRC64NVME", "SHA256": in x-amz-checksum-algorithm, and after "Checksum" in XML.
std::string_view ChecksumName(ChecksumAlgorithm algorithm);
/// Returns "x-amz-checksum-crc32" ...
std::string_view ChecksumHeader(ChecksumAlgorithm algorithm);
/// Finds it by name (any case) or header (lower case).
std::optional<ChecksumAlgorithm> FindChecksumAlgorithm(std::string_view name_or_header);

struct Checksum {
  ChecksumAlgorithm algorithm = ChecksumAlgorithm::kCrc32;
  std::string value;       // base64; if it is composite, with "-" and the number of parts after it
  bool composite = false;  // a checksum of the parts' checksums
};

/// Computes a checksum of a stream. Not thread-safe.
class ChecksumStream {
 public:
  explicit ChecksumStream(ChecksumAlgorithm algorithm) : algorithm_(algorithm) {}
  void Update(ByteSpan bytes);
  /// Returns big-endian bytes in base64.
  std::string Finish();
  ChecksumAlgorithm algorithm() const { return algorithm_; }

 private:
  const ChecksumAlgorithm algorithm_;
  uint64_t crc_ = 0;
  Sha256Stream sha256_;
};

/// Returns the checksum of a multipart object from those of its parts (base64), in order. Returns InvalidRequest if one
/// is not valid base64.
absl::StatusOr<std::string> CompositeChecksum(ChecksumAlgorithm algorithm, const std::vector<std::string>& parts);

/// Describes a part of an object and its checksum (base64; "" if it does not have one).
struct PartChecksum {
  std::string value;
  uint64_t bytes = 0;
};

/// Returns the checksum of all bytes of a multipart object from those of its parts, in order. Returns nullopt if it
/// does not follow from them: for SHA-256, and if one is missing or not valid.
std::optional<std::string> JoinedChecksum(ChecksumAlgorithm algorithm, const std::vector<PartChecksum>& parts);

}  // namespace millrace
