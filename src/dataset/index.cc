#include "dataset/index.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "base/crypto.h"
#include "dataset/index_decoder.h"
#include "dataset/index_format.h"
#include "shard/field_value.h"
#include "shard/sample_name.h"
#include "shard/shard_sample.h"

namespace millrace {

using namespace index_format;  // NOLINT: the vocabulary of this file

namespace {

absl::Status Damaged(std::string_view what) {
  return absl::DataLossError(fmt::format("damaged index ({}); build it anew with `millrace index URI`", what));
}

struct LayoutField {
  uint32_t name = 0;
  uint32_t place = 0;  // among the sample's fields by bytewise order of names
  bool is_inline = false;
  uint32_t encoding = 0;
};

struct Layout {
  uint64_t gap = 0;                 // in units
  std::vector<LayoutField> fields;  // as stored
};

// What decoding walks along a block.
struct SampleCursor {
  uint64_t object = 0;
  uint64_t end = 0;  // of the sample before, in the same object
};

}  // namespace

struct Index::Impl {
  ~Impl() {
    if (mapping != nullptr) munmap(mapping, data.size());
  }

  absl::Status Open();
  absl::Status ReadFoot();
  absl::Status ReadNames();
  bool ReadLayout(Decoder* names);
  void ReadClasses(Decoder* names);
  void ListFields();
  absl::StatusOr<ByteSpan> Block(BlockKind block_kind, uint64_t number) const;
  bool DecodeSample(Decoder* block, SampleCursor* cursor, bool wanted, IndexedSample* out) const;

  void* mapping = nullptr;
  std::string bytes;  // when not mapped
  ByteSpan data;

  uint32_t version = 0;
  uint64_t samples = 0;
  uint64_t objects = 0;
  DataKind kind = DataKind::kRawObjects;
  uint64_t unit = 1;
  uint64_t span_bytes = 0;
  uint64_t max_span = 0;
  uint64_t fingerprint = 0;
  uint64_t class_runs = 0;
  uint64_t object_table = 0;
  uint64_t sample_table = 0;
  uint64_t names_at = 0;
  uint64_t names_bytes = 0;

