#pragma once

#include <cstdint>

/// Provides arithmetic that every machine does alike: built of operations that IEEE 754 defines exactly, because exp,
/// log and sin differ in the last digit between versions of the C library. (Its users are compiled with
/// -ffp-contract=off.)

namespace millrace {

/// Returns round(x) as Python does it, for x that is not negative: half to even.
int64_t RoundToEven(double x);

/// Returns low * (high / low)^u: log-uniform for a uniform u in [0, 1).
double LogUniform(double low, double high, double u);

/// Returns exp(-x) for x >= 0.
double ExpOfMinus(double x);

struct SineAndCosine {
  double sine = 0;
  double cosine = 1;
};
/// Takes an angle of at most half a turn.
SineAndCosine SineAndCosineOf(double degrees);

}  // namespace millrace
