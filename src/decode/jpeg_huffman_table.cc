#include "decode/jpeg_huffman_table.h"

#include <algorithm>
#include <cstring>

namespace millrace {

bool HuffmanTable::Build(const JHUFF_TBL& table, bool is_dc) {
  // Most files of a data set have the same ones.
  if (built_ && is_dc_ == is_dc && std::memcmp(source_.bits, table.bits, sizeof(table.bits)) == 0 &&
      std::memcmp(source_.huffval, table.huffval, sizeof(table.huffval)) == 0) {
    return false;
  }
  source_ = table;
  is_dc_ = is_dc;
  built_ = true;
  entries_.fill({});
  uint32_t code = 0;
  int place = 0;
  for (int length = 1; length <= kLongestCode; ++length) {
    const auto at = static_cast<size_t>(length);
    offset_[at] = place - static_cast<int>(code);
    for (int i = 0; i < table.bits[at]; ++i, ++code, ++place) {
      if (length <= kHuffmanLookBits) Fill(code, length, table.huffval[place]);
    }
    limit_[at] = code << (kLongestCode - length);
    code <<= 1;
  }
  return true;
}

void HuffmanTable::Fill(uint32_t code, int length, uint8_t symbol) {
  const int rest = kHuffmanLookBits - length;
  HuffmanEntry* const first = &entries_[code << rest];
  const int size = symbol & 15;
  if (size > rest) {
    std::fill_n(first, size_t{1} << rest, HuffmanEntry{symbol, 0, static_cast<uint8_t>(length)});
    return;
  }
  const auto bits = static_cast<uint8_t>(HuffmanEntry::kWhole | (length + size));
  // Codes without a number store a zero where there is one already.
  const bool ends = size == 0 && symbol != kSixteenZeros;
  const auto run = static_cast<uint8_t>(is_dc_ ? 0 : ends ? kRunToTheEnd : symbol >> 4);
  const size_t each = size_t{1} << (rest - size);
  for (uint32_t number = 0; number < (1U << size); ++number) {
    const int value = size == 0 ? 0 : Extend(number, size);
    std::fill_n(first + number * each, each, HuffmanEntry{static_cast<int16_t>(value), run, bits});
  }
}

void HuffmanPairs::Build(const JHUFF_TBL& table) {
  if (!codes.Build(table, false)) return;
  for (size_t at = 0; at < pairs.size(); ++at) {
    const HuffmanEntry one = codes[at];
    HuffmanPair& pair = pairs[at];
    pair = {};
    if (!one.is_whole()) continue;
    const auto length = static_cast<uint8_t>(one.length());
    pair = {one.value, one.value, one.run, 0, length, length};
    if (one.run == kRunToTheEnd) continue;  // what follows belongs to another block
    // Bits that are not known are zeros here; what is whole without them is so with any.
    const HuffmanEntry two = codes[(at << length) % pairs.size()];
    if (!two.is_whole() || length + two.length() > kHuffmanLookBits) continue;
    pair.second = two.value;
    pair.step = static_cast<uint8_t>(1 + two.run);
    pair.bits = static_cast<uint8_t>(length + two.length());
  }
}

}  // namespace millrace
