#include "decode/jpeg_huffman.h"

#include <jerror.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "decode/jpeg_guard.h"
#include "decode/jpeg_huffman_table.h"
#include "decode/jpeg_internal.h"

namespace millrace {
namespace {

/// The codes of a block take at most this, with 15 bits for the number after each, and the bytes that are read ahead.
constexpr ptrdiff_t kBlockBytes = DCTSIZE2 * (kLongestCode + 15) / 8 + 16;
constexpr size_t kPaddingBytes = kBlockBytes + sizeof(uint64_t);
// Between two refills there are two entries that are whole, and any code with its number.
static_assert(2 * kHuffmanLookBits + kLongestCode + 15 <= 56);
constexpr size_t kBufferBytes = 16 << 10;
/// libjpeg does not notice so many bytes too much at the end of a scan: they fit into its buffer of bits.
constexpr ptrdiff_t kTolerated = 7;

/// A look-up begins within the block and adds at most two runs and two coefficients.
using Zigzag = std::array<uint8_t, 3 * DCTSIZE2>;

/// Gives the place of each coefficient in a block. Runs that lead beyond the block end at its last place, as in
/// libjpeg.
constexpr Zigzag MakeZigzag() {
  Zigzag places{};
  int x = 0;
  int y = 0;
  for (int i = 0; i < DCTSIZE2; ++i) {
    places[static_cast<size_t>(i)] = static_cast<uint8_t>(DCTSIZE * y + x);
    // The path goes up to the right, or down to the left; along the edge if there is no place beyond it.
    const bool rises = (x + y) % 2 == 0;
    int& forward = rises ? x : y;
    int& back = rises ? y : x;
    if (forward == DCTSIZE - 1) {
      ++back;
    } else {
      ++forward;
      if (back > 0) --back;
    }
  }
  for (size_t i = DCTSIZE2; i < places.size(); ++i) places[i] = DCTSIZE2 - 1;
  return places;
}
constexpr Zigzag kZigzag = MakeZigzag();

}  // namespace

// These are the types of members of JpegHuffman::State, whose linkage they share.

/// Holds the next bits, from the upper end on; below the first `count` of them are those that follow, or zeros.
struct HuffmanBits {
  uint64_t buffer = 0;
  int count = 0;
  const uint8_t* at = nullptr;

  /// Makes it at least 56. Reads eight bytes.
  void Refill() {
    uint64_t next;
    std::memcpy(&next, at, sizeof(next));
    if constexpr (std::endian::native == std::endian::little) next = __builtin_bswap64(next);
    buffer |= next >> count;
    at += (63 - count) >> 3;
    count |= 56;
  }
  void Drop(int bits) {
    buffer <<= bits;
    count -= bits;
  }
  /// Takes 1 to 32 bits.
  uint32_t Take(int bits) {
    const auto taken = static_cast<uint32_t>(buffer >> (64 - bits));
    Drop(bits);
    return taken;
  }
};

namespace {

// Inlined, it would take registers from the loop over coefficients: 4 % more instructions for a file.
__attribute__((cold, noinline)) void WarnJpeg(j_decompress_ptr jpeg, int code) {
  jpeg->err->msg_code = code;
  (*jpeg->err->emit_message)(reinterpret_cast<j_common_ptr>(jpeg), -1);
}

[[noreturn]] void LeaveJpeg(j_decompress_ptr jpeg, int code) {
  jpeg->err->msg_code = code;
  (*jpeg->err->error_exit)(reinterpret_cast<j_common_ptr>(jpeg));
  __builtin_unreachable();
}

/// Takes the symbol of an entry that is not whole. As in libjpeg, bits that are not a code pass for a 0 with the
/// longest code and the bit that showed it.
int TakeSymbol(j_decompress_ptr jpeg, const HuffmanTable& table, HuffmanEntry entry, HuffmanBits* in) {
  int symbol = entry.value;
  const int length = entry.bits != 0 ? entry.bits : table.LookLong(in->buffer, &symbol);
  if (length == 0) {
    WarnJpeg(jpeg, JWRN_HUFF_BAD_CODE);
    in->Drop(kLongestCode + 1);
    return 0;
  }
  in->Drop(length);
  return symbol;
}

}  // namespace

/// Describes one block of an MCU.
struct HuffmanBlock {
  const HuffmanTable* dc;
  const HuffmanPairs* ac;
  int component;
  bool needed;
};

/// libjpeg knows it by its first member.
struct JpegHuffman::State {
  jpeg_entropy_decoder base{};

