#include "decode/testing/test_images.h"

// jpeglib.h relies on what cstdio declares.
// clang-format off
#include <cstdio>
#include <jpeglib.h>
// clang-format on

#include <spng.h>
#include <webp/encode.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/rng.h"

namespace millrace::testing {
namespace {

void Fail(j_common_ptr jpeg) {
  char message[JMSG_LENGTH_MAX];
  jpeg->err->format_message(jpeg, message);
  std::fprintf(stderr, "test_images: %s\n", message);
  std::abort();
}

void Require(int spng_error) {
  if (spng_error == 0) return;
  std::fprintf(stderr, "test_images: %s\n", spng_strerror(spng_error));
  std::abort();
}

/// Compresses `rows` (width * components bytes each) after `configure` chose the settings.
template <typename Configure>
std::string Compress(const std::vector<uint8_t>& rows, int width, int height, int components, J_COLOR_SPACE in,
                     Configure configure, const std::string& exif = "") {
  jpeg_compress_struct c{};
  jpeg_error_mgr errors{};
  c.err = jpeg_std_error(&errors);
  errors.error_exit = Fail;
  jpeg_create_compress(&c);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&c, &buffer, &size);
  c.image_width = static_cast<JDIMENSION>(width);
  c.image_height = static_cast<JDIMENSION>(height);
  c.input_components = components;
  c.in_color_space = in;
  jpeg_set_defaults(&c);
  configure(&c);
  jpeg_start_compress(&c, TRUE);
  if (!exif.empty()) {
    jpeg_write_marker(&c, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(exif.data()),
                      static_cast<unsigned>(exif.size()));
  }
  while (c.next_scanline < c.image_height) {
    auto* row = const_cast<JSAMPROW>(rows.data() + static_cast<size_t>(width) * components * c.next_scanline);
    jpeg_write_scanlines(&c, &row, 1);
  }
  jpeg_finish_compress(&c);
  jpeg_destroy_compress(&c);
  std::string jpeg(reinterpret_cast<char*>(buffer), size);
  std::free(buffer);
  return jpeg;
}

std::vector<uint8_t> MakeNoise(int width, int height) {
  Rng rng(HashKey(3, {static_cast<uint64_t>(width), static_cast<uint64_t>(height)}));
  std::vector<uint8_t> rgb(size_t{3} * width * height);
  for (uint8_t& byte : rgb) byte = static_cast<uint8_t>(rng.Next());
  return rgb;
}

/// Returns pixels in the colours that `kind` is made from.
std::vector<uint8_t> SourceOf(JpegKind kind, int width, int height, bool noise = false) {
  const std::vector<uint8_t> rgb = noise ? MakeNoise(width, height) : MakeRgb(width, height);
  const size_t pixels = static_cast<size_t>(width) * height;
  std::vector<uint8_t> out;
  for (size_t i = 0; i < pixels; ++i) {
    const uint8_t* p = &rgb[3 * i];
    switch (kind) {
      case JpegKind::kGrey:
        out.push_back(p[1]);
        break;
      case JpegKind::kTwoComponents:
        out.insert(out.end(), {p[0], p[1]});
        break;
      case JpegKind::kCmyk:
      case JpegKind::kYcck:
        out.insert(out.end(), {p[0], p[1], p[2], static_cast<uint8_t>(255 - p[0] / 4)});
        break;
      default:
        out.insert(out.end(), {p[0], p[1], p[2]});
    }
  }
  return out;
}

}  // namespace

std::vector<uint8_t> MakeRgb(int width, int height) {
  std::vector<uint8_t> rgb;
  rgb.reserve(size_t{3} * width * height);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const int texture = ((x * 7 + y * 13) % 32) + (((x / 8) ^ (y / 8)) % 2 != 0 ? 24 : 0);
      rgb.push_back(static_cast<uint8_t>(x * 180 / width + texture));
      rgb.push_back(static_cast<uint8_t>(y * 180 / height + texture));
      rgb.push_back(static_cast<uint8_t>((x + y) * 180 / (width + height) + 20));
    }
  }
  return rgb;
}

