#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "decode/jpeg_internal.h"

/// These are the tables by which JpegHuffman decodes: one look-up gives one or two coefficients.

namespace millrace {

inline constexpr int kHuffmanLookBits = 10;
inline constexpr int kLongestCode = 16;
inline constexpr int kSixteenZeros = 0xF0;         // as a symbol
inline constexpr int kRunToTheEnd = DCTSIZE2 - 1;  // a run of zeros that ends any block

/// Returns a number of `size` bits, 1 to 15, as JPEG stores it: those that begin with a 0 are negative.
inline int Extend(uint32_t bits, int size) {
  const auto value = static_cast<int>(bits);
  return value < (1 << (size - 1)) ? value - (1 << size) + 1 : value;
}

/// Maps the next kHuffmanLookBits bits to their code.
struct HuffmanEntry {
  int16_t value;  // if the entry is whole, of the coefficient; else the symbol
  uint8_t run;    // of zeros before the coefficient
  uint8_t bits;   // if the entry is whole, of all of this; else of the code. 0: the code is longer, or there is none

  static constexpr uint8_t kWhole = 0x80;
  bool is_whole() const { return (bits & kWhole) != 0; }
  int length() const { return bits & 63; }  // as shifts take it by themselves
};

/// This is one Huffman table of a file.
class HuffmanTable {
 public:
  /// The table was checked by libjpeg. For differences of DC, a symbol is the size of a number, which may be 0. False
  /// if nothing has changed.
  bool Build(const JHUFF_TBL& table, bool is_dc);

  const HuffmanEntry& Look(uint64_t bits) const { return entries_[bits >> (64 - kHuffmanLookBits)]; }
  const HuffmanEntry& operator[](size_t look_up) const { return entries_[look_up]; }

  /// Finds the length and the symbol of a code that Look does not know. Returns 0 if there is no such code.
  int LookLong(uint64_t bits, int* symbol) const {
    const auto next = static_cast<uint32_t>(bits >> (64 - kLongestCode));
    for (int length = kHuffmanLookBits + 1; length <= kLongestCode; ++length) {
      const auto at = static_cast<size_t>(length);
      if (next >= limit_[at]) continue;
      *symbol = source_.huffval[static_cast<int>(next >> (kLongestCode - length)) + offset_[at]];
      return length;
    }
    return 0;
  }

 private:
  void Fill(uint32_t code, int length, uint8_t symbol);

  std::array<HuffmanEntry, 1 << kHuffmanLookBits> entries_;
  std::array<uint32_t, kLongestCode + 1> limit_;  // the first 16 bits that are no code of this length or a shorter one
  std::array<int, kLongestCode + 1> offset_;      // from a code of this length to the place of its symbol
  JHUFF_TBL source_;
  bool is_dc_;
  bool built_;
};

/// Holds one or two coefficients, as the next kHuffmanLookBits bits give them.
struct HuffmanPair {
  int16_t first;   // their values
  int16_t second;  // the first again if it is alone
  uint8_t run;     // of zeros before the first
  uint8_t step;    // places from the first to the second; 0: it is alone
  uint8_t first_bits;
  uint8_t bits;  // of both. 0: not even the first is whole
};

/// This is the table of a file for coefficients of AC: most codes are short, and each look-up waits for the one before
/// it.
struct HuffmanPairs {
  HuffmanTable codes;
  std::array<HuffmanPair, 1 << kHuffmanLookBits> pairs;

  void Build(const JHUFF_TBL& table);
  const HuffmanPair& Look(uint64_t bits) const { return pairs[bits >> (64 - kHuffmanLookBits)]; }
};

}  // namespace millrace
