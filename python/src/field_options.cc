#include "field_options.h"

#include "arguments.h"

namespace millrace::python {

ImageSpec ToImageSpec(const ImageTuple& image) {
  const auto& [height, width, channels, crop, dtype, layout, mean, std, interpolation, numbers, exif_orientation, exact,
               transforms, encoded] = image;
  ImageSpec spec;
  spec.height = height;
  spec.width = width;
  spec.channels = channels;
  std::tie(spec.augment, spec.crop_scale, spec.crop_ratio, spec.flip_probability) = crop;
  spec.dtype = Choose<DType>("dtype", dtype, {{"u8", DType::kU8}, {"f32", DType::kF32}});
  spec.layout = Choose<Layout>("layout", layout, {{"nhwc", Layout::kNhwc}, {"nchw", Layout::kNchw}});
  spec.mean = mean;
  spec.std = std;
  spec.interpolation = Choose<Interpolation>("interpolation", interpolation,
                                             {{"bilinear", Interpolation::kBilinear},
                                              {"nearest", Interpolation::kNearest},
                                              {"bicubic", Interpolation::kBicubic},
                                              {"box", Interpolation::kBox}});
  spec.numbers = numbers;
  spec.exif_orientation = exif_orientation;
  spec.exact = exact;
  for (const auto& [name, probability, values] : transforms) {
    spec.transforms.push_back({ValueOrThrow(ImageTransformKind(name)), probability, values});
  }
  spec.encoded = encoded;
  return spec;
}

std::vector<BatchField> ToFields(const std::vector<FieldTuple>& fields) {
  using Kind = BatchField::Kind;
  std::vector<BatchField> result;
  for (const auto& [name, field, kind, image, like, form] : fields) {
    BatchField& entry = result.emplace_back();
    entry.name = name;
    entry.field = field;
    entry.kind = Choose<Kind>("the kind of a field", kind,
                              {{"image", Kind::kImage},
                               {"label", Kind::kLabel},
                               {"text", Kind::kText},
                               {"json", Kind::kJson},
                               {"array", Kind::kArray},
                               {"bytes", Kind::kBytes},
                               {"boxes", Kind::kBoxes}});
    if (image) entry.image = ToImageSpec(*image);
    entry.like = like;
    if (entry.kind == Kind::kLabel) entry.label = ValueOrThrow(LabelSpec::Parse(form));
    if (entry.kind == Kind::kBoxes) entry.boxes = ValueOrThrow(BoxSpec::Parse(form));
  }
  return result;
}

}  // namespace millrace::python
