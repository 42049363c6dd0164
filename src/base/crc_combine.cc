#include "base/crc_combine.h"

namespace millrace {

namespace {

// A CRC is a polynomial over GF(2), reflected: the highest bit is the coefficient of x^0. Appending n bytes multiplies
// it by x^8n modulo the CRC's polynomial; that all of them begin and end with an inversion cancels out.

/// a * b modulo `polynomial`.
template <typename T>
T Multiply(T a, T b, T polynomial) {
  T product = 0;
  for (T term = T{1} << (sizeof(T) * 8 - 1); term != 0; term >>= 1) {
    if ((a & term) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? polynomial : 0);
  }
  return product;
}

template <typename T>
T Combine(T first, T second, uint64_t second_bytes, T polynomial) {
  T power = T{1} << (sizeof(T) * 8 - 1 - 8);  // x^8, then its squares
  for (; second_bytes != 0; second_bytes >>= 1) {
    if ((second_bytes & 1) != 0) first = Multiply(first, power, polynomial);
    power = Multiply(power, power, polynomial);
  }
  return first ^ second;
}

}  // namespace

uint32_t Crc32Combine(uint32_t first, uint32_t second, uint64_t second_bytes) {
  return Combine<uint32_t>(first, second, second_bytes, 0xedb88320);
}

uint32_t Crc32cCombine(uint32_t first, uint32_t second, uint64_t second_bytes) {
  return Combine<uint32_t>(first, second, second_bytes, 0x82f63b78);
}

uint64_t Crc64NvmeCombine(uint64_t first, uint64_t second, uint64_t second_bytes) {
  return Combine<uint64_t>(first, second, second_bytes, 0x9a6c9329ac4bc9b5);
}

}  // namespace millrace
