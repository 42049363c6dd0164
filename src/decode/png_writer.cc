#include "decode/png_writer.h"

#include <fmt/format.h>
#include <spng.h>

#include <cstdlib>

#include "decode/resample_kernels.h"

namespace millrace {
namespace {

absl::Status EncodingStatus(int error) {
  if (error == 0 || error == SPNG_EOI) return absl::OkStatus();
  if (error == SPNG_EMEM) return absl::ResourceExhaustedError("out of memory while encoding a PNG");
  return absl::InternalError(fmt::format("encoding a PNG failed: {}", spng_strerror(error)));
}

}  // namespace

struct PngWriter::Context {
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { spng_ctx_free(png); }

  spng_ctx* const png = spng_ctx_new(SPNG_CTX_ENCODER);
};

PngWriter::PngWriter() : context_(std::make_unique<Context>()) {}
PngWriter::~PngWriter() = default;

absl::Status PngWriter::Start(int width, int height) {
  spng_ctx* const png = context_->png;
  if (png == nullptr) return EncodingStatus(SPNG_EMEM);
  packed_.resize(size_t{3} * static_cast<size_t>(width));
  spng_ihdr header{};
  header.width = static_cast<uint32_t>(width);
  header.height = static_cast<uint32_t>(height);
  header.bit_depth = 8;
  header.color_type = SPNG_COLOR_TYPE_TRUECOLOR;
  RETURN_IF_ERROR(EncodingStatus(spng_set_option(png, SPNG_ENCODE_TO_BUFFER, 1)));
  RETURN_IF_ERROR(EncodingStatus(spng_set_ihdr(png, &header)));
  return EncodingStatus(
      spng_encode_image(png, nullptr, 0, SPNG_FMT_PNG, SPNG_ENCODE_PROGRESSIVE | SPNG_ENCODE_FINALIZE));
}

absl::Status PngWriter::Put(const uint8_t* row) {
  kernels::PackRgb(row, packed_.size() / 3, packed_.data());
  return EncodingStatus(spng_encode_row(context_->png, packed_.data(), packed_.size()));
}

absl::StatusOr<std::string> PngWriter::Finish() {
  int error = 0;
  size_t size = 0;
  void* const bytes = spng_get_png_buffer(context_->png, &size, &error);
  if (bytes == nullptr) return EncodingStatus(error == 0 ? SPNG_EMEM : error);
  std::string png(static_cast<const char*>(bytes), size);
  std::free(bytes);
  return png;
}

}  // namespace millrace
