#include "inspect/sample_values.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/size.h"
#include "dataset/field_of_sample.h"
#include "inspect/shown_text.h"
#include "shard/field_value.h"
#include "shard/sample_name.h"

namespace millrace {

namespace {

constexpr size_t kMaxDescribedBytes = 4096;     // more than anybody reads in a box
constexpr size_t kLooked = 512;                 // bytes by which text is told from other data
constexpr uint64_t kMaxShownLabelBytes = 1024;  // of what is not called a label

// Returns true for "label" and "image/class/label", but not for "image/class/labels".
bool IsLabelName(std::string_view field) {
  constexpr std::string_view kLabel = "label";
  if (!field.ends_with(kLabel)) return false;
  field.remove_suffix(kLabel.size());
  return field.empty() || field.back() == '/' || field.back() == '.' || field.back() == '_';
}

// A rank of 0 is best; kNoLabel: only if it is a short text.
constexpr int kNoLabel = 3;
int LabelRank(std::string_view field) {
  if (field == kClassField) return 0;
  if (field == "label") return 1;
  return IsLabelName(field) ? 2 : kNoLabel;
}

bool IsText(ByteSpan value) {
  return LooksLikeText(AsText(value.first(std::min(value.size(), kLooked))), value.size() > kLooked);
}

}  // namespace

bool IsImage(const IndexedField& field, const std::vector<std::string>& image_fields) {
  return !field.is_inline && std::binary_search(image_fields.begin(), image_fields.end(), field.name);
}

std::string_view ClassOf(const IndexedSample& sample, const Index& index) {
  return sample.label ? std::string_view(index.class_counts()[*sample.label].name) : std::string_view();
}

std::string LabelOf(const IndexedSample& sample, ByteSpan bytes, const Index& index) {
  if (sample.label) return std::string(ClassOf(sample, index));
  std::vector<const IndexedField*> fields;
  for (const IndexedField& field : sample.fields) fields.push_back(&field);
  std::stable_sort(fields.begin(), fields.end(), [](const IndexedField* a, const IndexedField* b) {
    return LabelRank(a->name) < LabelRank(b->name);
  });
  std::string scratch;
  for (const IndexedField* field : fields) {
    const bool named = LabelRank(field->name) < kNoLabel;
    if (IsImage(*field, index.image_fields()) || (!named && field->length > kMaxShownLabelBytes)) continue;
    const absl::StatusOr<ByteSpan> value = ValueOf(*field, bytes, &scratch);
    if (!value.ok() || value->empty() || (!named && !IsText(*value))) continue;
    return std::string(AsText(value->first(std::min<size_t>(value->size(), kMaxShownLabelBytes))));
  }
  return {};
}

std::string DescribeFields(const IndexedSample& sample, ByteSpan bytes) {
  std::string text;
  std::string scratch;
  for (const IndexedField& field : sample.fields) {
    if (text.size() >= kMaxDescribedBytes) break;
    const absl::StatusOr<ByteSpan> value = ValueOf(field, bytes, &scratch);
    text += fmt::format("{}: ", field.name);
    if (!value.ok()) {
      text += ToStd(value.status().message());
    } else if (IsText(*value)) {
      text += AsText(value->first(std::min(value->size(), kLooked)));
    } else {
      text += fmt::format("{}, {}", FieldTypeName(TypeOfEncoding(field.encoding)), FormatSize(value->size()));
    }
    if (!text.ends_with('\n')) text += '\n';
  }
  return text;
}

}  // namespace millrace
