#include "decode/transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/rng.h"

namespace millrace {
namespace {

using Kind = ImageTransform::Kind;

constexpr uint64_t kTransformDomain = 0x7472616e73666f31;  // "transfo1"
constexpr uint64_t kChanceDomain = 0x6368616e63652d31;     // "chance-1"

struct KindOfTransform {
  Kind kind;
  std::string_view name;
  size_t numbers;  // at most
};

constexpr std::array<KindOfTransform, 11> kKinds = {{{Kind::kResize, "Resize", 2},
                                                     {Kind::kCenterCrop, "CenterCrop", 2},
                                                     {Kind::kRandomResizedCrop, "RandomResizedCrop", 6},
                                                     {Kind::kHorizontalFlip, "RandomHorizontalFlip", 0},
                                                     {Kind::kVerticalFlip, "RandomVerticalFlip", 0},
                                                     {Kind::kColorJitter, "ColorJitter", 8},
                                                     {Kind::kGrayscale, "RandomGrayscale", 0},
                                                     {Kind::kGaussianBlur, "GaussianBlur", 4},
                                                     {Kind::kRandAugment, "RandAugment", 7},
                                                     {Kind::kTrivialAugment, "TrivialAugmentWide", 5},
                                                     {Kind::kErasing, "RandomErasing", 9}}};

constexpr double kMaxKernelSide = 255;
constexpr double kMaxSide = 16'384;

absl::Status Refuse(const ImageTransform& transform, std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", ImageTransformName(transform.kind), why));
}

bool IsWhole(double number, double least, double most) {
  return number >= least && number <= most && number == std::floor(number);
}

bool Rises(double from, double to, double least, double most) {
  return from >= least && from <= to && to <= most;
}

// Takes {scale from, to, ratio from, to}.
bool AreScaleAndRatio(const double* numbers) {
  return numbers[0] > 0 && Rises(numbers[0], numbers[1], 0, 1) && numbers[2] > 0 &&
         Rises(numbers[2], numbers[3], 0, 1e6);
}

bool AreColours(const double* numbers) {
  return std::all_of(numbers, numbers + 3, [](double number) { return IsWhole(number, 0, 255); });
}

absl::Status CheckNumbers(const ImageTransform& transform) {
  const std::vector<double>& n = transform.numbers;
  const auto sides = [&] {
    return std::all_of(n.begin(), n.begin() + 2, [](double side) { return IsWhole(side, 1, kMaxSide); });
  };
  switch (transform.kind) {
    case Kind::kResize:
      if (!std::all_of(n.begin(), n.end(), [](double side) { return IsWhole(side, 1, kMaxSide); })) {
        return Refuse(transform, "the size must be one or two whole numbers, 1 to 16384");
      }
      return absl::OkStatus();
    case Kind::kCenterCrop:
      return sides() ? absl::OkStatus() : Refuse(transform, "height and width must be 1 to 16384");
    case Kind::kRandomResizedCrop:
      if (!sides()) return Refuse(transform, "height and width must be 1 to 16384");
      if (AreScaleAndRatio(&n[2])) return absl::OkStatus();
      return Refuse(transform, "scale must rise within (0, 1], and ratio rise and be above 0");
    case Kind::kColorJitter:
      for (size_t i = 0; i < 6; i += 2) {
        if (!Rises(n[i], n[i + 1], 0, 1e6)) return Refuse(transform, "factors must rise and not be below 0");
      }
      return Rises(n[6], n[7], -0.5, 0.5) ? absl::OkStatus() : Refuse(transform, "hue must rise within [-0.5, 0.5]");
    case Kind::kGaussianBlur:
      for (size_t i = 0; i < 2; ++i) {
        if (!IsWhole(n[i], 1, kMaxKernelSide) || std::fmod(n[i], 2) != 1)
          return Refuse(transform, "the kernel's sides must be odd numbers, 1 to 255");
      }
      return n[2] > 0 && Rises(n[2], n[3], 0, 1e6) ? absl::OkStatus()
                                                   : Refuse(transform, "sigma must rise and be above 0");
    case Kind::kRandAugment:
      if (!IsWhole(n[0], 0, 100)) return Refuse(transform, "num_ops must be 0 to 100");
      if (!IsWhole(n[2], 2, 1000)) return Refuse(transform, "num_magnitude_bins must be 2 to 1000");
      if (!IsWhole(n[1], 0, n[2] - 1)) return Refuse(transform, "magnitude must be 0 to num_magnitude_bins - 1");
      return AreColours(&n[4]) ? absl::OkStatus() : Refuse(transform, "fill must be 0 to 255");
    case Kind::kTrivialAugment:
      if (!IsWhole(n[0], 2, 1000)) return Refuse(transform, "num_magnitude_bins must be 2 to 1000");
      return AreColours(&n[2]) ? absl::OkStatus() : Refuse(transform, "fill must be 0 to 255");
    case Kind::kErasing:
      if (!AreScaleAndRatio(&n[0]))
        return Refuse(transform, "scale must rise within (0, 1], and ratio rise and be above 0");
      return absl::OkStatus();
    case Kind::kHorizontalFlip:
    case Kind::kVerticalFlip:
    case Kind::kGrayscale:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status CheckOne(const ImageTransform& transform) {
  const size_t most = kKinds[static_cast<size_t>(transform.kind)].numbers;
  const bool may_have_fewer = transform.kind == Kind::kResize && transform.numbers.size() == 1;
  if (transform.numbers.size() != most && !may_have_fewer) {
    return Refuse(transform, fmt::format("{} numbers, and it takes {}", transform.numbers.size(), most));
  }
  for (const double number : transform.numbers) {
    if (!std::isfinite(number)) return Refuse(transform, "a number is not finite");
  }
  if (!(transform.probability >= 0 && transform.probability <= 1)) {
    return Refuse(transform, fmt::format("probability {}; must be 0 to 1", transform.probability));
  }
  if (transform.chooses_part() && transform.probability != 1) {
    return Refuse(transform, "it decides the size of the output, and so cannot be left to chance");
  }
  return CheckNumbers(transform);
}

}  // namespace

absl::StatusOr<Kind> ImageTransformKind(std::string_view name) {
  for (const KindOfTransform& each : kKinds) {
    if (each.name == name) return each.kind;
  }
  return absl::InvalidArgumentError(fmt::format("there is no transform '{}'", name));
}

std::string_view ImageTransformName(Kind kind) {
  return kKinds[static_cast<size_t>(kind)].name;
}

absl::Status CheckTransforms(const std::vector<ImageTransform>& transforms) {
  bool resized = false;
  bool sized = false;
  const ImageTransform* pixels = nullptr;
  const ImageTransform* erasing = nullptr;
  for (const ImageTransform& transform : transforms) {
    RETURN_IF_ERROR(CheckOne(transform));
    if (erasing != nullptr) return Refuse(transform, "it comes after RandomErasing, which must be the last transform");
    if (transform.chooses_part()) {
      if (pixels != nullptr) {
        return Refuse(transform, fmt::format("it comes after {}; put cropping and resizing first, so that only pixels "
                                             "that are delivered are transformed",
                                             ImageTransformName(pixels->kind)));
      }
      if (transform.kind != Kind::kCenterCrop && std::exchange(resized, true)) {
        return Refuse(transform, "the image was resized before; resize it once");
      }
      sized = sized || transform.kind != Kind::kResize || transform.numbers.size() == 2;
    }
    if (transform.changes_pixels() && pixels == nullptr) pixels = &transform;
    if (transform.kind == Kind::kErasing) erasing = &transform;
  }
  if (transforms.empty() || sized) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the transforms leave the size of the output open; add RandomResizedCrop(size), CenterCrop(size) or "
      "Resize((height, width))");
}

size_t CountPartTransforms(const std::vector<ImageTransform>& transforms) {
  const auto end = std::find_if(transforms.begin(), transforms.end(), [](const ImageTransform& transform) {
    return !transform.chooses_part() && !transform.mirrors();
  });
  return static_cast<size_t>(end - transforms.begin());
}

uint64_t TransformKey(uint64_t image_key, size_t place) {
  return HashKey(kTransformDomain, {image_key, place});
}

bool TakesPlace(const ImageTransform& transform, uint64_t image_key, size_t place) {
  if (transform.probability >= 1) return true;
  return Rng(HashKey(kChanceDomain, {image_key, place})).Unit() < transform.probability;
}

}  // namespace millrace