std::string MakeJpeg(int width, int height, const JpegOptions& options) {
  int components = 3;
  J_COLOR_SPACE in = JCS_RGB;
  if (options.kind == JpegKind::kGrey) {
    components = 1;
    in = JCS_GRAYSCALE;
  } else if (options.kind == JpegKind::kCmyk || options.kind == JpegKind::kYcck) {
    components = 4;
    in = JCS_CMYK;
  } else if (options.kind == JpegKind::kTwoComponents) {
    components = 2;
    in = JCS_UNKNOWN;
  }
  return Compress(
      SourceOf(options.kind, width, height, options.noise), width, height, components, in,
      [&](jpeg_compress_struct* c) {
        if (options.kind == JpegKind::kRgb) jpeg_set_colorspace(c, JCS_RGB);
        if (options.kind == JpegKind::kYcck) jpeg_set_colorspace(c, JCS_YCCK);
        if (options.kind == JpegKind::kYcc422) c->comp_info[0].v_samp_factor = 1;
        if (options.kind == JpegKind::kYcc440) c->comp_info[0].h_samp_factor = 1;
        if (options.kind == JpegKind::kYcc411) {
          c->comp_info[0].h_samp_factor = 4;
          c->comp_info[0].v_samp_factor = 1;
        }
        if (options.kind == JpegKind::kYcc444) c->comp_info[0].h_samp_factor = c->comp_info[0].v_samp_factor = 1;
        jpeg_set_quality(c, options.quality, TRUE);
        if (options.progressive) jpeg_simple_progression(c);
        c->arith_code = options.arithmetic ? TRUE : FALSE;
        c->optimize_coding = options.optimised ? TRUE : FALSE;
        c->restart_in_rows = options.restart_rows;
        c->restart_interval = static_cast<unsigned>(options.restart_interval);
      },
      options.exif);
}

std::string MakeManyScans(int width, int height, int scans) {
  // The DC scan, then the coefficients one band at a time; each band may come only once, so bands and bits are spread.
  constexpr int kFirstBit = 10;
  std::vector<jpeg_scan_info> script;
  script.push_back({1, {0}, 0, 0, 0, 0});
  for (int bit = kFirstBit; bit >= 0 && static_cast<int>(script.size()) < scans; --bit) {
    for (int k = 1; k < 64 && static_cast<int>(script.size()) < scans; ++k) {
      script.push_back({1, {0}, k, k, bit == kFirstBit ? 0 : bit + 1, bit});
    }
  }
  const std::vector<uint8_t> grey = SourceOf(JpegKind::kGrey, width, height);
  return Compress(grey, width, height, 1, JCS_GRAYSCALE, [&](jpeg_compress_struct* c) {
    c->scan_info = script.data();
    c->num_scans = static_cast<int>(script.size());
  });
}

std::vector<uint8_t> DecodeWhole(const std::string& jpeg, int denominator, int channels, ImageSize* size) {
  jpeg_decompress_struct d{};
  jpeg_error_mgr errors{};
  d.err = jpeg_std_error(&errors);
  errors.error_exit = Fail;
  jpeg_create_decompress(&d);
  jpeg_mem_src(&d, reinterpret_cast<const unsigned char*>(jpeg.data()), jpeg.size());
  jpeg_read_header(&d, TRUE);
  d.scale_denom = static_cast<unsigned>(denominator);
  d.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_EXT_RGBX;
  d.do_block_smoothing = FALSE;
  jpeg_start_decompress(&d);
  *size = {static_cast<int>(d.output_width), static_cast<int>(d.output_height)};
  const size_t stride = static_cast<size_t>(d.output_width) * d.output_components;
  std::vector<uint8_t> pixels(stride * d.output_height);
  while (d.output_scanline < d.output_height) {
    JSAMPROW row = pixels.data() + stride * d.output_scanline;
    jpeg_read_scanlines(&d, &row, 1);
  }
  jpeg_finish_decompress(&d);
  jpeg_destroy_decompress(&d);
  return pixels;
}

