#include "pack/sample_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "shard/field_value.h"
#include "shard/sample_name.h"

namespace millrace {

namespace {

// Decides by its name for bytes that the index does not call an image. There are no encodings for other formats.
std::string_view ImageByName(std::string_view name) {
  const std::string_view extension = name.substr(name.rfind('.') + 1);
  if (extension == "png") return encoding::kPng;
  return extension == "jpg" || extension == "jpeg" ? encoding::kJpeg : encoding::kBytes;
}

FieldShape ShapeOfStored(const IndexedField& field, std::string_view as, const SampleView& view) {
  FieldShape shape{.name = std::string(as),
                   .length = ValueBytesAbout(field.encoding, field.length),
                   .type = TypeOfEncoding(field.encoding),
                   .image = {}};
  shape.is_empty_array = shape.type == FieldType::kNdarray && field.length == 0;
  if (shape.type != FieldType::kBytes) return shape;
  if (as == kClassField && field.name == kClassField && view.numbers_as_class) {
    shape.type = FieldType::kInt;
  } else if (IsImageEncoding(field.encoding)) {
    shape.image = field.encoding.ends_with(encoding::kPng) ? encoding::kPng : encoding::kJpeg;
  } else {
    shape.image = ImageByName(as);
  }
  return shape;
}

bool IsPlainNumber(std::string_view text) {
  constexpr size_t kDigits = 18;  // fit into 64 bits
  if (text.empty() || text.size() > kDigits || (text.size() > 1 && text.front() == '0')) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Returns true if every sample has a stored `cls` that is an integer without anything around it. The index counts
// classes by their numbers, trimmed: nothing was trimmed if the lengths of all are those of the numbers.
absl::StatusOr<bool> HoldsPlainNumbers(const Index& index) {
  if (index.kind() == DataKind::kRawObjects) return false;
  uint64_t samples = 0;
  uint64_t digits = 0;
  const bool named = !index.own_class_names().empty();  // the stored field has the number all the same
  for (size_t place = 0; place < index.class_counts().size(); ++place) {
    const ClassCount& count = index.class_counts()[place];
    if (!named && !IsPlainNumber(count.name)) return false;
    samples += count.samples;
    digits += count.samples * (named ? std::to_string(place).size() : count.name.size());
  }
  if (samples == 0 || samples != index.size()) return false;
  uint64_t stored = 0;
  RETURN_IF_ERROR(index.Scan(0, index.size(), [&stored](uint64_t, const IndexedSample& sample) {
    for (const IndexedField& field : sample.fields) {
      if (field.name == kClassField) stored += field.length;
    }
  }));
  return stored == digits;
}

absl::Status CheckNames(const SampleShape& sample) {
  std::vector<std::string_view> names;
  for (const FieldShape& field : sample.fields) names.emplace_back(field.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("sample '{}': two of its fields would be called '{}'; see --field", sample.key, *twice));
}

absl::StatusOr<std::string> InlineText(const IndexedSample& sample, const IndexedField& field, const SampleView& view) {
  if (!view.classes || field.name != kClassField) return std::string(field.inline_text);
  const bool named = sample.label && *sample.label < view.class_names.size();
  const std::string_view name = named ? std::string_view(view.class_names[*sample.label]) : ClassFolder(sample.key);
  const auto found = view.classes->find(name);
  if (found != view.classes->end()) return fmt::format("{}", found->second);
  return absl::InvalidArgumentError(
      fmt::format("sample '{}': the class map has no class '{}'; add it, or leave its folder out", sample.key, name));
}

}  // namespace

absl::StatusOr<SampleView> SampleView::Of(const Index& index, std::vector<FieldChoice> fields,
                                          std::optional<ClassMap> classes) {
  const std::vector<std::string>& names = index.field_names();
  for (const FieldChoice& field : fields) {
    if (std::find(names.begin(), names.end(), field.name) != names.end()) continue;
    return absl::InvalidArgumentError(
        fmt::format("--field: no sample has a field '{}'; there are {}", field.name, fmt::join(names, ", ")));
  }
  SampleView view{.fields = std::move(fields), .classes = std::move(classes)};
  if (view.classes) view.class_names = index.class_names();
  ASSIGN_OR_RETURN(view.numbers_as_class, HoldsPlainNumbers(index));
  return view;
}

absl::StatusOr<std::vector<FieldChoice>> NamesForLoaders(const Index& index) {
  const std::vector<std::string>& names = index.field_names();
  const auto is_there = [&names](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::vector<FieldChoice> fields;
  if (index.size() == 0) return fields;
  IndexedSample first;
  RETURN_IF_ERROR(index.Lookup(0, &first));
  bool renames = false;
  for (const IndexedField& field : first.fields) {
    FieldChoice& choice = fields.emplace_back(FieldChoice{.name = std::string(field.name), .as = {}});
    choice.as = choice.name;
    std::string_view name;
    if (index.image_fields() == std::vector{choice.name} && !IsImageField(choice.name)) {
      name = field.encoding == encoding::kPng ? "png" : "jpg";
    } else if (choice.name == "label" && field.encoding == "i8") {
      name = kClassField;
    }
    if (name.empty() || is_there(name)) continue;
    choice.as = std::string(name);
    renames = true;
  }
  // Fields that the first sample lacks would be left out.
  if (!renames || fields.size() != names.size()) fields.clear();
  return fields;
}

bool IsPackedImage(const FieldShape& field) {
  if (field.type != FieldType::kBytes) return false;
  const bool has_encoding = !field.image.empty() && field.image != encoding::kBytes;
  return has_encoding || IsImageField(field.name);  // there are no encodings for other formats than JPEG and PNG
}

absl::Status ShapeOf(const IndexedSample& sample, const SampleView& view, PackedSample* out) {
  out->shape.key = sample.key;
  out->shape.fields.clear();
  out->stored.clear();
  out->is_exact = true;
  out->most_bytes = sample.span.length;
  uint64_t values = 0;
  const auto name_of = [&view](const IndexedField& field) -> std::optional<std::string_view> {
    if (view.fields.empty()) return field.name;
    for (const FieldChoice& choice : view.fields) {
      if (choice.name == field.name) return choice.as;
    }
    return std::nullopt;
  };
  // The name is for messages only, and so just where the two differ.
  const auto source_name = [](const IndexedField& field, std::string_view as) {
    return field.name == as ? std::string() : std::string(field.name);
  };
  for (const IndexedField& field : sample.fields) {
    const std::optional<std::string_view> as = name_of(field);
    if (!as) continue;
    if (!field.is_inline) {
      out->stored.push_back(field);
      continue;
    }
    ASSIGN_OR_RETURN(std::string text, InlineText(sample, field, view));
    FieldShape& shape = out->shape.fields.emplace_back();
    shape.name = *as;
    shape.source_name = source_name(field, *as);
    shape.length = text.size();
    shape.type = TypeOfEncoding(field.encoding);
    shape.value = std::move(text);
  }
  std::sort(out->stored.begin(), out->stored.end(), [](const IndexedField& a, const IndexedField& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.length < b.length;
  });
  for (const IndexedField& field : out->stored) {
    const std::string_view as = *name_of(field);
    out->shape.fields.push_back(ShapeOfStored(field, as, view));
    out->shape.fields.back().source_name = source_name(field, as);
    values += ValueBytesAtMost(field.encoding, field.length);
    const bool is_changed = !view.images.empty() && IsPackedImage(out->shape.fields.back());
    out->is_exact = out->is_exact && IsStoredAsValue(field.encoding) && !is_changed;
  }
  out->most_bytes = std::max(out->most_bytes, values);
  if (view.fields.empty()) return absl::OkStatus();
  if (!out->shape.fields.empty()) return CheckNames(out->shape);
  return absl::InvalidArgumentError(
      fmt::format("sample '{}' does not have any of the fields that --field names; `millrace inspect` lists the fields",
                  sample.key));
}

}  // namespace millrace
