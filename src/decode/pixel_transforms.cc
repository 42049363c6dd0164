#include "decode/pixel_transforms.h"

#include <array>
#include <utility>

#include "base/rng.h"
#include "decode/blur.h"
#include "decode/colour.h"
#include "decode/exact_math.h"
#include "decode/warp.h"

namespace millrace {
namespace {

using Kind = ImageTransform::Kind;

double Uniform(Rng& rng, double from, double to) {
  return from + (to - from) * rng.Unit();
}

double Spaced(double from, double to, int bin, int bins) {
  return from + (to - from) * bin / (bins - 1);
}

/// Holds one picture and what was done to it.
class Transformer {
 public:
  Transformer(Pixels* image, Pixels* scratch, std::vector<Warp>* warps)
      : image_(image), scratch_(scratch), warps_(warps) {}

  void Apply(const ImageTransform& transform, uint64_t key) {
    Rng rng(key);
    const std::vector<double>& n = transform.numbers;
    switch (transform.kind) {
      case Kind::kHorizontalFlip:
        return Bend(MirrorX(size()), {});
      case Kind::kVerticalFlip:
        return Bend(MirrorY(size()), {});
      case Kind::kColorJitter:
        return Jitter(n, rng);
      case Kind::kGrayscale:
        return colour::Grey(image_);
      case Kind::kGaussianBlur:
        return GaussianBlur(image_, static_cast<int>(n[0]), static_cast<int>(n[1]), Uniform(rng, n[2], n[3]));
      case Kind::kRandAugment: {
        const Look look{n[3] != 0, FillOf(&n[4])};
        for (int i = 0; i < static_cast<int>(n[0]); ++i) {
          const auto op = static_cast<AugmentOp>(rng.Below(kAugmentOps));
          Augment(op, Signed(op, RandAugmentMagnitude(op, static_cast<int>(n[1]), static_cast<int>(n[2]), size()), rng),
                  look);
        }
        return;
      }
      case Kind::kTrivialAugment: {
        const auto op = static_cast<AugmentOp>(rng.Below(kAugmentOps));
        const auto bins = static_cast<int>(n[0]);
        const auto bin = static_cast<int>(rng.Below(static_cast<uint64_t>(bins)));
        return Augment(op, Signed(op, TrivialAugmentMagnitude(op, bin, bins), rng), {n[1] != 0, FillOf(&n[2])});
      }
      default:
        return;
    }
  }

 private:
  struct Look {
    bool bilinear = false;
    Fill fill{};
  };

  static Fill FillOf(const double* colours) {
    return {static_cast<uint8_t>(colours[0]), static_cast<uint8_t>(colours[1]), static_cast<uint8_t>(colours[2])};
  }
  static double Signed(AugmentOp op, double magnitude, Rng& rng) {
    return IsSigned(op) && rng.Below(2) == 1 ? -magnitude : magnitude;
  }

  ImageSize size() const { return {image_->width, image_->height}; }

  void Bend(Warp warp, const Look& look) {
    warp.bilinear = look.bilinear;
    WarpPixels(warp, look.fill, image_, scratch_);
    warps_->push_back(warp);
  }

  // In a random order; what is fixed at its neutral value is left out.
  void Jitter(const std::vector<double>& n, Rng& rng) {
    std::array<int, 4> order = {0, 1, 2, 3};
    for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[rng.Below(i + 1)]);
    std::array<double, 4> drawn{};
    for (size_t i = 0; i < drawn.size(); ++i) drawn[i] = Uniform(rng, n[2 * i], n[2 * i + 1]);
    for (const int which : order) {
      const auto at = static_cast<size_t>(which);
      const double neutral = which == 3 ? 0 : 1;
      if (n[2 * at] == neutral && n[2 * at + 1] == neutral) continue;
      if (which == 0) colour::Brightness(image_, drawn[at]);
      if (which == 1) colour::Contrast(image_, drawn[at]);
      if (which == 2) colour::Saturation(image_, drawn[at]);
      if (which == 3) colour::Hue(image_, drawn[at]);
    }
  }