Png MakePng(int width, int height, const PngOptions& options) {
  const std::vector<uint8_t> rgb = MakeRgb(width, height);
  const int levels = options.depth >= 8 ? 256 : 1 << options.depth;
  const std::array<int, 7> samples_of{1, 0, 3, 1, 2, 0, 4};
  const int samples = samples_of[options.color_type];
  const bool palette = options.color_type == SPNG_COLOR_TYPE_INDEXED;
  Png png;
  std::vector<uint8_t> rows;
  const auto put16 = [&](uint8_t value, size_t i) {
    // Host order, as spng takes it; the low byte must not show in 8 bits.
    rows.push_back(static_cast<uint8_t>(i * 37));
    rows.push_back(value);
  };
  for (int y = 0; y < height; ++y) {
    uint8_t packed = 0;
    int bits = 0;
    for (int x = 0; x < width; ++x) {
      const size_t i = static_cast<size_t>(y) * width + x;
      const uint8_t* p = &rgb[3 * i];
      if (samples <= 2) {
        const int level = p[1] * levels / 256;
        const int grey = palette ? level : level * 255 / (levels - 1);
        // Palette entry k is (k, 255 - k, k / 2).
        if (palette) {
          png.rgb.insert(png.rgb.end(), {static_cast<uint8_t>(grey), static_cast<uint8_t>(255 - grey),
                                         static_cast<uint8_t>(grey / 2)});
        } else {
          png.rgb.insert(png.rgb.end(), 3, static_cast<uint8_t>(grey));
        }
        if (options.depth == 16) {
          put16(static_cast<uint8_t>(level), i);
        } else {
          packed = static_cast<uint8_t>(packed << options.depth | level);
          bits += options.depth;
          if (bits == 8 || x + 1 == width) {
            rows.push_back(static_cast<uint8_t>(packed << (8 - bits)));
            packed = 0;
            bits = 0;
          }
        }
      } else {
        png.rgb.insert(png.rgb.end(), p, p + 3);
        for (int c = 0; c < 3; ++c) options.depth == 16 ? put16(p[c], i + c) : rows.push_back(p[c]);
      }
      if (samples % 2 == 0) {  // alpha, which must not matter
        const auto alpha = static_cast<uint8_t>(i * 11);
        options.depth == 16 ? put16(alpha, i) : rows.push_back(alpha);
      }
    }
  }
  spng_ctx* const context = spng_ctx_new(SPNG_CTX_ENCODER);
  Require(spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1));
  spng_ihdr header{};
  header.width = static_cast<uint32_t>(width);
  header.height = static_cast<uint32_t>(height);
  header.bit_depth = static_cast<uint8_t>(options.depth);
  header.color_type = static_cast<uint8_t>(options.color_type);
  header.interlace_method = options.interlaced ? SPNG_INTERLACE_ADAM7 : SPNG_INTERLACE_NONE;
  Require(spng_set_ihdr(context, &header));
  if (palette) {
    spng_plte plte{};
    plte.n_entries = static_cast<uint32_t>(levels);
    spng_trns trns{};
    trns.n_type3_entries = plte.n_entries;
    for (int k = 0; k < levels; ++k) {
      plte.entries[k] = {static_cast<uint8_t>(k), static_cast<uint8_t>(255 - k), static_cast<uint8_t>(k / 2), 0};
      trns.type3_alpha[k] = static_cast<uint8_t>(k * 3);
    }
    Require(spng_set_plte(context, &plte));
    Require(spng_set_trns(context, &trns));
  }
  Require(spng_encode_image(context, rows.data(), rows.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE));
  int error = 0;
  size_t size = 0;
  void* const bytes = spng_get_png_buffer(context, &size, &error);
  Require(error);
  png.bytes.assign(static_cast<const char*>(bytes), size);
  std::free(bytes);
  spng_ctx_free(context);
  return png;
}

