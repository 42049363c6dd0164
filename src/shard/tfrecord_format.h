#pragma once

#include <cstdint>
#include <string_view>

#include "base/crypto.h"

/// TFRecord is u64 length, u32 masked CRC of these eight bytes, the data, u32 masked CRC of the data.

namespace millrace {

inline constexpr uint64_t kTfRecordHeadBytes = 12;
inline constexpr uint64_t kTfRecordFootBytes = 4;

/// This feature holds a sample's key.
inline constexpr std::string_view kKeyFeature = "__key__";

/// Returns the CRC32C as TFRecord stores it: a CRC over bytes that hold their own CRC would be no check of them.
inline uint32_t MaskedCrc32c(ByteSpan data) {
  const uint32_t crc = Crc32c(data);
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

}  // namespace millrace
