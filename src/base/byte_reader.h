#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace millrace {

/// Appends a text as Text(Varint()) of a ByteReader reads it.
inline void AppendText(std::string& out, std::string_view text) {
  AppendVarint(out, text.size());
  out.append(text);
}

/// Reads bytes that may be damaged. Once something does not fit, ok() is false, and every further read returns
/// 0 or no bytes.
class ByteReader {
 public:
  explicit ByteReader(ByteSpan bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return pos_ == bytes_.size(); }
  size_t left() const { return bytes_.size() - pos_; }
  void Fail() { ok_ = false; }

  uint64_t Varint() {
    // Nearly all take one byte, most others two; the general case stays out of line.
    if (ok_ && pos_ < bytes_.size() && static_cast<uint8_t>(bytes_[pos_]) < 0x80)
      return static_cast<uint8_t>(bytes_[pos_++]);
    if (ok_ && bytes_.size() - pos_ > 1 && static_cast<uint8_t>(bytes_[pos_ + 1]) - 1U < 0x7f) {
      pos_ += 2;
      return (static_cast<uint64_t>(bytes_[pos_ - 2]) & 0x7f) | static_cast<uint64_t>(bytes_[pos_ - 1]) << 7;
    }
    uint64_t value = 0;
    if (!ok_ || !ReadVarint(bytes_, &pos_, &value)) {
      ok_ = false;
      return 0;
    }
    return value;
  }

  ByteSpan Bytes(uint64_t length) {
    if (!ok_ || length > bytes_.size() - pos_) {
      ok_ = false;
      return {};
    }
    const ByteSpan bytes = bytes_.subspan(pos_, length);
    pos_ += length;
    return bytes;
  }

  std::string_view Text(uint64_t length) { return AsText(Bytes(length)); }

  uint32_t U32() {
    const ByteSpan bytes = Bytes(sizeof(uint32_t));
    return ok_ ? LoadLe<uint32_t>(bytes.data()) : 0;
  }

 private:
  ByteSpan bytes_;
  size_t pos_ = 0;
  bool ok_ = true;
};

}  // namespace millrace