namespace {

void PutLe16(std::string* to, size_t value) {
  to->push_back(static_cast<char>(value));
  to->push_back(static_cast<char>(value >> 8));
}

void PutLe32(std::string* to, size_t value) {
  PutLe16(to, value);
  PutLe16(to, value >> 16);
}

std::string MakeWebp(const std::vector<uint8_t>& rgb, int width, int height) {
  uint8_t* out = nullptr;
  const size_t size = WebPEncodeLosslessRGB(rgb.data(), width, height, 3 * width, &out);
  std::string webp(reinterpret_cast<char*>(out), size);
  WebPFree(out);
  return webp;
}

/// The file is uncompressed, in one strip.
std::string MakeTiff(const std::vector<uint8_t>& rgb, size_t width, size_t height) {
  std::string tiff("II*\0", 4);
  PutLe32(&tiff, 8 + rgb.size());
  tiff.append(rgb.begin(), rgb.end());
  struct Tag {
    size_t id;
    size_t type;  // 3: 16 bits, 4: 32
    size_t count;
    size_t value;
  };
  constexpr size_t kTags = 9;
  const size_t behind = 8 + rgb.size() + 2 + 12 * kTags + 4;
  PutLe16(&tiff, kTags);
  for (const Tag& tag : std::array<Tag, kTags>{{{256, 4, 1, width},
                                                {257, 4, 1, height},
                                                {258, 3, 3, behind},
                                                {259, 3, 1, 1},
                                                {262, 3, 1, 2},
                                                {273, 4, 1, 8},
                                                {277, 3, 1, 3},
                                                {278, 4, 1, height},
                                                {279, 4, 1, rgb.size()}}}) {
    PutLe16(&tiff, tag.id);
    PutLe16(&tiff, tag.type);
    PutLe32(&tiff, tag.count);
    PutLe32(&tiff, tag.value);
  }
  PutLe32(&tiff, 0);
  for (int c = 0; c < 3; ++c) PutLe16(&tiff, 8);
  return tiff;
}

/// The file has 24 bits a pixel, bottom up.
std::string MakeBmp(const std::vector<uint8_t>& rgb, size_t width, size_t height) {
  const size_t row = (3 * width + 3) / 4 * 4;
  std::string bmp("BM");
  PutLe32(&bmp, 54 + row * height);
  PutLe32(&bmp, 0);
  PutLe32(&bmp, 54);
  PutLe32(&bmp, 40);
  PutLe32(&bmp, width);
  PutLe32(&bmp, height);
  PutLe16(&bmp, 1);
  PutLe16(&bmp, 24);
  for (int i = 0; i < 6; ++i) PutLe32(&bmp, 0);
  for (size_t y = height; y-- > 0;) {
    for (size_t x = 0; x < width; ++x) {
      for (size_t c = 3; c-- > 0;) bmp.push_back(static_cast<char>(rgb[3 * (width * y + x) + c]));
    }
    bmp.append(row - 3 * width, '\0');
  }
  return bmp;
}

/// The file shows `indices` of 128 colours. All codes have 8 bits, since the table is cleared before it has grown.
std::string MakeGif(const std::vector<uint8_t>& palette, const std::string& indices, size_t width, size_t height) {
  constexpr int kClear = 128;
  std::string codes;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (i % 100 == 0) codes.push_back(static_cast<char>(kClear));
    codes.push_back(indices[i]);
  }
  codes.push_back(static_cast<char>(kClear + 1));
  std::string gif("GIF89a");
  PutLe16(&gif, width);
  PutLe16(&gif, height);
  gif.append("\xF6\0\0", 3);  // a palette of 128 colours
  gif.append(palette.begin(), palette.end());
  gif.append(",\0\0\0\0", 5);
  PutLe16(&gif, width);
  PutLe16(&gif, height);
  gif.append("\0\7", 2);  // codes begin with 8 bits
  for (size_t at = 0; at < codes.size(); at += 255) {
    const std::string block = codes.substr(at, 255);
    gif.push_back(static_cast<char>(block.size()));
    gif += block;
  }
  gif.append("\0;", 2);
  return gif;
}

}  // namespace

Png MakeOther(OtherFormat format, int width, int height) {
  Png image{.bytes = {}, .rgb = MakeRgb(width, height)};
  const auto w = static_cast<size_t>(width);
  const auto h = static_cast<size_t>(height);
  switch (format) {
    case OtherFormat::kWebp:
      image.bytes = MakeWebp(image.rgb, width, height);
      break;
    case OtherFormat::kTiff:
      image.bytes = MakeTiff(image.rgb, w, h);
      break;
    case OtherFormat::kBmp:
      image.bytes = MakeBmp(image.rgb, w, h);
      break;
    case OtherFormat::kGif: {
      std::vector<uint8_t> palette;
      for (int i = 0; i < 128; ++i) {
        for (const int value : {2 * i, 255 - i, i * 37 % 256}) palette.push_back(static_cast<uint8_t>(value));
      }
      std::string indices;
      for (size_t i = 0; i < w * h; ++i) indices.push_back(static_cast<char>(image.rgb[3 * i] / 2));
      image.bytes = MakeGif(palette, indices, w, h);
      for (size_t i = 0; i < w * h; ++i) {
        std::copy_n(palette.begin() + 3 * indices[i], 3, image.rgb.begin() + static_cast<ptrdiff_t>(3 * i));
      }
      break;
    }
  }
  return image;
}

}  // namespace millrace::testing