  void Augment(AugmentOp op, double magnitude, const Look& look) {
    switch (op) {
      case AugmentOp::kIdentity:
        return;
      case AugmentOp::kShearX:
        return Bend(ShearX(magnitude), look);
      case AugmentOp::kShearY:
        return Bend(ShearY(magnitude), look);
      case AugmentOp::kTranslateX:
        return Bend(Shift(static_cast<int>(magnitude), 0), look);
      case AugmentOp::kTranslateY:
        return Bend(Shift(0, static_cast<int>(magnitude)), look);
      case AugmentOp::kRotate:
        return Bend(Turn(magnitude, size()), look);
      case AugmentOp::kBrightness:
        return colour::Brightness(image_, 1 + magnitude);
      case AugmentOp::kColor:
        return colour::Saturation(image_, 1 + magnitude);
      case AugmentOp::kContrast:
        return colour::Contrast(image_, 1 + magnitude);
      case AugmentOp::kSharpness:
        return colour::Sharpness(image_, 1 + magnitude);
      case AugmentOp::kPosterize:
        return colour::Posterize(image_, static_cast<int>(magnitude));
      case AugmentOp::kSolarize:
        return colour::Solarize(image_, magnitude);
      case AugmentOp::kAutoContrast:
        return colour::AutoContrast(image_);
      case AugmentOp::kEqualize:
        return colour::Equalize(image_);
    }
  }

  Pixels* const image_;
  Pixels* const scratch_;
  std::vector<Warp>* const warps_;
};

}  // namespace

bool IsSigned(AugmentOp op) {
  return op >= AugmentOp::kShearX && op <= AugmentOp::kSharpness;
}

double RandAugmentMagnitude(AugmentOp op, int bin, int bins, ImageSize size) {
  switch (op) {
    case AugmentOp::kShearX:
    case AugmentOp::kShearY:
      return Spaced(0, 0.3, bin, bins);
    case AugmentOp::kTranslateX:
      return Spaced(0, 150.0 / 331 * size.width, bin, bins);
    case AugmentOp::kTranslateY:
      return Spaced(0, 150.0 / 331 * size.height, bin, bins);
    case AugmentOp::kRotate:
      return Spaced(0, 30, bin, bins);
    case AugmentOp::kBrightness:
    case AugmentOp::kColor:
    case AugmentOp::kContrast:
    case AugmentOp::kSharpness:
      return Spaced(0, 0.9, bin, bins);
    case AugmentOp::kPosterize:
      return 8 - static_cast<double>(RoundToEven(bin / ((bins - 1) / 4.0)));
    case AugmentOp::kSolarize:
      return Spaced(255, 0, bin, bins);
    default:
      return 0;
  }
}

double TrivialAugmentMagnitude(AugmentOp op, int bin, int bins) {
  switch (op) {
    case AugmentOp::kTranslateX:
    case AugmentOp::kTranslateY:
      return Spaced(0, 32, bin, bins);
    case AugmentOp::kRotate:
      return Spaced(0, 135, bin, bins);
    case AugmentOp::kPosterize:
      return 8 - static_cast<double>(RoundToEven(bin / ((bins - 1) / 6.0)));
    case AugmentOp::kSolarize:
      return Spaced(255, 0, bin, bins);
    case AugmentOp::kIdentity:
    case AugmentOp::kAutoContrast:
    case AugmentOp::kEqualize:
      return 0;
    default:
      return Spaced(0, 0.99, bin, bins);
  }
}

void TransformPixels(const std::vector<ImageTransform>& transforms, uint64_t key, Pixels* image, Pixels* scratch,
                     std::vector<Warp>* warps) {
  Transformer transformer(image, scratch, warps);
  for (size_t i = CountPartTransforms(transforms); i < transforms.size(); ++i) {
    if (transforms[i].kind == Kind::kErasing || !TakesPlace(transforms[i], key, i)) continue;
    transformer.Apply(transforms[i], TransformKey(key, i));
  }
}

}  // namespace millrace