  const uint8_t* source = nullptr;  // bytes that were not yet taken into the buffer
  const uint8_t* source_end = nullptr;
  bool ended = false;           // nothing of the source belongs to these codes
  int marker = 0;               // that ends them; 0: none was found
  bool short_of_codes = false;  // they ended before their MCUs did: the others up to the next restart stay empty
  bool doubled_ff = false;
  HuffmanBits bits;
  const uint8_t* end = nullptr;  // of what is in the buffer; if `ended`, zeros follow
  std::array<uint8_t, kBufferBytes + kPaddingBytes> buffer;

  unsigned interval = 0;    // MCUs between two restart markers; 0: there are none
  unsigned to_restart = 0;  // MCUs
  uint64_t left = 0;        // MCUs
  unsigned column = 0;      // of the next MCU
  unsigned columns = 0;
  unsigned first_wanted = 0;
  unsigned end_wanted = 0;
  size_t blocks = 0;  // of an MCU
  std::array<HuffmanBlock, D_MAX_BLOCKS_IN_MCU> kinds{};
  std::array<int, MAX_COMPS_IN_SCAN> last_dc{};
  std::array<HuffmanTable, NUM_HUFF_TBLS> dc_tables{};
  std::array<HuffmanPairs, NUM_HUFF_TBLS> ac_tables{};

  static boolean OnMcu(j_decompress_ptr jpeg, JBLOCKROW* to);
#ifdef __x86_64__
  // Its shifts by a variable take half the time, and each code waits for that of the one before it.
  __attribute__((target("bmi2"))) static boolean OnMcuWithBmi2(j_decompress_ptr jpeg, JBLOCKROW* to);
#endif
  static void OnAnotherScan(j_decompress_ptr jpeg) {
    LeaveJpeg(jpeg, JERR_EOI_EXPECTED);
  }

