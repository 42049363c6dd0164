#pragma once

#include <memory>

#include "base/crypto.h"

namespace millrace {

/// Holds a key of HMAC-SHA-256 that signs many texts: what follows from the key alone is computed once.
class HmacKey {
 public:
  explicit HmacKey(ByteSpan key);
  ~HmacKey();
  HmacKey(HmacKey&&) noexcept;
  HmacKey& operator=(HmacKey&&) noexcept;

  /// Returns HmacSha256 of the key.
  Sha256Digest Sign(ByteSpan data) const;
  /// Returns a key that signs texts which all begin in the same way: its Sign takes what follows `beginning`.
  HmacKey After(ByteSpan beginning) const;

 private:
  struct State;
  explicit HmacKey(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace millrace
