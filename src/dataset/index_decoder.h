#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "shard/sample_name.h"

namespace millrace::index_format {

/// Reads the parts of a block, of a table or of the names of an index. Once something does not fit, ok() is false and
/// every further read gives nothing.
class Decoder {
 public:
  explicit Decoder(ByteSpan bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return pos_ == bytes_.size(); }
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

  std::string_view Bytes(uint64_t length) {
    if (!ok_ || length > bytes_.size() - pos_) {
      ok_ = false;
      return {};
    }
    const std::string_view text = AsText(bytes_.subspan(pos_, length));
    pos_ += length;
    return text;
  }

  uint32_t U32() {
    const std::string_view bytes = Bytes(sizeof(uint32_t));
    return ok_ ? LoadLe<uint32_t>(bytes.data()) : 0;
  }

  /// A front-coded key; `key` holds the one before.
  void Key(std::string* key) {
    const uint64_t shared = Varint();
    const uint64_t length = Varint();
    const std::string_view rest = Bytes(length);
    if (!ok_ || shared > key->size() || shared + rest.size() > kMaxNameBytes) {
      ok_ = false;
      return;
    }
    key->resize(shared);
    key->append(rest);
  }

 private:
  ByteSpan bytes_;
  size_t pos_ = 0;
  bool ok_ = true;
};

}  // namespace millrace::index_format