  void Start(j_decompress_ptr jpeg);
  void StartCodes(j_decompress_ptr jpeg);
  void EndCodes(j_decompress_ptr jpeg);
  void Fill();
  void RunShort(j_decompress_ptr jpeg);
  __attribute__((always_inline)) void DecodeMcu(j_decompress_ptr jpeg, JBLOCKROW* to);
  template <bool kStored>
  __attribute__((always_inline)) void DecodeBlock(j_decompress_ptr jpeg, const HuffmanBlock& kind, JCOEF* block);
};

void JpegHuffman::State::Start(j_decompress_ptr jpeg) {
  blocks = static_cast<size_t>(jpeg->blocks_in_MCU);
  for (size_t i = 0; i < blocks; ++i) {
    const int component = jpeg->MCU_membership[i];
    const jpeg_component_info& info = *jpeg->cur_comp_info[component];
    HuffmanTable& dc = dc_tables[static_cast<size_t>(info.dc_tbl_no)];
    HuffmanPairs& ac = ac_tables[static_cast<size_t>(info.ac_tbl_no)];
    dc.Build(*jpeg->dc_huff_tbl_ptrs[info.dc_tbl_no], true);
    ac.Build(*jpeg->ac_huff_tbl_ptrs[info.ac_tbl_no]);
    kinds[i] = {&dc, &ac, component, info.component_needed != 0};
  }
  interval = to_restart = jpeg->restart_interval;
  left = uint64_t{jpeg->MCUs_per_row} * jpeg->MCU_rows_in_scan;
  column = first_wanted = 0;
  columns = end_wanted = jpeg->MCUs_per_row;
  short_of_codes = doubled_ff = false;
  StartCodes(jpeg);
  base = *jpeg->entropy;
  base.start_pass = OnAnotherScan;
  base.decode_mcu = OnMcu;
#ifdef __x86_64__
  if (__builtin_cpu_supports("bmi2")) base.decode_mcu = OnMcuWithBmi2;
#endif
  jpeg->entropy = &base;
}

// Decodes from libjpeg's position, up to the next marker.
void JpegHuffman::State::StartCodes(j_decompress_ptr jpeg) {
  source = jpeg->src->next_input_byte;
  source_end = source + jpeg->src->bytes_in_buffer;
  marker = jpeg->unread_marker;
  ended = marker != 0;
  bits = {.buffer = 0, .count = 0, .at = buffer.data()};
  end = buffer.data();
  if (ended) std::memset(buffer.data(), 0, kPaddingBytes);
  if (!ended) short_of_codes = false;
  last_dc.fill(0);
}

// libjpeg continues after the codes.
void JpegHuffman::State::EndCodes(j_decompress_ptr jpeg) {
  const auto unused = [&] { return ((end - bits.at) * 8 + bits.count) / 8; };  // bytes
  if (!ended && unused() <= kTolerated) Fill();
  if (unused() > kTolerated) {
    jpeg->err->msg_parm.i[0] = static_cast<int>(unused());
    jpeg->err->msg_parm.i[1] = marker;
    WarnJpeg(jpeg, JWRN_EXTRANEOUS_DATA);
  }
  while (!ended) {
    bits = {.buffer = 0, .count = 0, .at = end};
    Fill();
  }
  jpeg->src->next_input_byte = source;
  jpeg->src->bytes_in_buffer = static_cast<size_t>(source_end - source);
  jpeg->unread_marker = marker;
}

// Takes what there is room for, without the zeros that follow each 0xFF.
void JpegHuffman::State::Fill() {
  const auto kept = static_cast<size_t>(end - bits.at);
  std::memmove(buffer.data(), bits.at, kept);
  bits.at = buffer.data();
  uint8_t* to = buffer.data() + kept;
  uint8_t* const most = buffer.data() + kBufferBytes;
  while (to < most && !ended) {
    const auto room = static_cast<size_t>(std::min(source_end - source, most - to));
    const auto* const found = room == 0 ? nullptr : static_cast<const uint8_t*>(std::memchr(source, 0xFF, room));
    const size_t plain = found == nullptr ? room : static_cast<size_t>(found - source);
    std::memcpy(to, source, plain);
    to += plain;
    source += plain;
    if (found == nullptr) {
      ended = source == source_end;
      continue;
    }
    while (source < source_end && *source == 0xFF) ++source;  // several count as one
    if (source == source_end) {
      ended = true;
    } else if (const uint8_t code = *source++; code == 0) {
      doubled_ff = doubled_ff || source - found > 2;
      *to++ = 0xFF;
    } else {
      marker = code;
      ended = true;
    }
  }
  if (ended) std::memset(to, 0, kPaddingBytes);
  end = to;
}

// A block took bits that are not there. As in libjpeg, zeros follow up to the end of the MCU.
__attribute__((noinline)) void JpegHuffman::State::RunShort(j_decompress_ptr jpeg) {
  if (marker == 0) JpegGuard::LeaveAtEnd(reinterpret_cast<j_common_ptr>(jpeg));
  if (!short_of_codes) WarnJpeg(jpeg, JWRN_HIT_MARKER);
  short_of_codes = true;
  bits = {.buffer = 0, .count = 0, .at = end};
}

template <bool kStored>
inline void JpegHuffman::State::DecodeBlock(j_decompress_ptr jpeg, const HuffmanBlock& kind, JCOEF* block) {
  HuffmanBits in = bits;
  in.Refill();
  const HuffmanEntry first = kind.dc->Look(in.buffer);
  int difference = first.value;
  if (first.is_whole()) {
    in.Drop(first.length());
  } else {
    const int size = TakeSymbol(jpeg, *kind.dc, first, &in);
    difference = size == 0 ? 0 : Extend(in.Take(size), size);
  }
  if (kind.needed) {
    int& last = last_dc[static_cast<size_t>(kind.component)];
    if (__builtin_add_overflow(last, difference, &last)) LeaveJpeg(jpeg, JERR_BAD_DCT_COEF);
    if (kStored) block[0] = static_cast<JCOEF>(last);
  }
  const HuffmanPairs& table = *kind.ac;
  size_t k = 1;
  const auto take = [&](HuffmanPair pair) {
    const size_t one = k + pair.run;
    const size_t two = one + pair.step;
    if (kStored) {
      block[kZigzag[one]] = pair.first;
      block[kZigzag[two]] = pair.second;
    }
    k = two + 1;
    if (k < DCTSIZE2) {
      in.Drop(pair.bits);
      return true;
    }
    const bool ends_with_first = one >= DCTSIZE2 - 1;
    if (kStored && ends_with_first) block[kZigzag[one]] = pair.first;  // the second may be there, too
    in.Drop(ends_with_first ? pair.first_bits : pair.bits);
    return false;
  };
  for (;;) {
    in.Refill();
    HuffmanPair pair = table.Look(in.buffer);
    if (pair.bits != 0) {
      if (!take(pair)) break;
      pair = table.Look(in.buffer);
      if (pair.bits != 0) {
        if (!take(pair)) break;
        pair = table.Look(in.buffer);
        if (pair.bits != 0) {
          if (!take(pair)) break;
          continue;
        }
      }
    }
    const int symbol = TakeSymbol(jpeg, table.codes, table.codes.Look(in.buffer), &in);
    const int size = symbol & 15;
    k += static_cast<size_t>(symbol >> 4);
    if (size != 0) {
      const int value = Extend(in.Take(size), size);
      if (kStored) block[kZigzag[k]] = static_cast<JCOEF>(value);
    } else if (symbol != kSixteenZeros) {
      break;
    }
    if (++k >= DCTSIZE2) break;
  }
  bits = in;
  if (in.at > end && (in.at - end) * 8 > in.count) RunShort(jpeg);
}

inline void JpegHuffman::State::DecodeMcu(j_decompress_ptr jpeg, JBLOCKROW* to) {
  if (left == 0) return;
  if (interval != 0) {
    if (to_restart == 0) {
      EndCodes(jpeg);
      (*jpeg->marker->read_restart_marker)(jpeg);
      StartCodes(jpeg);
      to_restart = interval;
    }
    --to_restart;
  }
  const bool was_short = short_of_codes;
  const bool wanted = to != nullptr && column >= first_wanted && column < end_wanted;
  if (++column == columns) column = 0;
  for (size_t i = 0; i < (was_short ? 0 : blocks); ++i) {
    if (end - bits.at < kBlockBytes && !ended) Fill();
    if (wanted && kinds[i].needed) {
      DecodeBlock<true>(jpeg, kinds[i], to[i][0]);
    } else {
      DecodeBlock<false>(jpeg, kinds[i], nullptr);
    }
  }
  if (--left == 0) EndCodes(jpeg);
}

boolean JpegHuffman::State::OnMcu(j_decompress_ptr jpeg, JBLOCKROW* to) {
  static_assert(std::is_standard_layout_v<State>);
  reinterpret_cast<State*>(jpeg->entropy)->DecodeMcu(jpeg, to);
  return TRUE;
}

#ifdef __x86_64__
boolean JpegHuffman::State::OnMcuWithBmi2(j_decompress_ptr jpeg, JBLOCKROW* to) {
  reinterpret_cast<State*>(jpeg->entropy)->DecodeMcu(jpeg, to);
  return TRUE;
}
#endif

JpegHuffman::JpegHuffman() = default;
JpegHuffman::~JpegHuffman() = default;

namespace {

/// Describes the part of the address space where a library has its code.
struct CodeRange {
  uintptr_t first = 0;
  uintptr_t end = 0;

