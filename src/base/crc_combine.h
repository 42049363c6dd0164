#pragma once

#include <cstdint>

/// Computes the CRC of bytes from the CRCs of two pieces, so that pieces may be hashed in any order and in parallel.

namespace millrace {

/// Returns the CRC of A followed by B, where `first` is that of A and `second` that of B, which has `second_bytes`
/// bytes. The CRCs are those of base/crypto.h. It takes some microseconds, whatever the length.
uint32_t Crc32Combine(uint32_t first, uint32_t second, uint64_t second_bytes);
uint32_t Crc32cCombine(uint32_t first, uint32_t second, uint64_t second_bytes);
uint64_t Crc64NvmeCombine(uint64_t first, uint64_t second, uint64_t second_bytes);

}  // namespace millrace
