#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "base/crypto.h"
#include "dataset/index_impl.h"
#include "shard/field_value.h"
#include "shard/sample_name.h"
#include "shard/shard_sample.h"

namespace millrace {

using namespace index_format;  // NOLINT: the vocabulary of this file

absl::Status Index::Impl::Open() {
  if (data.size() < kHeadBytes || AsText(data.first(kHeadMagic.size())) != kHeadMagic) {
    return absl::InvalidArgumentError("not a Millrace index");
  }
  if (LoadLe<uint32_t>(data.data() + 12) != Crc32c(data.first(12))) return Damaged("its head");
  const auto version = LoadLe<uint32_t>(data.data() + 8);
  older_version = version == kOlderVersion;
  if (version != kVersion && !older_version) {
    return absl::InvalidArgumentError(
        fmt::format("index of version {}; this Millrace reads version {}", version, kVersion));
  }
  RETURN_IF_ERROR(ReadFoot());
  return ReadNames();
}

absl::Status Index::Impl::ReadFoot() {
  const size_t foot_begin = older_version ? kFootSamples : kFootWithoutCrc;
  const size_t foot_bytes = kFootBytes - foot_begin;
  if (data.size() < kHeadBytes + foot_bytes) return Damaged("it is cut short");
  const std::byte* foot = data.data() + data.size() - kFootBytes;
  if (AsText({foot + kFootMagicAt, kFootMagic.size()}) != kFootMagic) return Damaged("it is cut short");
  if (LoadLe<uint32_t>(foot + kFootCrc) != Crc32c({foot + foot_begin, kFootCrc - foot_begin}))
    return Damaged("its foot");
  samples_without_crc = older_version ? 0 : LoadLe<uint64_t>(foot + kFootWithoutCrc);
  samples = LoadLe<uint64_t>(foot + kFootSamples);
  objects = LoadLe<uint64_t>(foot + kFootObjects);
  span_bytes = LoadLe<uint64_t>(foot + kFootSpanBytes);
  max_span = LoadLe<uint64_t>(foot + kFootMaxSpan);
  fingerprint = LoadLe<uint64_t>(foot + kFootFingerprint);
  class_runs = LoadLe<uint64_t>(foot + kFootLabelRuns);
  object_table = LoadLe<uint64_t>(foot + kFootObjectTable);
  sample_table = LoadLe<uint64_t>(foot + kFootSampleTable);
  names_at = LoadLe<uint64_t>(foot + kFootNames);
  names_bytes = LoadLe<uint64_t>(foot + kFootNamesBytes);
  const auto kind_and_flags = LoadLe<uint32_t>(foot + kFootKind);
  const uint32_t stored_kind = kind_and_flags & ~(kQuotesAreText | kClassesUnread);
  if (stored_kind > static_cast<uint32_t>(kLastDataKind)) return Damaged("its foot");
  // Other modules size their buffers by it. With this bound no sum of sizes overflows.
  if (max_span > kMaxOffset || span_bytes / std::max<uint64_t>(samples, 1) > max_span) return Damaged("its foot");
  kind = static_cast<DataKind>(stored_kind);
  quotes_are_text = (kind_and_flags & kQuotesAreText) != 0;
  classes_unread = (kind_and_flags & kClassesUnread) != 0;
  unit = OffsetUnit(kind);

  // The sections follow one another without gaps, so the offset of each gives the size of the one before. The first
  // check bounds the counts.
  const uint64_t size = data.size() - foot_bytes;
  if (samples > size || samples_without_crc > samples || objects > size || objects > UINT32_MAX ||
      names_bytes > kMaxNamesBytes || object_table < kHeadBytes || object_table > size) {
    return Damaged("its foot");
  }
  const uint64_t object_entries = (objects + kBlockItems - 1) / kBlockItems * kTableEntryBytes;
  const uint64_t sample_entries = (samples + kBlockItems - 1) / kBlockItems * kTableEntryBytes;
  if (sample_table != object_table + object_entries || names_at != sample_table + sample_entries || names_at > size ||
      size - names_at != names_bytes) {
    return Damaged("its foot");
  }
  if (LoadLe<uint32_t>(foot + kFootNamesCrc) != Crc32c(data.subspan(names_at, names_bytes)))
    return Damaged("its names");
  return absl::OkStatus();
}

absl::Status Index::Impl::ReadNames() {
  Decoder names(data.subspan(names_at, names_bytes));
  const uint64_t name_count = names.Varint();
  if (name_count > kMaxFieldNames) return Damaged("its names");
  for (uint64_t i = 0; i < name_count && names.ok(); ++i) stored_names.emplace_back(names.Text(names.Varint()));
  encodings.emplace_back();
  const uint64_t encoding_count = names.Varint();
  if (encoding_count > kMaxEncodings) return Damaged("its names");
  for (uint64_t i = 0; i < encoding_count && names.ok(); ++i) encodings.emplace_back(names.Text(names.Varint()));
  const uint64_t layout_count = names.Varint();
  if (layout_count > kMaxLayouts) return Damaged("its names");
  for (uint64_t i = 0; i < layout_count; ++i) {
    if (!ReadLayout(&names)) return Damaged("its names");
  }
  ReadClasses(&names);
  if (names.ok() && !names.at_end()) ReadOwnClassNames(&names);
  if (!names.ok() || !names.at_end()) return Damaged("its names");
  ListFields();
  return absl::OkStatus();
}

void Index::Impl::ListFields() {
  field_names = stored_names;
  std::erase(field_names, kHiddenField);
  std::sort(field_names.begin(), field_names.end());
  std::set<std::string_view> images;
  for (const FieldLayout& layout : layouts) {
    for (const LayoutField& field : layout.fields) {
      if (field.kind != FieldKind::kStored || field.hidden()) continue;
      const std::string& name = stored_names[field.name];
      if (IsImageEncoding(encodings[field.encoding]) || IsImageField(name)) images.insert(name);
    }
  }
  image_fields.assign(images.begin(), images.end());
}

bool Index::Impl::ReadLayoutField(Decoder* names, LayoutField* field) const {
  const uint64_t head = names->Varint();
  const uint64_t field_kind = head & ((uint64_t{1} << kFieldKindBits) - 1);
  if (!names->ok() || head >> kFieldKindBits >= stored_names.size()) return false;
  if (field_kind > static_cast<uint64_t>(FieldKind::kValue)) return false;
  field->kind = static_cast<FieldKind>(field_kind);
  const uint64_t encoding = field->kind != FieldKind::kClass ? names->Varint() : 0;
  if (!names->ok() || encoding >= encodings.size()) return false;
  field->name = static_cast<uint32_t>(head >> kFieldKindBits);
  field->encoding = static_cast<uint32_t>(encoding);
  return true;
}

bool Index::Impl::ReadLayout(Decoder* names) {
  const uint64_t head = names->Varint();
  const uint64_t fields = head >> 1;
  FieldLayout layout{.gap = names->Varint(), .fields = {}, .labelled = (head & 1) != 0};
  // There may be one more than the writer takes: the class of a raw object.
  if (!names->ok() || fields > kMaxSampleFields + 1 || layout.gap > kMaxOffset / unit) return false;
  uint64_t stored = 0;
  for (uint64_t i = 0; i < fields; ++i) {
    LayoutField& field = layout.fields.emplace_back();
    if (!ReadLayoutField(names, &field)) return false;
    stored += field.kind == FieldKind::kStored ? 1 : 0;
    layout.has_values = layout.has_values || field.kind == FieldKind::kValue;
    layout.in_labels_file =
        layout.in_labels_file || (field.kind == FieldKind::kValue && stored_names[field.name] == kHiddenField);
    if (field.kind != FieldKind::kClass) continue;
    // A sample has one class, whether that is a field or not.
    if (layout.labelled) return false;
    layout.labelled = true;
    has_class_field = true;
  }
  if (stored == 0) return false;
  labelled = labelled || layout.labelled;
  std::vector<uint32_t> sorted;
  for (uint32_t i = 0; i < layout.fields.size(); ++i) {
    if (stored_names[layout.fields[i].name] != kHiddenField) sorted.push_back(i);
  }
  layout.visible = static_cast<uint32_t>(sorted.size());
  std::sort(sorted.begin(), sorted.end(), [&](uint32_t a, uint32_t b) {
    return stored_names[layout.fields[a].name] < stored_names[layout.fields[b].name];
  });
  for (uint32_t place = 0; place < sorted.size(); ++place) layout.fields[sorted[place]].place = place;
  layouts.push_back(std::move(layout));
  return true;
}

void Index::Impl::ReadClasses(Decoder* names) {
  const uint64_t count = names->Varint();
  if (count > kMaxClasses) names->Fail();
  for (uint64_t i = 0; i < count && names->ok(); ++i) {
    std::string name(names->Text(names->Varint()));
    class_counts.push_back({.name = std::move(name), .samples = names->Varint()});
  }
  // Classes are stored in the order of their first sample, which is not quite that of their names ("a-b/" comes before
  // "a/").
  std::vector<uint32_t> sorted(class_counts.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  const bool by_number = !has_class_field;
  std::sort(sorted.begin(), sorted.end(), [&](uint32_t a, uint32_t b) {
    const std::string& x = class_counts[a].name;
    const std::string& y = class_counts[b].name;
    if (by_number && x.size() != y.size()) return x.size() < y.size();
    return x < y;
  });
  class_places.resize(sorted.size());
  std::vector<ClassCount> ordered;
  for (size_t place = 0; place < sorted.size(); ++place) {
    ordered.push_back(std::move(class_counts[sorted[place]]));
    class_places[sorted[place]] = static_cast<uint32_t>(place);
    if (by_number) continue;
    class_texts.push_back(fmt::format("{}", place));
    class_names.push_back(ordered.back().name);
  }
  class_counts = std::move(ordered);
}

void Index::Impl::ReadOwnClassNames(Decoder* names) {
  const uint64_t count = names->Varint();
  if (count == 0 || count > kMaxClasses || has_class_field) return names->Fail();
  for (uint64_t i = 0; i < count && names->ok(); ++i) own_class_names.emplace_back(names->Text(names->Varint()));
}

absl::StatusOr<std::unique_ptr<Index>> Index::Open(SharedArtifact artifact) {
  auto impl = std::make_unique<Impl>();
  impl->data = artifact->bytes();
  impl->artifact = std::move(artifact);
  const absl::Status opened = impl->Open();
  RETURN_IF_ERROR(impl->artifact->uri().empty() ? opened : Annotate(opened, impl->artifact->uri()));
  return std::unique_ptr<Index>(new Index(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<Index>> Index::Open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  return Open(std::make_shared<Artifact>(path, std::move(file)));
}

absl::StatusOr<std::unique_ptr<Index>> Index::FromBytes(std::string bytes) {
  return Open(std::make_shared<Artifact>("", std::move(bytes)));
}

}  // namespace millrace