  template <typename Function>
  bool Has(Function* function) const {
    const auto address = reinterpret_cast<uintptr_t>(function);
    return first <= address && address < end;
  }
};

/// Returns the code of the library to which the address belongs; it is empty if there is no such library.
CodeRange CodeAround(uintptr_t address) {
  struct Search {
    uintptr_t address;
    CodeRange found;
  } search{address, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* data) {
        auto* const wanted = static_cast<Search*>(data);
        for (size_t i = 0; i < library->dlpi_phnum; ++i) {
          const ElfW(Phdr)& segment = library->dlpi_phdr[i];
          const CodeRange range{library->dlpi_addr + segment.p_vaddr,
                                library->dlpi_addr + segment.p_vaddr + segment.p_memsz};
          if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
          if (wanted->address < range.first || wanted->address >= range.end) continue;
          wanted->found = range;
          return 1;
        }
        return 0;
      },
      &search);
  return search.found;
}

/// Returns whether the insides of this libjpeg are those of the header that this was compiled with. A libjpeg of
/// another version may have them elsewhere, and there are no functions of libjpeg where this one has them. (It does not
/// say its version at run time.)
bool HasKnownInsides(const jpeg_decompress_struct& jpeg) {
  // Programs may exchange these functions, too, but nobody exchanges those of its memory: they show where libjpeg is.
  static const CodeRange code = CodeAround(reinterpret_cast<uintptr_t>(jpeg.mem->alloc_small));
  return code.Has(jpeg.entropy->start_pass) && code.Has(jpeg.entropy->decode_mcu) &&
         code.Has(jpeg.marker->read_restart_marker);
}

}  // namespace

bool JpegHuffman::TakeOver(jpeg_decompress_struct* jpeg) {
  if (jpeg->progressive_mode || jpeg->arith_code || jpeg_has_multiple_scans(jpeg)) return false;
  if (!HasKnownInsides(*jpeg)) return false;
#if LIBJPEG_TURBO_VERSION_NUMBER >= 2001090  // 3.0 and its previews also decode lossless JPEGs, in another way
  if (jpeg->master->lossless) return false;
#endif
  if (state_ == nullptr) state_ = std::make_unique<State>();  // not for those who only look at a header
  state_->Start(jpeg);
  return true;
}

void JpegHuffman::WantColumns(unsigned first, unsigned end) {
  if (state_ == nullptr) return;
  state_->first_wanted = first;
  state_->end_wanted = end;
}

bool JpegHuffman::doubled_ff() const {
  return state_ != nullptr && state_->doubled_ff;
}

}  // namespace millrace
