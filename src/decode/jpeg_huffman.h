#pragma once

#include <memory>

struct jpeg_decompress_struct;

namespace millrace {

/// Decodes the Huffman codes of baseline JPEGs in place of libjpeg's own decoder, about twice as fast. Most of the time
/// of a JPEG is spent there. The library libjpeg calls it by the pointer in its entropy decoder, and does all the rest.
/// Coefficients are those of libjpeg to the last bit, unless there are warnings or doubled_ff(). The pixels that
/// libjpeg shows of damaged files may depend on how it reads ahead. This decoder warns of all that libjpeg takes for an
/// error of the codes. Reusable; not thread-safe.
class JpegHuffman {
 public:
  JpegHuffman();
  ~JpegHuffman();

  /// Decodes the codes of the image, which jpeg_start_decompress has just prepared, from now on. Its source must be
  /// jpeg_mem_src, and its error manager that of a JpegGuard. False leaves the image to
  /// libjpeg's decoder. Either it is not Huffman-coded in a single sequential scan, or the insides of this libjpeg are
  /// not those of the header at build time. `this` must outlive the decoding. From then on a null pointer in place of
  /// the blocks of an MCU, as libjpeg's own decoder takes it, passes over them.
  bool TakeOver(jpeg_decompress_struct* jpeg);

  /// Call this after TakeOver. Only coefficients of MCUs of the columns from `first` to before `end` are wanted, since
  /// libjpeg makes no pixels of the others.
  void WantColumns(unsigned first, unsigned end);

  /// After TakeOver, returns whether there were several bytes 0xFF in place of one before a zero. The library libjpeg
  /// decodes these in two ways, by how many bytes follow, and does not warn.
  bool doubled_ff() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millrace
