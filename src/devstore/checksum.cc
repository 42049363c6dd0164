#include "devstore/checksum.h"

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "base/crc_combine.h"
#include "devstore/s3_error.h"

namespace millrace {

namespace {

template <typename T>
std::string BigEndianBase64(T value) {
  std::array<uint8_t, sizeof(T)> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * (bytes.size() - 1 - i)));
  return Base64Encode(bytes);
}

}  // namespace

std::string_view ChecksumName(ChecksumAlgorithm algorithm) {
  switch (algorithm) {
    case ChecksumAlgorithm::kCrc32:
      return "CRC32";
    case ChecksumAlgorithm::kCrc32c:
      return "CRC32C";
    case ChecksumAlgorithm::kCrc64Nvme:
      return "CRC64NVME";
    case ChecksumAlgorithm::kSha256:
      return "SHA256";
  }
  return "";
}

std::string_view ChecksumHeader(ChecksumAlgorithm algorithm) {
  switch (algorithm) {
    case ChecksumAlgorithm::kCrc32:
      return "x-amz-checksum-crc32";
    case ChecksumAlgorithm::kCrc32c:
      return "x-amz-checksum-crc32c";
    case ChecksumAlgorithm::kCrc64Nvme:
      return "x-amz-checksum-crc64nvme";
    case ChecksumAlgorithm::kSha256:
      return "x-amz-checksum-sha256";
  }
  return "";
}

std::optional<ChecksumAlgorithm> FindChecksumAlgorithm(std::string_view name_or_header) {
  for (const ChecksumAlgorithm algorithm : kChecksumAlgorithms) {
    if (absl::EqualsIgnoreCase(ToAbsl(name_or_header), ToAbsl(ChecksumName(algorithm))) ||
        name_or_header == ChecksumHeader(algorithm)) {
      return algorithm;
    }
  }
  return std::nullopt;
}

void ChecksumStream::Update(ByteSpan bytes) {
  switch (algorithm_) {
    case ChecksumAlgorithm::kCrc32:
      crc_ = Crc32(bytes, static_cast<uint32_t>(crc_));
      break;
    case ChecksumAlgorithm::kCrc32c:
      crc_ = Crc32c(bytes, static_cast<uint32_t>(crc_));
      break;
    case ChecksumAlgorithm::kCrc64Nvme:
      crc_ = Crc64Nvme(bytes, crc_);
      break;
    case ChecksumAlgorithm::kSha256:
      sha256_.Update(bytes);
      break;
  }
}

std::string ChecksumStream::Finish() {
  switch (algorithm_) {
    case ChecksumAlgorithm::kCrc32:
    case ChecksumAlgorithm::kCrc32c:
      return BigEndianBase64(static_cast<uint32_t>(crc_));
    case ChecksumAlgorithm::kCrc64Nvme:
      return BigEndianBase64(crc_);
    case ChecksumAlgorithm::kSha256:
      break;
  }
  return Base64Encode(sha256_.Finish());
}

absl::StatusOr<std::string> CompositeChecksum(ChecksumAlgorithm algorithm, const std::vector<std::string>& parts) {
  ChecksumStream stream(algorithm);
  for (const std::string& part : parts) {
    std::string raw;
    if (!absl::Base64Unescape(part, &raw))
      return S3Error(s3code::kInvalidRequest, "A part's checksum is not valid base64");
    stream.Update(AsBytes(raw));
  }
  return stream.Finish() + "-" + std::to_string(parts.size());
}

std::optional<std::string> JoinedChecksum(ChecksumAlgorithm algorithm, const std::vector<PartChecksum>& parts) {
  const bool is_wide = algorithm == ChecksumAlgorithm::kCrc64Nvme;
  if (algorithm == ChecksumAlgorithm::kSha256) return std::nullopt;
  uint64_t joined = 0;
  for (const PartChecksum& part : parts) {
    std::string raw;
    if (!absl::Base64Unescape(part.value, &raw) || raw.size() != (is_wide ? sizeof(uint64_t) : sizeof(uint32_t)))
      return std::nullopt;
    uint64_t crc = 0;
    for (const char c : raw) crc = crc << 8 | static_cast<uint8_t>(c);
    const auto first = static_cast<uint32_t>(joined);
    const auto second = static_cast<uint32_t>(crc);
    if (is_wide) {
      joined = Crc64NvmeCombine(joined, crc, part.bytes);
    } else {
      joined = algorithm == ChecksumAlgorithm::kCrc32 ? Crc32Combine(first, second, part.bytes)
                                                      : Crc32cCombine(first, second, part.bytes);
    }
  }
  return is_wide ? BigEndianBase64(joined) : BigEndianBase64(static_cast<uint32_t>(joined));
}

}  // namespace millrace
