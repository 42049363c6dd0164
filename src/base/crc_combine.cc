#include "base/crc_combine.h"

#include <array>
#include <cstddef>

namespace millrace {

namespace {

// A CRC is a polynomial over GF(2), reflected: the highest bit is the coefficient of x^0. Appending n bytes multiplies
// it by x^8n modulo the CRC's polynomial; that all of them begin and end with an inversion cancels out.

/// Returns a * b modulo `polynomial`.
template <typename T>
constexpr T Multiply(T a, T b, T polynomial) {
  T product = 0;
  for (T term = T{1} << (sizeof(T) * 8 - 1); term != 0; term >>= 1) {
    if ((a & term) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? polynomial : 0);
  }
  return product;
}

/// x^8, and its squares: what appending one byte, two, four and so on multiplies by.
template <typename T>
constexpr std::array<T, 64> SquaresOfOneByte(T polynomial) {
  std::array<T, 64> squares{};
  T power = T{1} << (sizeof(T) * 8 - 1 - 8);
  for (T& square : squares) {
    square = power;
    power = Multiply(power, power, polynomial);
  }
  return squares;
}

template <typename T, T polynomial>
constexpr std::array<T, 64> kSquaresOfOneByte = SquaresOfOneByte(polynomial);

// Does one multiplication for each bit of the length: one alone if the pieces are as long as a power of two.
template <typename T, T polynomial>
T Combine(T first, T second, uint64_t second_bytes) {
  for (size_t i = 0; second_bytes != 0; second_bytes >>= 1, ++i) {
    if ((second_bytes & 1) != 0) first = Multiply(first, kSquaresOfOneByte<T, polynomial>[i], polynomial);
  }
  return first ^ second;
}

}  // namespace

uint32_t Crc32Combine(uint32_t first, uint32_t second, uint64_t second_bytes) {
  return Combine<uint32_t, 0xedb88320>(first, second, second_bytes);
}

uint32_t Crc32cCombine(uint32_t first, uint32_t second, uint64_t second_bytes) {
  return Combine<uint32_t, 0x82f63b78>(first, second, second_bytes);
}

uint64_t Crc64NvmeCombine(uint64_t first, uint64_t second, uint64_t second_bytes) {
  return Combine<uint64_t, 0x9a6c9329ac4bc9b5>(first, second, second_bytes);
}

}  // namespace millrace