  std::vector<std::string> stored_names;  // by id
  std::vector<std::string> encodings;     // by id; the first is ""
  std::vector<std::string> field_names;   // sorted
  std::vector<std::string> image_fields;  // sorted
  std::vector<Layout> layouts;
  std::vector<std::string> class_names;
  std::vector<ClassCount> class_counts;
  std::vector<std::string> class_texts;  // by stored ordinal: the place among the sorted names
};

absl::Status Index::Impl::Open() {
  if (data.size() < kHeadBytes || AsText(data.first(kHeadMagic.size())) != kHeadMagic) {
    return absl::InvalidArgumentError("not a Millrace index");
  }
  if (LoadLe<uint32_t>(data.data() + 12) != Crc32c(data.first(12))) return Damaged("its head");
  version = LoadLe<uint32_t>(data.data() + 8);
  if (version == 0 || version > kNewestVersion) {
    return absl::InvalidArgumentError(
        fmt::format("index of version {}; this Millrace reads versions 1 to {}", version, kNewestVersion));
  }
  RETURN_IF_ERROR(ReadFoot());
  return ReadNames();
}

absl::Status Index::Impl::ReadFoot() {
  if (data.size() < kHeadBytes + kFootBytes) return Damaged("it is cut short");
  const std::byte* foot = data.data() + data.size() - kFootBytes;
  if (AsText({foot + kFootMagicAt, kFootMagic.size()}) != kFootMagic) return Damaged("it is cut short");
  if (LoadLe<uint32_t>(foot + kFootCrc) != Crc32c({foot, kFootCrc})) return Damaged("its foot");
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
  const auto stored_kind = LoadLe<uint32_t>(foot + kFootKind);
  if (stored_kind > static_cast<uint32_t>(kLastDataKind)) return Damaged("its foot");
  // Others size their buffers by it. Then no sum of sizes overflows.
  if (max_span > kMaxOffset || span_bytes / std::max<uint64_t>(samples, 1) > max_span) return Damaged("its foot");
  kind = static_cast<DataKind>(stored_kind);
  if (version != VersionOf(kind)) return Damaged("its foot");
  unit = OffsetUnit(kind);

  // The sections follow one another without gaps, so their offsets say each other's size. The first check bounds
  // the counts.
  const uint64_t size = data.size() - kFootBytes;
  if (samples > size || objects > size || objects > UINT32_MAX || names_bytes > kMaxNamesBytes ||
      object_table < kHeadBytes || object_table > size) {
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
  for (uint64_t i = 0; i < name_count && names.ok(); ++i) stored_names.emplace_back(names.Bytes(names.Varint()));
  encodings.emplace_back();
  if (version >= 2) {
    const uint64_t encoding_count = names.Varint();
    if (encoding_count > kMaxEncodings) return Damaged("its names");
    for (uint64_t i = 0; i < encoding_count && names.ok(); ++i) encodings.emplace_back(names.Bytes(names.Varint()));
  }
  const uint64_t layout_count = names.Varint();
  if (layout_count > kMaxLayouts) return Damaged("its names");
  for (uint64_t i = 0; i < layout_count; ++i) {
    if (!ReadLayout(&names)) return Damaged("its names");
  }
  ReadClasses(&names);
  if (!names.ok() || !names.at_end()) return Damaged("its names");
  ListFields();
  return absl::OkStatus();
}

void Index::Impl::ListFields() {
  field_names = stored_names;
  std::sort(field_names.begin(), field_names.end());
  std::set<std::string_view> images;
  for (const Layout& layout : layouts) {
    for (const LayoutField& field : layout.fields) {
      const std::string& name = stored_names[field.name];
      if (IsImageEncoding(encodings[field.encoding]) || IsImageField(name)) images.insert(name);
    }
  }
  image_fields.assign(images.begin(), images.end());
}

bool Index::Impl::ReadLayout(Decoder* names) {
  const uint64_t fields = names->Varint();
  Layout layout{.gap = names->Varint(), .fields = {}};
  // One more than the stored ones: the class of a raw object.
  if (!names->ok() || fields > kMaxSampleFields + 1 || layout.gap > kMaxOffset / unit) return false;
  uint64_t stored = 0;
  for (uint64_t i = 0; i < fields; ++i) {
    const uint64_t field = names->Varint();
    if (!names->ok() || field >> 1 >= stored_names.size()) return false;
    const bool is_inline = (field & 1) != 0;
    const uint64_t encoding = version >= 2 && !is_inline ? names->Varint() : 0;
    if (!names->ok() || encoding >= encodings.size()) return false;
    layout.fields.push_back({.name = static_cast<uint32_t>(field >> 1),
                             .place = 0,
                             .is_inline = is_inline,
                             .encoding = static_cast<uint32_t>(encoding)});
    stored += 1 - (field & 1);
  }
  if (stored == 0) return false;
  std::vector<uint32_t> sorted(layout.fields.size());
  std::iota(sorted.begin(), sorted.end(), 0);
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
    std::string name(names->Bytes(names->Varint()));
    class_counts.push_back({.name = std::move(name), .samples = names->Varint()});
  }
  // Stored in the order of their first sample, which is not quite that of their names ("a-b/" comes before "a/").
  std::vector<uint32_t> sorted(class_counts.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  const bool by_number = kind != DataKind::kRawObjects;
  std::sort(sorted.begin(), sorted.end(), [&](uint32_t a, uint32_t b) {
    const std::string& x = class_counts[a].name;
    const std::string& y = class_counts[b].name;
    if (by_number && x.size() != y.size()) return x.size() < y.size();
    return x < y;
  });
  class_texts.resize(by_number ? 0 : sorted.size());
  std::vector<ClassCount> ordered;
  for (size_t place = 0; place < sorted.size(); ++place) {
    ordered.push_back(std::move(class_counts[sorted[place]]));
    if (by_number) continue;
    class_texts[sorted[place]] = fmt::format("{}", place);
    class_names.push_back(ordered.back().name);
  }
  class_counts = std::move(ordered);
}

// The payload of a verified block.
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

// Decodes the next sample; its object, fields and so on are only filled in when it is the wanted one. False: damaged.
bool Index::Impl::DecodeSample(Decoder* block, SampleCursor* cursor, bool wanted, IndexedSample* out) const {
  const uint64_t head = block->Varint();
  const uint64_t layout_id = head >> kSampleFlagBits;
  if (!block->ok() || layout_id >= layouts.size()) return false;
  const Layout& layout = layouts[layout_id];
  const bool irregular = (head & kSampleIrregular) != 0;
  if ((head & kSampleNewObject) != 0) {
    const uint64_t skipped = block->Varint();
    if (skipped >= objects) return false;
    cursor->object += skipped + 1;
    cursor->end = 0;
  }
  block->Key(&out->key);
  if (!block->ok() || cursor->object >= objects) return false;
  if (wanted) out->fields.resize(layout.fields.size());

  bool first = true;
  uint64_t begin = 0;
  for (const LayoutField& field : layout.fields) {
    if (field.is_inline) continue;
    const uint64_t gap = first || irregular ? block->Varint() : layout.gap;
    const uint64_t length = block->Varint();
    if (!block->ok() || gap > kMaxOffset / unit || length > kMaxOffset) return false;
    const uint64_t offset = AlignToUnit(cursor->end, unit) + gap * unit;
    if (first) begin = offset;
    first = false;
    cursor->end = offset + length;
    if (cursor->end > kMaxOffset) return false;
    if (wanted) {
      out->fields[field.place] = {.name = stored_names[field.name],
                                  .offset = offset - begin,
                                  .length = length,
                                  .inline_text = {},
                                  .is_inline = false,
                                  .encoding = encodings[field.encoding]};
    }
  }
  for (const LayoutField& field : layout.fields) {
    if (!field.is_inline) continue;
    const uint64_t ordinal = block->Varint();
    if (!block->ok() || ordinal >= class_texts.size()) return false;
    if (!wanted) continue;
    const std::string_view text = class_texts[ordinal];
    out->fields[field.place] = {.name = stored_names[field.name],
                                .offset = 0,
                                .length = text.size(),
                                .inline_text = text,
                                .is_inline = true,
                                .encoding = encoding::kInt};
  }
  const uint32_t crc = block->U32();
  if (wanted) {
    out->object = static_cast<uint32_t>(cursor->object);
    out->span = {.offset = begin, .length = cursor->end - begin};
    out->crc32c = crc;
    if (out->span.length > max_span) return false;
  }
  return block->ok();
}

Index::Index(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Index::~Index() = default;

absl::StatusOr<std::unique_ptr<Index>> Index::Open(const std::string& path) {
  const auto failed = [&](int error) {
    const std::string message = fmt::format("{}: {}", path, std::strerror(error));
    if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message);
    return error == EACCES ? absl::PermissionDeniedError(message) : absl::UnavailableError(message);
  };
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return failed(errno);
  auto impl = std::make_unique<Impl>();
  struct stat info {};
  int error = fstat(file, &info) == 0 ? 0 : errno;
  if (error == 0 && info.st_size > 0) {
    void* mapping = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, file, 0);
    if (mapping == MAP_FAILED) {
      error = errno;
    } else {
      impl->mapping = mapping;
      impl->data = {static_cast<const std::byte*>(mapping), static_cast<size_t>(info.st_size)};
    }
  }
  close(file);
  if (error != 0) return failed(error);
  RETURN_IF_ERROR(Annotate(impl->Open(), path));
  return std::unique_ptr<Index>(new Index(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<Index>> Index::FromBytes(std::string bytes) {
  auto impl = std::make_unique<Impl>();
  impl->bytes = std::move(bytes);
  impl->data = AsBytes(impl->bytes);
  RETURN_IF_ERROR(impl->Open());
  return std::unique_ptr<Index>(new Index(std::move(impl)));
}

uint64_t Index::size() const {
  return impl_->samples;
}
uint64_t Index::objects() const {
  return impl_->objects;
}
DataKind Index::kind() const {
  return impl_->kind;
}
uint64_t Index::fingerprint() const {
  return impl_->fingerprint;
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
const std::vector<ClassCount>& Index::class_counts() const {
  return impl_->class_counts;
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
  SampleCursor cursor{.object = block.Varint(), .end = 0};
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
    SampleCursor cursor{.object = block.Varint(), .end = 0};
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
    const uint64_t tag = block.Varint();
    const uint64_t text_bytes = tag < kEtagText ? 16 : tag - kEtagText;
    const std::string_view text = block.Bytes(text_bytes);
    const uint64_t parts = tag == kEtagHexParts ? block.Varint() : 0;
    if (!block.ok()) return Damaged(fmt::format("block {} of its objects", number));
    if (i < steps) continue;
    out->size = size;
    if (tag >= kEtagText) {
      out->etag = text;
    } else {
      out->etag = HexEncode({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
      if (tag == kEtagHexParts) out->etag += fmt::format("-{}", parts);
    }
  }
  return absl::OkStatus();
}

absl::Status Index::Verify() const {
  // Blocks lie back to back, in any order of kinds: together with head, tables and foot they must account for every
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
