#pragma once

#include <cstdint>

namespace millrace {

/// Divides by a number that is fixed for long, without the division instruction. Trivially copyable.
class Divider {
 public:
  struct Result {
    uint64_t quotient = 0;
    uint64_t remainder = 0;
  };

  constexpr Divider() = default;
  /// divisor > 0.
  explicit constexpr Divider(uint64_t divisor) : divisor_(divisor), reciprocal_(UINT64_MAX / divisor) {}

  constexpr uint64_t divisor() const { return divisor_; }

  /// Exact for value < 2^62: the reciprocal is too small by less than 2^-63 of itself and one rounding, so that the
  /// first quotient is right or one too small.
  constexpr Result Divide(uint64_t value) const {
    uint64_t quotient = static_cast<uint64_t>((static_cast<unsigned __int128>(value) * reciprocal_) >> 64);
    uint64_t remainder = value - quotient * divisor_;
    const bool low = remainder >= divisor_;
    quotient += low ? 1 : 0;
    remainder -= low ? divisor_ : 0;
    return {quotient, remainder};
  }

 private:
  uint64_t divisor_ = 1;
  uint64_t reciprocal_ = UINT64_MAX;
};

}  // namespace millrace
