#include <fmt/format.h>
#include <webp/decode.h>

#include <vector>

#include "decode/image_readers.h"
#include "decode/resample_kernels.h"

namespace millrace {
namespace {

constexpr size_t kWebpPixelBytes = 4;
constexpr size_t kRiffHead = 8;

absl::Status WebpError(VP8StatusCode code) {
  switch (code) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return absl::ResourceExhaustedError("out of memory while decoding a WebP");
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return absl::InvalidArgumentError(
          "the WebP uses a feature that libwebp does not decode; convert it when packing");
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return absl::DataLossError("the WebP is damaged: it ends too early");
    default:
      return absl::DataLossError("the WebP is damaged");
  }
}

class WebpReader final : public RowReader {
 public:
  absl::StatusOr<ImageSize> Open(ByteSpan encoded) override;
  bool can_shrink() const override { return false; }
  uint64_t held_bytes() const override;
  absl::Status Start(const Region& region, int denominator, PixelForm form) override;
  absl::StatusOr<RowBlock> Next() override;
  absl::Status Finish() override { return absl::OkStatus(); }  // all of it was read
  void Close() override { std::vector<uint8_t>().swap(pixels_); }

 private:
  uint64_t PixelBytes() const {
    return uint64_t{kWebpPixelBytes} * static_cast<uint64_t>(features_.width) * static_cast<uint64_t>(features_.height);
  }

  absl::Status FindFirstFrame();

  ByteSpan encoded_;
  ByteSpan picture_;  // what is decoded of it
  Region frame_;      // where that belongs; all around is black
  WebPBitstreamFeatures features_{};
  Region region_;
  PixelForm form_ = PixelForm::kRgbx;
  std::vector<uint8_t> pixels_;
};

absl::StatusOr<ImageSize> WebpReader::Open(ByteSpan encoded) {
  encoded_ = encoded;
  const auto* const data = reinterpret_cast<const uint8_t*>(encoded.data());
  const VP8StatusCode code = WebPGetFeatures(data, encoded.size(), &features_);
  if (code != VP8_STATUS_OK) return WebpError(code);
  if (encoded.size() < kRiffHead || LoadLe<uint32_t>(encoded.data() + 4) > encoded.size() - kRiffHead) {
    return WebpError(VP8_STATUS_NOT_ENOUGH_DATA);
  }
  RETURN_IF_ERROR(CheckImageSize(features_.width, features_.height));
  frame_ = {.left = 0, .top = 0, .right = features_.width, .bottom = features_.height};
  picture_ = encoded;
  if (features_.has_animation != 0) RETURN_IF_ERROR(FindFirstFrame());
  return ImageSize{features_.width, features_.height};
}

// Finds the first picture of an animation, which covers a part of the canvas.
absl::Status WebpReader::FindFirstFrame() {
  constexpr size_t kFrameHead = 16;
  const size_t end = kRiffHead + LoadLe<uint32_t>(encoded_.data() + 4);  // within the file, as was checked
  bool found = false;
  for (size_t at = kRiffHead + 4; at + kRiffHead <= end;) {
    const ByteSpan rest = encoded_.subspan(at + kRiffHead);
    const size_t size = LoadLe<uint32_t>(encoded_.data() + at + 4);
    if (size > rest.size()) return WebpError(VP8_STATUS_NOT_ENOUGH_DATA);
    const bool wanted = !found && AsText(encoded_.subspan(at, 4)) == "ANMF";
    at += kRiffHead + size + size % 2;
    if (!wanted) continue;
    if (size < kFrameHead) break;
    found = true;
    const auto number = [&](size_t place) {
      return static_cast<int>(LoadLe<uint32_t>(rest.data() + place) & 0xFFFFFF);
    };
    picture_ = rest.subspan(kFrameHead, size - kFrameHead);
    const int left = 2 * number(0);
    const int top = 2 * number(3);
    frame_ = {.left = left, .top = top, .right = left + number(6) + 1, .bottom = top + number(9) + 1};
    WebPBitstreamFeatures frame{};
    const auto* const data = reinterpret_cast<const uint8_t*>(picture_.data());
    const VP8StatusCode code = WebPGetFeatures(data, picture_.size(), &frame);
    if (code != VP8_STATUS_OK) return WebpError(code);
    const bool fits = frame.width == frame_.right - left && frame.height == frame_.bottom - top &&
                      frame_.right <= features_.width && frame_.bottom <= features_.height;
    if (!fits) return WebpError(VP8_STATUS_BITSTREAM_ERROR);
  }
  return found ? absl::OkStatus() : WebpError(VP8_STATUS_NOT_ENOUGH_DATA);
}

// Beside the pixels, the codec holds those in the order of the lossless codec, which the transparency of lossy images
// has, too.
uint64_t WebpReader::held_bytes() const {
  const bool lossy = features_.format == 1 && features_.has_alpha == 0;
  return PixelBytes() * (lossy ? 1 : 2);
}

absl::Status WebpReader::Start(const Region& region, int /*denominator*/, PixelForm form) {
  if (form == PixelForm::kNumbers) return NotNumbers("a WebP");
  if (held_bytes() > kMaxCodecBytes) {
    return absl::InvalidArgumentError(
        fmt::format("a WebP of {} x {} pixels needs {} MiB to decode and the limit is {} MiB; shrink it when packing",
                    features_.width, features_.height, held_bytes() >> 20, kMaxCodecBytes >> 20));
  }
  region_ = region;
  form_ = form;
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) return absl::InternalError("libwebp is of another version than its header");
  pixels_.resize(PixelBytes() + kernels::kSlackBytes);
  config.output.colorspace = MODE_RGBA;
  config.output.is_external_memory = 1;
  const size_t stride = static_cast<size_t>(features_.width) * kWebpPixelBytes;
  const size_t at = stride * static_cast<size_t>(frame_.top) + kWebpPixelBytes * static_cast<size_t>(frame_.left);
  config.output.u.RGBA.rgba = pixels_.data() + at;
  config.output.u.RGBA.stride = static_cast<int>(stride);
  config.output.u.RGBA.size = PixelBytes() - at;
  const auto* const data = reinterpret_cast<const uint8_t*>(picture_.data());
  const VP8StatusCode code = WebPDecode(data, picture_.size(), &config);
  WebPFreeDecBuffer(&config.output);
  return code == VP8_STATUS_OK ? absl::OkStatus() : WebpError(code);
}

absl::StatusOr<RowBlock> WebpReader::Next() {
  const size_t stride = static_cast<size_t>(features_.width) * kWebpPixelBytes;
  uint8_t* const first = pixels_.data() + stride * static_cast<size_t>(region_.top);
  const int rows = region_.bottom - region_.top;
  if (form_ == PixelForm::kGrey) {
    for (int i = 0; i < rows; ++i) {
      uint8_t* const row = first + stride * static_cast<size_t>(i);
      GreyFromRgbx(row, static_cast<size_t>(features_.width), row);
    }
  }
  return RowBlock{first + region_.left * BytesOf(form_), stride, rows};
}

}  // namespace

std::unique_ptr<RowReader> MakeWebpReader() {
  return std::make_unique<WebpReader>();
}

}  // namespace millrace
