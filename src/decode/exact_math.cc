#include "decode/exact_math.h"

#include <cmath>
#include <numbers>

namespace millrace {

int64_t RoundToEven(double x) {
  const double floor = std::floor(x);
  const double rest = x - floor;
  const auto whole = static_cast<int64_t>(floor);
  if (rest != 0.5) return whole + (rest > 0.5 ? 1 : 0);
  return whole + whole % 2;
}

// Computes the result from the bits of u, with square roots alone.
double LogUniform(double low, double high, double u) {
  double value = low;
  double root = high / low;
  for (int bit = 0; bit < 32; ++bit) {
    root = std::sqrt(root);
    u *= 2;
    if (u >= 1) {
      u -= 1;
      value *= root;
    }
  }
  return value;
}

double ExpOfMinus(double x) {
  if (x > 700) return 0;
  int halvings = 0;
  for (; x > 0.5; x /= 2) ++halvings;
  double sum = 1;
  double term = 1;
  for (int i = 1; i < 18; ++i) {
    term *= -x / i;
    sum += term;
  }
  for (; halvings > 0; --halvings) sum *= sum;
  return sum;
}

SineAndCosine SineAndCosineOf(double degrees) {
  const double x = degrees / 180 * std::numbers::pi;
  SineAndCosine result;
  double term = x;
  double other = 1;
  result.sine = x;
  for (int i = 2; i < 60; i += 2) {
    other *= -x * x / ((i - 1.0) * i);
    term *= -x * x / (i * (i + 1.0));
    result.cosine += other;
    result.sine += term;
  }
  return result;
}

}  // namespace millrace
