#pragma once

#include <cstdint>
#include <string_view>

/// RecordIO (dmlc) consists of parts, each u32 magic, u32 kind and length, the data, and zeros up to a multiple of four
/// bytes. If the data of a record hold the magic at a multiple of four, the record is cut there and the magic left out.
/// The head of the next part stands for it. So a reader that has lost its place can look for the magic.

namespace millrace {

inline constexpr uint32_t kRecordIoMagic = 0xced7230a;
inline constexpr uint64_t kRecordIoHeadBytes = 8;
inline constexpr uint64_t kRecordIoAlignment = 4;
inline constexpr uint32_t kRecordIoLengthBits = 29;
inline constexpr uint32_t kRecordIoMaxLength = (1U << kRecordIoLengthBits) - 1;  // of a part

/// This is the kind of a part, in the top bits of its second number.
enum class RecordIoPart : uint32_t { kWhole = 0, kFirst = 1, kMiddle = 2, kLast = 3 };

/// MXNet's header of a record's data has u32 flag, f32 label, u64 id, u64 id2. For a flag above 0, that many labels of
/// type f32 follow, and label is 0.
inline constexpr uint64_t kIrHeaderBytes = 24;
inline constexpr uint64_t kIrLabelOffset = 4;
inline constexpr uint64_t kIrLabelBytes = 4;

/// This field holds several labels; a single one is the field `cls`.
inline constexpr std::string_view kLabelsField = "labels";

constexpr uint64_t RecordIoPadded(uint64_t length) {
  return (length + kRecordIoAlignment - 1) / kRecordIoAlignment * kRecordIoAlignment;
}

}  // namespace millrace
