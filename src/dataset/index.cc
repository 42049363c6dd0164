#include "dataset/index.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/counted.h"
#include "base/crypto.h"
#include "dataset/index_impl.h"
#include "shard/field_value.h"

namespace millrace {

using namespace index_format;  // NOLINT: the vocabulary of this file

// Returns the payload of a verified block.
absl::StatusOr<ByteSpan> Index::Impl::Block(BlockKind block_kind, uint64_t number) const {
  const uint64_t table = block_kind == BlockKind::kSamples ? sample_table : object_table;
  const auto offset = LoadLe<uint64_t>(data.data() + table + number * kTableEntryBytes);
  const char* what = block_kind == BlockKind::kSamples ? "samples" : "objects";
  // Blocks end where the first table begins.
  if (offset < kHeadBytes || offset > object_table || object_table - offset < kBlockHeaderBytes) {
    return Damaged(fmt::format("block {} of its {}", number, what));
  }
  const auto crc = LoadLe<uint32_t>(data.data() + offset);
  const auto length = LoadLe<uint32_t>(data.data() + offset + 4);
  if (length > object_table - offset - kBlockHeaderBytes)
    return Damaged(fmt::format("block {} of its {}", number, what));
  const ByteSpan payload = data.subspan(offset + kBlockHeaderBytes, length);
  if (BlockCrc(block_kind, number, payload) != crc) return Damaged(fmt::format("block {} of its {}", number, what));
  return payload;
}

// Returns the object of a block's first sample.
absl::StatusOr<uint64_t> Index::Impl::FirstObject(uint64_t block) const {
  ASSIGN_OR_RETURN(const ByteSpan payload, Block(BlockKind::kSamples, block));
  return Decoder(payload).Varint();
}

// Decodes the places of the stored fields. If `out` is null, they are passed over.
inline bool Index::Impl::DecodeStored(Decoder* block, SampleCursor* cursor, bool irregular, IndexedSample* out) const {
  const FieldLayout& layout = *cursor->layout;
  bool first = true;
  uint64_t begin = 0;
  for (const LayoutField& field : layout.fields) {
    if (field.kind != FieldKind::kStored) continue;
    const uint64_t gap = first || irregular ? block->Varint() : layout.gap;
    const uint64_t length = block->Varint();
    if (!block->ok() || gap > kMaxOffset / unit || length > kMaxOffset) return false;
    const uint64_t offset = AlignToUnit(cursor->end, unit) + gap * unit;
    if (first) begin = offset;
    first = false;
    cursor->end = offset + length;
    if (cursor->end > kMaxOffset) return false;
    if (out == nullptr || field.hidden()) continue;
    out->fields[field.place] = {.name = stored_names[field.name],
                                .offset = offset - begin,
                                .length = length,
                                .inline_text = {},
                                .is_inline = false,
                                .encoding = encodings[field.encoding]};
  }
  if (out != nullptr) out->span = {.offset = begin, .length = cursor->end - begin};
  return true;
}

inline bool Index::Impl::DecodeValues(Decoder* block, const FieldLayout& layout, IndexedSample* out) const {
  for (const LayoutField& field : layout.fields) {
    if (field.kind != FieldKind::kValue) continue;
    const uint64_t length = block->Varint();
    if (length > kMaxValueBytes) return false;
    const std::string_view text = block->Text(length);
    if (!block->ok()) return false;
    if (out == nullptr || field.hidden()) continue;
    out->fields[field.place] = {.name = stored_names[field.name],
                                .offset = 0,
                                .length = length,
                                .inline_text = text,
                                .is_inline = true,
                                .encoding = encodings[field.encoding]};
  }
  return true;
}

inline bool Index::Impl::DecodeLabel(Decoder* block, const FieldLayout& layout, IndexedSample* out) const {
  const uint64_t ordinal = block->Varint();
  // Numbers may be too many to keep.
  const bool kept = !class_places.empty() || has_class_field;
  if (!block->ok() || (kept && ordinal >= class_places.size())) return false;
  if (out == nullptr || !kept) return true;
  const uint32_t place = class_places[ordinal];
  out->label = place;
  if (!has_class_field) return true;
  for (const LayoutField& field : layout.fields) {
    if (field.kind != FieldKind::kClass) continue;
    const std::string_view text = class_texts[place];
    out->fields[field.place] = {.name = stored_names[field.name],
                                .offset = 0,
                                .length = text.size(),
                                .inline_text = text,
                                .is_inline = true,
                                .encoding = encoding::kInt};
  }
  return true;
}

// Decodes the next sample; its object, fields and so on are only set if it is the wanted one. Returns false if the
// index is damaged.
bool Index::Impl::DecodeSample(Decoder* block, SampleCursor* cursor, bool wanted, IndexedSample* out) const {
  const uint64_t head = block->Varint();
  const uint64_t layout_id = head >> (older_version ? kOlderSampleFlagBits : kSampleFlagBits);
  if (!block->ok() || layout_id >= layouts.size()) return false;
  const FieldLayout& layout = layouts[layout_id];
  cursor->layout = &layout;
  if ((head & kSampleNewObject) != 0) {
    const uint64_t skipped = block->Varint();
    if (skipped >= objects) return false;
    cursor->object += skipped + 1;
    cursor->end = 0;
  }
  block->Key(&out->key);
  if (!block->ok() || cursor->object >= objects) return false;
  IndexedSample* const to = wanted ? out : nullptr;
  if (wanted) {
    out->object = static_cast<uint32_t>(cursor->object);
    out->fields.resize(layout.visible);
    out->in_labels_file = layout.in_labels_file;
    out->label.reset();
  }
  if (!DecodeStored(block, cursor, (head & kSampleIrregular) != 0, to)) return false;
  if (layout.has_values && !DecodeValues(block, layout, to)) return false;
  if (layout.labelled && !DecodeLabel(block, layout, to)) return false;
  std::optional<uint32_t> crc;
  if (older_version || (head & kSampleWithoutCrc) == 0) crc = block->U32();
  if (wanted) {
    out->crc32c = crc;
    if (out->span.length > max_span) return false;
  }
  return block->ok();
}

// Makes a sample as the writer was given it. The views are into the index, the sample and the two vectors.
void Index::Impl::Tell(const IndexedSample& sample, const FieldLayout& layout, std::vector<NewSampleField>* fields,
                       std::vector<NewSampleValue>* values, NewSample* told) const {
  fields->clear();
  values->clear();
  for (const LayoutField& as_stored : layout.fields) {
    if (as_stored.hidden()) continue;
    const IndexedField& field = sample.fields[as_stored.place];
    if (as_stored.kind == FieldKind::kStored) {
      fields->push_back({.name = field.name,
                         .offset = sample.span.offset + field.offset,
                         .length = field.length,
                         .encoding = field.encoding});
    } else if (as_stored.kind == FieldKind::kValue) {
      values->push_back({.name = field.name, .text = field.inline_text, .encoding = field.encoding});
    }
  }
  *told = {.key = sample.key, .fields = *fields, .crc32c = sample.crc32c, .label = {}, .values = *values};
  if (sample.label) told->label = class_counts[*sample.label].name;
}

Index::Index(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Index::~Index() = default;

uint64_t Index::size() const {
  return impl_->samples;
}
uint64_t Index::objects() const {
  return impl_->objects;
}
bool Index::quotes_are_text() const {
  return impl_->quotes_are_text;
}

DataKind Index::kind() const {
  return impl_->kind;
}
uint64_t Index::fingerprint() const {
  return impl_->fingerprint;
}
uint64_t Index::samples_without_crc() const {
  return impl_->samples_without_crc;
}
bool Index::classes_unread() const {
  return impl_->classes_unread;
}
bool Index::is_of_older_version() const {
  return impl_->older_version;
}
uint64_t Index::total_bytes() const {
  return impl_->span_bytes;
}
uint64_t Index::max_span_bytes() const {
  return impl_->max_span;
}
double Index::mean_span_bytes() const {
  return impl_->samples == 0 ? 0 : static_cast<double>(impl_->span_bytes) / static_cast<double>(impl_->samples);
}
const std::vector<std::string>& Index::field_names() const {
  return impl_->field_names;
}
const std::vector<std::string>& Index::image_fields() const {
  return impl_->image_fields;
}
const std::vector<std::string>& Index::class_names() const {
  return impl_->class_names;
}
const std::vector<std::string>& Index::own_class_names() const {
  return impl_->own_class_names;
}
const std::vector<ClassCount>& Index::class_counts() const {
  return impl_->class_counts;
}
bool Index::has_labels() const {
  return impl_->labelled && !impl_->class_counts.empty();
}
absl::Status Index::OrderClasses(const std::vector<std::string>& names) {
  if (!has_labels()) return absl::InvalidArgumentError("the index knows no classes");
  absl::flat_hash_map<std::string, uint32_t> places;
  std::vector<ClassCount> counts;
  for (size_t place = 0; place < names.size(); ++place) {
    const bool numbered = impl_->class_names.empty();
    counts.push_back({.name = names[place], .samples = 0});
    if (!places.emplace(numbered ? fmt::format("{}", place) : names[place], place).second)
      return absl::InvalidArgumentError(fmt::format("the class '{}' is given twice", names[place]));
  }
  std::vector<uint32_t> moved;  // by the place until now
  for (const ClassCount& known : impl_->class_counts) {
    const auto found = places.find(known.name);
    if (found == places.end()) {
      return absl::InvalidArgumentError(fmt::format("its class '{}', with {}, is not among the {} that were given",
                                                    known.name, Counted(known.samples, "sample"),
                                                    Counted(names.size(), "name")));
    }
    moved.push_back(found->second);
    counts[found->second].samples = known.samples;
  }
  for (uint32_t& place : impl_->class_places) place = moved[place];
  impl_->class_names = names;
  impl_->class_counts = std::move(counts);
  impl_->class_texts.clear();
  for (size_t place = 0; place < names.size(); ++place) impl_->class_texts.push_back(fmt::format("{}", place));
  return absl::OkStatus();
}
bool Index::TellsAll() const {
  return !impl_->labelled || has_labels();
}
uint64_t Index::class_runs() const {
  return impl_->class_runs;
}
uint64_t Index::file_bytes() const {
  return impl_->data.size();
}

absl::Status Index::Lookup(uint64_t sample, IndexedSample* out) const {
  if (sample >= impl_->samples) {
    return absl::InvalidArgumentError(
        fmt::format("there is no sample {}; the data set has {}", sample, impl_->samples));
  }
  const uint64_t number = sample / kBlockItems;
  ASSIGN_OR_RETURN(const ByteSpan payload, impl_->Block(BlockKind::kSamples, number));
  Decoder block(payload);
  SampleCursor cursor{.object = block.Varint()};
  out->key.clear();
  const uint64_t steps = sample % kBlockItems;
  for (uint64_t i = 0; i <= steps; ++i) {
    if (!impl_->DecodeSample(&block, &cursor, i == steps, out))
      return Damaged(fmt::format("block {} of its samples", number));
  }
  return absl::OkStatus();
}

absl::Status Index::Scan(uint64_t first, uint64_t last,
                         absl::FunctionRef<void(uint64_t, const IndexedSample&)> each) const {
  IndexedSample entry;
  for (uint64_t sample = first - first % kBlockItems; sample < last;) {
    const uint64_t number = sample / kBlockItems;
    ASSIGN_OR_RETURN(const ByteSpan payload, impl_->Block(BlockKind::kSamples, number));
    Decoder block(payload);
    SampleCursor cursor{.object = block.Varint()};
    entry.key.clear();
    for (const uint64_t end = std::min(last, (number + 1) * kBlockItems); sample < end; ++sample) {
      const bool wanted = sample >= first;
      if (!impl_->DecodeSample(&block, &cursor, wanted, &entry))
        return Damaged(fmt::format("block {} of its samples", number));
      if (wanted) each(sample, entry);
    }
  }
  return absl::OkStatus();
}

absl::Status Index::ScanObject(uint32_t object, uint64_t* block,
                               absl::FunctionRef<absl::Status(const NewSample&)> each) const {
  const uint64_t blocks = (impl_->samples + kBlockItems - 1) / kBlockItems;
  // Its first sample lies in the last block that begins with an object before it, or is the first of the next block.
  while (*block + 1 < blocks) {
    ASSIGN_OR_RETURN(const uint64_t first, impl_->FirstObject(*block + 1));
    if (first >= object) break;
    ++*block;
  }
  IndexedSample entry;
  std::vector<NewSampleField> fields;
  std::vector<NewSampleValue> values;
  NewSample told;
  IndexedObject whole;  // of raw objects with values
  for (uint64_t number = *block; number < blocks; ++number) {
    ASSIGN_OR_RETURN(const ByteSpan payload, impl_->Block(BlockKind::kSamples, number));
    Decoder decoder(payload);
    SampleCursor cursor{.object = decoder.Varint()};
    if (cursor.object > object) break;
    entry.key.clear();
    for (uint64_t left = std::min(kBlockItems, impl_->samples - number * kBlockItems); left > 0; --left) {
      if (!impl_->DecodeSample(&decoder, &cursor, true, &entry))
        return Damaged(fmt::format("block {} of its samples", number));
      if (cursor.object > object) return absl::OkStatus();
      if (cursor.object < object) continue;
      impl_->Tell(entry, *cursor.layout, &fields, &values, &told);
      if (kind() == DataKind::kRawObjects && !values.empty()) {
        RETURN_IF_ERROR(LookupObject(object, &whole));
        if (whole.size > entry.span.end()) told.class_file_bytes = whole.size - entry.span.end();
      }
      RETURN_IF_ERROR(each(told));
    }
  }
  return absl::OkStatus();
}

absl::Status Index::LookupObject(uint32_t object, IndexedObject* out) const {
  if (object >= impl_->objects) {
    return absl::InvalidArgumentError(
        fmt::format("there is no object {}; the data set has {}", object, impl_->objects));
  }
  const uint64_t number = object / kBlockItems;
  ASSIGN_OR_RETURN(const ByteSpan payload, impl_->Block(BlockKind::kObjects, number));
  Decoder block(payload);
  out->key.clear();
  const uint64_t steps = object % kBlockItems;
  for (uint64_t i = 0; i <= steps; ++i) {
    block.Key(&out->key);
    const uint64_t size = block.Varint();
    const uint64_t head = block.Varint();
    const uint64_t tag = head >> 1;
    const uint64_t text_bytes = tag < kEtagText ? 16 : tag - kEtagText;
    const std::string_view text = block.Text(text_bytes);
    const uint64_t parts = tag == kEtagHexParts ? block.Varint() : 0;
    if (!block.ok()) return Damaged(fmt::format("block {} of its objects", number));
    if (i < steps) continue;
    out->size = size;
    out->incomplete = (head & 1) != 0;
    if (tag >= kEtagText) {
      out->etag = text;
    } else {
      out->etag = HexEncode({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
      if (tag == kEtagHexParts) out->etag += fmt::format("-{}", parts);
    }
  }
  return absl::OkStatus();
}

// Looking at layouts is enough: each is that of some sample.
bool Index::SomeLack(const std::vector<std::string>& fields) const {
  const auto is_one = [&](const LayoutField& field) {
    return std::find(fields.begin(), fields.end(), impl_->stored_names[field.name]) != fields.end();
  };
  return std::any_of(impl_->layouts.begin(), impl_->layouts.end(), [&](const FieldLayout& layout) {
    return std::none_of(layout.fields.begin(), layout.fields.end(), is_one);
  });
}

bool Index::SomeLackLabels() const {
  return std::any_of(impl_->layouts.begin(), impl_->layouts.end(),
                     [](const FieldLayout& layout) { return !layout.in_labels_file; });
}

// Reads only the heads of blocks, since each block has its checksum in front.
uint64_t Index::ObjectsChecksum() const {
  Xxh3Stream checksums;
  checksums.UpdateLe64(impl_->objects);
  for (uint64_t number = 0; number * kBlockItems < impl_->objects; ++number) {
    const auto offset = LoadLe<uint64_t>(impl_->data.data() + impl_->object_table + number * kTableEntryBytes);
    if (offset <= impl_->object_table - kBlockHeaderBytes)  // else it is damaged, which look-ups say
      checksums.Update(impl_->data.subspan(offset, kBlockHeaderBytes));
  }
  return checksums.Digest().low;
}

absl::StatusOr<std::optional<uint32_t>> Index::FindObject(std::string_view key) const {
  IndexedObject object;
  uint64_t first = 0;
  for (uint64_t last = impl_->objects; first < last;) {
    const uint64_t middle = first + (last - first) / 2;
    RETURN_IF_ERROR(LookupObject(static_cast<uint32_t>(middle), &object));
    if (object.key == key) return static_cast<uint32_t>(middle);
    if (object.key < key) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return std::nullopt;
}

absl::Status Index::Verify() const {
  // Blocks lie back to back, in any order of kinds. Together with head, tables and foot they must account for every
  // byte.
  uint64_t bytes = 0;
  for (const BlockKind kind : {BlockKind::kSamples, BlockKind::kObjects}) {
    const uint64_t items = kind == BlockKind::kSamples ? impl_->samples : impl_->objects;
    for (uint64_t number = 0; number * kBlockItems < items; ++number) {
      ASSIGN_OR_RETURN(const ByteSpan payload, impl_->Block(kind, number));
      bytes += kBlockHeaderBytes + payload.size();
    }
  }
  return bytes == impl_->object_table - kHeadBytes ? absl::OkStatus() : Damaged("its blocks do not fill it");
}

}  // namespace millrace
