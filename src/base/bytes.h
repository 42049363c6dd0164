#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

/// This header has views of raw bytes, byte ranges of objects, and little-endian numbers. Nothing here owns memory.

namespace millrace {

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

inline ByteSpan AsBytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline MutableByteSpan AsWritableBytes(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()), text.size()};
}
inline std::string_view AsText(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The range is `length` bytes of an object from `offset` on.
struct ByteRange {
  uint64_t offset = 0;
  uint64_t length = 0;

  uint64_t end() const { return offset + length; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

static_assert(std::endian::native == std::endian::little, "the formats are little-endian; add swaps to port");

/// Reads a little-endian number from unaligned memory. `T` is an unsigned integer.
template <typename T>
T LoadLe(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
void StoreLe(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

/// Appends a little-endian number to `out`.
template <typename T>
void AppendLe(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// These are for LEB128, the variable-length integer of the index format. It takes at most ten bytes.
void AppendVarint(std::string& out, uint64_t value);

/// Reads a varint at `*pos` and advances it. False when the bytes end early or the number exceeds 64 bits.
bool ReadVarint(ByteSpan bytes, size_t* pos, uint64_t* value);

}  // namespace millrace
