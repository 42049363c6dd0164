#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/byte_reader.h"
#include "shard/sample_name.h"

namespace millrace::index_format {

/// Reads the parts of a block, of a table or of the names of an index.
class Decoder : public ByteReader {
 public:
  using ByteReader::ByteReader;

  /// Reads a front-coded key; `key` holds the one before.
  void Key(std::string* key) {
    const uint64_t shared = Varint();
    const uint64_t length = Varint();
    const std::string_view rest = Text(length);
    if (!ok() || shared > key->size() || shared + rest.size() > kMaxNameBytes) return Fail();
    key->resize(shared);
    key->append(rest);
  }
};

}  // namespace millrace::index_format
