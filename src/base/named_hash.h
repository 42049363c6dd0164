#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace millrace {

/// Computes a hash of a stream that another program has chosen by name, as Python's hashlib and xxhash call them: md5,
/// sha1, sha256, sha3_256, blake2b, xxh64, xxh3_64, xxh128 and others. It serves for noticing damage, never for
/// security. Not thread-safe.
class NamedHash {
 public:
  /// Returns null if the name is not known, or if this host has no such hash (FIPS).
  static std::unique_ptr<NamedHash> Make(std::string_view name);
  virtual ~NamedHash() = default;

  virtual void Update(ByteSpan data) = 0;
  /// Returns lower-case hexadecimal digits, as hexdigest() writes them. Call it once, at the end.
  virtual std::string Finish() = 0;
};

}  // namespace millrace
