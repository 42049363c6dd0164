#include "pipeline/planned_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/counted.h"
#include "shard/data_kind.h"
#include "shard/field_value.h"

namespace millrace {

namespace {

using Kind = BatchField::Kind;

// All batches have these beside their fields.
constexpr std::array<std::string_view, 4> kReserved = {"key", "valid", "sample", "part"};
// WebDataset calls the key so.
constexpr std::string_view kFormerKey = "__key__";

// Returns the fields of all parts. If a data set lacks all of them, that shows when its first sample is decoded.
std::vector<std::string> FieldNames(const Source& source) {
  std::set<std::string> names;
  for (const Subset& part : source.parts())
    names.insert(part.index().field_names().begin(), part.index().field_names().end());
  return {names.begin(), names.end()};
}

// Returns true if samples hold arrays, judged by the first one.
absl::StatusOr<bool> HoldsArrays(const Subset& part) {
  if (part.index().size() == 0) return false;
  IndexedSample first;
  RETURN_IF_ERROR(part.index().Lookup(0, &first));
  return std::any_of(first.fields.begin(), first.fields.end(),
                     [](const IndexedField& field) { return TypeOfEncoding(field.encoding) == FieldType::kNdarray; });
}

std::string NoImages(const std::vector<std::string>& names) {
  std::string text = fmt::format(
      "no field of the data set is an image (jpg, jpeg, png, webp, tif, tiff, bmp, gif); its fields are: {}",
      fmt::join(names, ", "));
  constexpr size_t kAdvised = 3;
  size_t advised = 0;
  for (const std::string& name : names) {
    const std::string advice = FieldAdvice(name);
    if (!advice.empty() && ++advised <= kAdvised) text += fmt::format("; '{}': {}", name, advice);
  }
  return text;
}

// Refuses data without images. A data set of arrays is delivered as it is only if nothing else is in the source: images
// beside it have another shape.
absl::Status NoImagesButArrays(const Source& source, const Subset& part) {
  const bool mixed = source.parts().size() > 1;
  return absl::FailedPreconditionError(fmt::format(
      "{}{}; token files are fed as rows: give --tokens (in Python tokens=){}", mixed ? part.dataset->uri() + ": " : "",
      NoImages(part.index().field_names()), mixed ? ", and mix them with token files only" : ""));
}

// Returns the fields of images. It is empty if there are none, and none are needed.
absl::StatusOr<std::vector<std::string>> FindImages(const Source& source, const std::string& wanted,
                                                    bool allow_arrays) {
  const std::vector<std::string> names = FieldNames(source);
  if (!wanted.empty()) {
    if (std::find(names.begin(), names.end(), wanted) != names.end()) return std::vector<std::string>{wanted};
    return absl::InvalidArgumentError(
        fmt::format("the data set has no field '{}'; its fields are: {}", wanted, fmt::join(names, ", ")));
  }
  std::set<std::string> images;
  for (const Subset& part : source.parts())
    images.insert(part.index().image_fields().begin(), part.index().image_fields().end());
  bool all_arrays = true;
  for (const Subset& part : source.parts()) {
    ASSIGN_OR_RETURN(const bool arrays, HoldsArrays(part));
    const bool has_images = !part.index().image_fields().empty();
    if (arrays && !has_images && (!images.empty() || !allow_arrays)) return NoImagesButArrays(source, part);
    all_arrays = all_arrays && arrays;
  }
  if (!images.empty()) return std::vector<std::string>(images.begin(), images.end());
  if (all_arrays) return std::vector<std::string>();
  return absl::FailedPreconditionError(NoImages(names));
}

absl::Status CheckField(const Source& source, const BatchField& field) {
  for (const Subset& part : source.parts()) {
    const std::vector<std::string>& names = part.index().field_names();
    if (std::find(names.begin(), names.end(), field.field) != names.end()) continue;
    return absl::InvalidArgumentError(
        fmt::format("the data set {} has no field '{}' for the {} '{}'; its fields are: {}", part.dataset->uri(),
                    field.field, KindNameOf(field), field.name, fmt::join(names, ", ")));
  }
  return absl::OkStatus();
}

// Checks the label by the first sample of each part. If a format says what is in a field, a field that is no label is
// reported at once. (Floats may well be whole numbers, and those of RecordIO nearly always are.)
absl::Status CheckLabel(const Source& source, const BatchField& label) {
  if (label.is_value() || !label.label.json_path.empty()) return absl::OkStatus();
  for (const Subset& part : source.parts()) {
    if (part.size() == 0) continue;
    IndexedSample first;
    RETURN_IF_ERROR(part.index().Lookup(part.SampleAt(0), &first));
    const auto found = std::find_if(first.fields.begin(), first.fields.end(),
                                    [&](const IndexedField& field) { return field.name == label.field; });
    if (found == first.fields.end() || found->is_inline) continue;
    const FieldType type = TypeOfEncoding(found->encoding);
    std::string_view advice;
    if (type == FieldType::kNdarray) advice = "arrays; deliver it as such (Python: fields={'x': millrace.Array(...)})";
    if (type == FieldType::kJson)
      advice =
          "JSON; say which member is the label (feed: --label-kind json:PATH; Python: millrace.Label(field, path=))";
    if (advice.empty()) continue;
    return absl::InvalidArgumentError(fmt::format("the field '{}' of {} is to be the label, and it holds {}",
                                                  label.field, part.dataset->uri(), advice));
  }
  return absl::OkStatus();
}

// Numbers the classes of all parts. If classes are names, each data set numbers its own. In a mix of parts that number
// them differently, they are numbered by all names.
absl::StatusOr<std::vector<std::vector<int64_t>>> NumberClasses(const Source& source, const BatchField& label) {
  std::vector<std::vector<int64_t>> numbers;
  if (label.field != "cls" || label.label != LabelSpec{}) return numbers;
  std::set<std::string> all;
  const Dataset* numbered = nullptr;
  for (const Subset& part : source.parts()) {
    const std::vector<std::string>& names = part.index().class_names();
    if (names.empty()) numbered = part.dataset;
    all.insert(names.begin(), names.end());
  }
  bool alike = true;
  const std::vector<std::string>* first = nullptr;  // the order of the first part with names
  for (const Subset& part : source.parts()) {
    const std::vector<std::string>& names = part.index().class_names();
    numbers.emplace_back();
    for (const std::string& name : names) numbers.back().push_back(std::distance(all.begin(), all.find(name)));
    if (first == nullptr && !names.empty()) first = &names;
    if (names.empty() || names == *first) continue;
    alike = false;
    if (numbered == nullptr) continue;
    return absl::InvalidArgumentError(
        fmt::format("classes of {} are names, but classes of {} are numbers: names are numbered together with those "
                    "of the other data sets of the mix. Pack the data sets with numbers by one --class-map",
                    part.dataset->uri(), numbered->uri()));
  }
  if (alike) numbers.clear();
  return numbers;
}

bool AllHave(const Source& source, std::string_view field) {
  return std::all_of(source.parts().begin(), source.parts().end(), [&](const Subset& part) {
    const std::vector<std::string>& names = part.index().field_names();
    return std::find(names.begin(), names.end(), field) != names.end();
  });
}

// Returns true if the label is a float by itself, as it can be in a file of labels.
absl::StatusOr<bool> HasFloatLabels(const Source& source, std::string_view label) {
  for (const Subset& part : source.parts()) {
    if (part.size() == 0 || part.dataset->labels() == nullptr) return false;
    IndexedSample first;
    RETURN_IF_ERROR(part.index().Lookup(part.SampleAt(0), &first));
    const bool is_float = std::any_of(first.fields.begin(), first.fields.end(), [&](const IndexedField& field) {
      return field.name == label && field.is_inline && field.encoding == encoding::kFloat;
    });
    if (!is_float) return false;
  }
  return true;
}

// Returns "image" and "label", if there are any.
absl::StatusOr<std::vector<BatchField>> UsualFields(const Source& source, const LoaderOptions& options) {
  std::vector<BatchField> fields;
  ASSIGN_OR_RETURN(const std::vector<std::string> images,
                   FindImages(source, options.image_field, options.allow_arrays));
  if (!images.empty()) {
    fields.push_back({.name = "image",
                      .field = options.image_field,
                      .kind = Kind::kImage,
                      .image = options.image,
                      .like = "",
                      .label = {}});
  }
  LabelOptions label = options.label.value_or(LabelOptions{});
  if (!options.label) {
    ASSIGN_OR_RETURN(const bool is_float, HasFloatLabels(source, label.field));
    if (is_float) label.spec.kind = LabelSpec::Kind::kFloat;
  }
  if (options.label || AllHave(source, label.field)) {
    fields.push_back(
        {.name = "label", .field = label.field, .kind = Kind::kLabel, .image = {}, .like = "", .label = label.spec});
  }
  return fields;
}

absl::Status CheckNames(const std::vector<BatchField>& fields) {
  std::set<std::string_view> names;
  for (const BatchField& field : fields) {
    if (field.name.empty()) return absl::InvalidArgumentError("a field of the batch has an empty name");
    if (std::find(kReserved.begin(), kReserved.end(), field.name) != kReserved.end()) {
      return absl::InvalidArgumentError(fmt::format(
          "no field may be called '{}', as all batches have an entry of that name; choose another", field.name));
    }
    if (field.name == kFormerKey) {
      return absl::InvalidArgumentError(fmt::format(
          "no field may be called '{}': the keys of samples are the entry 'key' of every batch", field.name));
    }
    if (!names.insert(field.name).second) {
      return absl::InvalidArgumentError(fmt::format("two fields of the batch are called '{}'", field.name));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> FindLeader(const std::vector<PlannedField>& leaders, const BatchField& field) {
  const auto found = std::find_if(leaders.begin(), leaders.end(), [&](const PlannedField& leader) {
    return leader.wanted.name == field.like && leader.wanted.kind == Kind::kImage && leader.wanted.like.empty();
  });
  if (found != leaders.end()) return static_cast<size_t>(found - leaders.begin());
  return absl::InvalidArgumentError(
      fmt::format("'{}' is to be cropped like '{}', which is no image with a crop of its own among the fields",
                  field.name, field.like));
}

absl::StatusOr<PlannedField> PlanField(const Source& source, const LoaderOptions& options, const BatchField& wanted) {
  PlannedField field{.wanted = wanted};
  if (wanted.kind == Kind::kImage) {
    RETURN_IF_ERROR(Annotate(wanted.image.Check(), fmt::format("the image '{}'", wanted.name)));
    if (wanted.image.encoded && (!wanted.like.empty() || options.digest == DigestOf::kDecoded)) {
      return absl::InvalidArgumentError(fmt::format(
          "the image '{}' is not decoded here: it follows no other image, and there is no digest of its pixels",
          wanted.name));
    }
    ASSIGN_OR_RETURN(field.fields, FindImages(source, wanted.field, options.allow_arrays));
    return field;
  }
  if (wanted.kind == Kind::kBoxes && wanted.like.empty())
    return absl::InvalidArgumentError(fmt::format("the boxes '{}' name no image that they follow", wanted.name));
  RETURN_IF_ERROR(CheckField(source, wanted));
  field.fields = {wanted.field};
  if (wanted.kind == Kind::kLabel) {
    RETURN_IF_ERROR(CheckLabel(source, wanted));
    ASSIGN_OR_RETURN(field.class_numbers, NumberClasses(source, wanted));
  }
  return field;
}

// Reports lacking fields that the index knows before the first batch, and not in the middle of an epoch.
absl::Status CheckPresence(const Subset& part, bool mixed, const PlannedField& field) {
  if (!part.index().SomeLack(field.fields)) return absl::OkStatus();
  uint64_t lacking = 0;
  std::string first;
  RETURN_IF_ERROR(part.index().Scan(0, part.index().size(), [&](uint64_t sample, const IndexedSample& entry) {
    if (part.selection && !part.selection->Contains(sample)) return;
    const bool has = std::any_of(entry.fields.begin(), entry.fields.end(), [&](const IndexedField& stored) {
      return std::find(field.fields.begin(), field.fields.end(), stored.name) != field.fields.end();
    });
    if (has || lacking++ > 0) return;
    std::vector<std::string_view> names;
    for (const IndexedField& stored : entry.fields) names.push_back(stored.name);
    first = fmt::format("'{}' ({})", entry.key, fmt::join(names, ", "));
  }));
  if (lacking == 0) return absl::OkStatus();
  const std::string names = fmt::format("{}", fmt::join(field.fields, ","));
  const bool any_image = field.wanted.kind == Kind::kImage && field.wanted.field.empty();
  const bool several = field.fields.size() > 1;
  return absl::InvalidArgumentError(fmt::format(
      "{}{} of {} have no {}, the first of them {}; leave them out (feed --where {}={}, in Python "
      "dataset.where({}=[...])), or let others take their places, or padding (bad_samples \"replace\" or \"mask\")",
      mixed ? part.dataset->uri() + ": " : "", lacking, Counted(part.size(), "sample"),
      any_image ? fmt::format("image ({})", names) : names, first, several ? "has-any" : "has", names,
      several ? "has_any" : "has"));
}

std::string_view DtypeOf(const BatchField& field) {
  if (field.kind == Kind::kImage) return field.image.dtype == DType::kF32 ? "float32" : "uint8";
  return field.label.kind == LabelSpec::Kind::kFloat ? "float32" : "int64";
}

// Returns the padding in the form of BatchLayout::Add.
absl::StatusOr<int64_t> PaddingBitsOf(const BatchField& field, std::string_view dtype, const LoaderOptions& options) {
  constexpr int64_t kIgnoredLabel = -100;  // the usual ignore_index of PyTorch's losses
  constexpr int64_t kIgnoredClass = 255;   // the usual one of masks
  const auto found = std::find_if(options.padding.begin(), options.padding.end(),
                                  [&](const FieldPadding& each) { return each.name == field.name; });
  const bool is_float = dtype == "float32";
  if (found == options.padding.end()) {
    if (field.kind == Kind::kImage) return field.image.numbers ? kIgnoredClass : 0;
    if (!is_float) return kIgnoredLabel;
    const float missing = options.finite_padding ? 0.0F : std::numeric_limits<float>::quiet_NaN();
    return std::bit_cast<int32_t>(missing);
  }
  if (is_float) return std::bit_cast<int32_t>(static_cast<float>(found->value));
  const double least = dtype == "uint8" ? 0 : -0x1p53;
  const double most = dtype == "uint8" ? 255 : 0x1p53;
  if (found->value >= least && found->value <= most && std::trunc(found->value) == found->value)
    return static_cast<int64_t>(found->value);
  return absl::InvalidArgumentError(
      fmt::format("'{}' of a batch is {}, and padding of {} is none; choose a whole number from {} to {}", field.name,
                  dtype, found->value, static_cast<int64_t>(least), static_cast<int64_t>(most)));
}

}  // namespace

std::string_view KindNameOf(const BatchField& field) {
  switch (field.kind) {
    case Kind::kImage:
      return "image";
    case Kind::kLabel:
      return "label";
    case Kind::kText:
      return "text";
    case Kind::kJson:
      return "JSON";
    case Kind::kArray:
      return "array";
    case Kind::kBytes:
      return "bytes";
    case Kind::kBoxes:
      return "boxes";
  }
  return "";
}

absl::StatusOr<std::vector<PlannedField>> PlanFields(const Source& source, const LoaderOptions& options) {
  std::vector<BatchField> wanted = options.fields;
  if (wanted.empty()) {
    ASSIGN_OR_RETURN(wanted, UsualFields(source, options));
  }
  RETURN_IF_ERROR(CheckNames(wanted));
  std::stable_partition(wanted.begin(), wanted.end(), [](const BatchField& field) { return field.like.empty(); });
  std::vector<PlannedField> fields;
  size_t columns = 0;
  for (const BatchField& field : wanted) {
    ASSIGN_OR_RETURN(PlannedField planned, PlanField(source, options, field));
    if (!field.like.empty()) {
      ASSIGN_OR_RETURN(planned.leader, FindLeader(fields, field));
    }
    if (field.is_value()) planned.column = columns++;
    for (const Subset& part : source.parts()) {
      if (options.bad_samples == BadSamples::kFail)
        RETURN_IF_ERROR(CheckPresence(part, source.parts().size() > 1, planned));
    }
    fields.push_back(std::move(planned));
  }
  return fields;
}

absl::Status AddArrays(const std::vector<PlannedField>& fields, const LoaderOptions& options, BatchLayout* layout) {
  for (const PlannedField& field : fields) {
    const BatchField& wanted = field.wanted;
    if (wanted.is_value() || (wanted.kind != Kind::kLabel && wanted.kind != Kind::kImage)) continue;
    const std::string_view dtype = DtypeOf(wanted);
    ASSIGN_OR_RETURN(const int64_t padding, PaddingBitsOf(wanted, dtype, options));
    std::vector<uint64_t> dims;
    if (wanted.kind == Kind::kImage) {
      const ImageSpec& image = wanted.image;
      dims = {static_cast<uint64_t>(image.height), static_cast<uint64_t>(image.width)};
      const auto channels = static_cast<uint64_t>(image.channels);
      if (!image.numbers) dims.insert(image.layout == Layout::kNhwc ? dims.end() : dims.begin(), channels);
    }
    layout->Add(wanted.name, dtype, dims, padding);
  }
  return absl::OkStatus();
}

size_t CountValues(const std::vector<PlannedField>& fields) {
  return static_cast<size_t>(
      std::count_if(fields.begin(), fields.end(), [](const PlannedField& field) { return field.wanted.is_value(); }));
}

absl::StatusOr<uint64_t> ValueBytesOf(const std::vector<PlannedField>& fields, const Source& source, uint64_t item,
                                      IndexedSample* entry) {
  RETURN_IF_ERROR(source.Lookup(item, entry));
  uint64_t bytes = 0;
  for (const PlannedField& field : fields) {
    if (!field.wanted.is_value()) continue;
    for (const IndexedField& stored : entry->fields) {
      if (std::find(field.fields.begin(), field.fields.end(), stored.name) == field.fields.end()) continue;
      const uint64_t value =
          stored.is_inline ? stored.inline_text.size() : ValueBytesAtMost(stored.encoding, stored.length);
      bytes += field.wanted.kind == Kind::kBoxes ? BoxBytesAtMost(value) : value;
      if (field.wanted.kind == Kind::kImage) bytes += EncodedImage::kHeadBytes;
    }
  }
  return bytes;
}

}  // namespace millrace
