#include "dataset/index_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/byte_reader.h"
#include "base/hex.h"
#include "base/number.h"
#include "dataset/index_format.h"
#include "dataset/sample_groups.h"
#include "shard/sample_name.h"
#include "shard/shard_sample.h"

namespace millrace {

using namespace index_format;  // NOLINT: the vocabulary of this file

namespace {

constexpr size_t kFlushBytes = 1 << 20;
// These are bits of numbers in the fingerprint:
constexpr uint64_t kEncodedBit = uint64_t{1} << 63;  // of a length: an encoding follows
constexpr uint64_t kValuesBit = uint64_t{1} << 63;   // of the number of fields: values follow the sample,
constexpr uint64_t kLabelBit = uint64_t{1} << 62;    // and before them a class that its key does not tell

absl::Status Refused(std::string_view what, std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("'{}': {}", what, why));
}

// Stores a key as its difference from the key before it in the block.
void AppendFrontCoded(std::string& out, std::string_view key, std::string* last) {
  const size_t limit = std::min(key.size(), last->size());
  const size_t shared = std::mismatch(key.begin(), key.begin() + limit, last->begin()).first - key.begin();
  AppendVarint(out, shared);
  AppendVarint(out, key.size() - shared);
  out.append(key.substr(shared));
  last->assign(key);
}

bool IsHexMd5(std::string_view text) {
  return text.size() == 32 && IsLowerHex(text);
}

// Parses the number behind "<hex>-". It is accepted only if printing it again gives the same text.
bool ParsePartCount(std::string_view text, uint64_t* value) {
  if (text.empty() || text.size() > 9 || text.front() == '0') return false;
  *value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    *value = *value * 10 + static_cast<uint64_t>(c - '0');
  }
  return true;
}

void AppendHexBytes(std::string& out, std::string_view hex) {
  for (size_t i = 0; i < hex.size(); i += 2)
    out.push_back(static_cast<char>(HexValue(hex[i]) << 4 | HexValue(hex[i + 1])));
}

void AppendEtag(std::string& out, std::string_view etag, bool incomplete) {
  uint64_t parts = 0;
  const auto append_tag = [&](uint64_t tag) { AppendVarint(out, tag << 1 | (incomplete ? 1 : 0)); };
  if (IsHexMd5(etag)) {
    append_tag(kEtagHex);
    AppendHexBytes(out, etag);
  } else if (etag.size() > 33 && etag[32] == '-' && IsHexMd5(etag.substr(0, 32)) &&
             ParsePartCount(etag.substr(33), &parts)) {
    append_tag(kEtagHexParts);
    AppendHexBytes(out, etag.substr(0, 32));
    AppendVarint(out, parts);
  } else {
    append_tag(kEtagText + etag.size());
    out.append(etag);
  }
}

}  // namespace

IndexWriter::IndexWriter(DataKind kind, std::unique_ptr<ObjectWriter> out)
    : kind_(kind), unit_(OffsetUnit(kind)), class_fields_(kind == DataKind::kRawObjects), out_(std::move(out)) {
  buffer_.append(kHeadMagic);
  AppendLe(buffer_, kVersion);
  AppendLe(buffer_, Crc32c(AsBytes(buffer_)));
  written_ = buffer_.size();
}

IndexWriter::~IndexWriter() = default;

absl::Status IndexWriter::CheckSample(const NewSample& sample) const {
  if (sample.key.size() > kMaxNameBytes) {
    return Refused(sample.key.substr(0, 100),
                   fmt::format("key of {} bytes (at most {} are allowed)", sample.key.size(), kMaxNameBytes));
  }
  if (sample.fields.empty() || sample.fields.size() > kMaxSampleFields) {
    return Refused(sample.key, fmt::format("{} fields (1 to {} are allowed)", sample.fields.size(), kMaxSampleFields));
  }
  uint64_t end = open_end_;
  for (const NewSampleField& field : sample.fields) {
    if (field.offset < AlignToUnit(end, unit_) || field.offset % unit_ != 0 || field.offset > kMaxOffset ||
        field.length > kMaxOffset) {
      return Refused(sample.key, fmt::format("its field '{}' lies at offset {}, not behind what comes before it",
                                             field.name, field.offset));
    }
    if (field.name == kClassField && HasClassField(sample)) {
      return Refused(sample.key, "it has the field 'cls' twice: by its folder and by its name; rename the object");
    }
    end = field.offset + field.length;
  }
  return sample.values.empty() ? absl::OkStatus() : CheckValues(sample);
}

// Returns true if the sample's class becomes a field. It does for raw objects and if classes are names, unless the
// sample has such a field.
bool IndexWriter::HasClassField(const NewSample& sample) const {
  if (!class_fields_ || sample.label.empty()) return false;
  return std::none_of(sample.values.begin(), sample.values.end(),
                      [](const NewSampleValue& value) { return value.name == kClassField; });
}

// True if it is made of several raw objects, and the last of them holds its class (sample_groups.h). Also true if it
// has a class, and its shard was not read.
bool IndexWriter::HasUnreadClass(const NewSample& sample) const {
  if (kind_ != DataKind::kRawObjects) {
    return !sample.crc32c && std::any_of(sample.fields.begin(), sample.fields.end(),
                                         [](const NewSampleField& field) { return field.name == kClassField; });
  }
  return sample.fields.size() > 1 && sample.fields.back().name == kClassField &&
         sample.fields.back().length <= kMaxClassFileBytes;
}

absl::Status IndexWriter::CheckValues(const NewSample& sample) const {
  if (sample.fields.size() + sample.values.size() > kMaxSampleFields) {
    return Refused(sample.key, fmt::format("{} fields and {} values (at most {} are allowed together)",
                                           sample.fields.size(), sample.values.size(), kMaxSampleFields));
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < sample.values.size(); ++i) {
    const std::string_view name = sample.values[i].name;
    bytes += sample.values[i].text.size();
    if (i > 0 && name <= sample.values[i - 1].name) {
      return absl::InternalError(
          fmt::format("'{}': the value '{}' comes after '{}'", sample.key, name, sample.values[i - 1].name));
    }
    const bool is_field = std::any_of(sample.fields.begin(), sample.fields.end(),
                                      [name](const NewSampleField& field) { return field.name == name; });
    if (is_field && name != kHiddenField)
      return Refused(sample.key, fmt::format("it has the field '{}' twice: as a value, too; rename one", name));
  }
  if (bytes <= kMaxValueBytes) return absl::OkStatus();
  return Refused(sample.key,
                 fmt::format("values of {} bytes (the index holds at most {} for a sample)", bytes, kMaxValueBytes));
}

absl::StatusOr<uint32_t> IndexWriter::FieldId(std::string_view name) {
  scratch_.assign(name);
  if (const auto it = field_ids_.find(scratch_); it != field_ids_.end()) return it->second;
  if (name.size() > kMaxNameBytes || field_names_.size() == kMaxFieldNames) {
    return Refused(name.substr(0, 100),
                   fmt::format("the data set has more than {} names of fields; a sample's key ends at the first dot "
                               "of the name, the rest names the field",
                               kMaxFieldNames));
  }
  const auto id = static_cast<uint32_t>(field_names_.size());
  field_ids_.emplace(scratch_, id);
  field_names_.push_back(scratch_);
  return id;
}

absl::StatusOr<uint32_t> IndexWriter::EncodingId(std::string_view encoding) {
  if (encoding.empty()) return 0;
  const auto found = std::find(encodings_.begin(), encodings_.end(), encoding);
  if (found == encodings_.end()) {
    if (encodings_.size() == kMaxEncodings || encoding.size() > kMaxNameBytes) {
      return Refused(
          encoding.substr(0, 100),
          fmt::format("the data set has more than {} kinds of fields, by how they are stored", kMaxEncodings));
    }
    encodings_.emplace_back(encoding);
    return static_cast<uint32_t>(encodings_.size());
  }
  return static_cast<uint32_t>(found - encodings_.begin()) + 1;
}

absl::Status IndexWriter::AppendLayoutField(std::string& layout, std::string_view name, FieldKind kind,
                                            std::string_view encoding) {
  ASSIGN_OR_RETURN(const uint32_t id, FieldId(name));
  AppendVarint(layout, uint64_t{id} << kFieldKindBits | static_cast<uint64_t>(kind));
  if (kind == FieldKind::kClass) return absl::OkStatus();
  ASSIGN_OR_RETURN(const uint32_t encoding_id, EncodingId(encoding));
  AppendVarint(layout, encoding_id);
  return absl::OkStatus();
}

// Returns the layout of a sample: its fields, in stored order, and the distance between fields. Most samples of a data
// set share one.
absl::StatusOr<std::string> IndexWriter::Layout(const NewSample& sample, bool* irregular) {
  const std::span<const NewSampleField> fields = sample.fields;
  uint64_t gap = 0;
  *irregular = false;
  for (size_t i = 1; i < fields.size(); ++i) {
    const uint64_t own = (fields[i].offset - AlignToUnit(fields[i - 1].offset + fields[i - 1].length, unit_)) / unit_;
    if (i == 1) gap = own;
    if (own != gap) *irregular = true;
  }
  const bool class_field = HasClassField(sample);
  const bool labelled = !class_field && !sample.label.empty();
  std::string layout;
  AppendVarint(layout, (fields.size() + sample.values.size() + (class_field ? 1 : 0)) << 1 | (labelled ? 1 : 0));
  AppendVarint(layout, *irregular ? 0 : gap);
  if (class_field) RETURN_IF_ERROR(AppendLayoutField(layout, kClassField, FieldKind::kClass, {}));
  for (const NewSampleField& field : fields)
    RETURN_IF_ERROR(AppendLayoutField(layout, field.name, FieldKind::kStored, field.encoding));
  for (const NewSampleValue& value : sample.values)
    RETURN_IF_ERROR(AppendLayoutField(layout, value.name, FieldKind::kValue, value.encoding));
  return layout;
}

absl::StatusOr<uint32_t> IndexWriter::LayoutId(const NewSample& sample, bool* irregular) {
  ASSIGN_OR_RETURN(std::string layout, Layout(sample, irregular));
  if (const auto it = layout_ids_.find(layout); it != layout_ids_.end()) return it->second;
  if (layout_ids_.size() == kMaxLayouts || layouts_.size() > kMaxNamesBytes / 4) {
    return Refused(
        sample.key,
        fmt::format("the data set has more than {} different sets of fields; a sample's key ends at the first dot "
                    "of the name, the rest names the field",
                    kMaxLayouts));
  }
  const auto id = static_cast<uint32_t>(layout_ids_.size());
  layouts_.append(layout);
  layout_ids_.emplace(std::move(layout), id);
  return id;
}

// Counts a label. If the label is not kept, its ordinal stays as it is.
absl::Status IndexWriter::CountLabel(std::string_view label, bool numeric, uint32_t* ordinal) {
  if (label.empty() || !labels_complete_) return absl::OkStatus();
  if (classes_.empty() || label != last_label_) {
    ++label_runs_;
    last_label_.assign(label);
  }
  auto it = class_ids_.find(last_label_);
  if (it == class_ids_.end()) {
    if (numeric && classes_.size() == kMaxNumericLabels) {
      labels_complete_ = false;  // they are no classes: do without them
      classes_.clear();
      return absl::OkStatus();
    }
    if (label.size() > kMaxNameBytes) {
      return Refused(label.substr(0, 100), fmt::format("the name of a class of {} bytes (at most {} are allowed)",
                                                       label.size(), kMaxNameBytes));
    }
    if (classes_.size() == kMaxClasses) {
      return Refused(label.substr(0, 100),
                     fmt::format("more than {} classes; the class of an object is the first folder below the URI, or "
                                 "its label in a manifest: rename that column if it is no class",
                                 kMaxClasses));
    }
    it = class_ids_.emplace(last_label_, static_cast<uint32_t>(classes_.size())).first;
    classes_.push_back({.name = last_label_, .samples = 0});
  }
  *ordinal = it->second;
  ++classes_[it->second].samples;
  return absl::OkStatus();
}

void IndexWriter::AddText(std::string_view text) {
  fingerprint_.UpdateLe64(text.size());
  fingerprint_.Update(AsBytes(text));
}

// Adds a sample to the fingerprint. The result is the same whether a file that holds the class was read or is a field.
void IndexWriter::AddToFingerprint(const NewSample& sample) {
  const std::span<const NewSampleField> fields = sample.fields;
  const bool class_read = sample.class_file_bytes.has_value();
  const bool class_file = class_read || std::any_of(fields.begin(), fields.end(), [](const NewSampleField& field) {
                            return field.name == kClassField;
                          });
  // The class of a raw object is its folder, unless a manifest or a file says otherwise.
  const bool given_label = kind_ == DataKind::kRawObjects && !class_file && sample.label != ClassFolder(sample.key);
  const auto counts = [&](const NewSampleValue& value) { return !class_read || value.name != kClassField; };
  const auto values = static_cast<uint64_t>(std::count_if(sample.values.begin(), sample.values.end(), counts));
  AddText(sample.key);
  fingerprint_.UpdateLe64((fields.size() + (class_read ? 1 : 0)) | (values > 0 ? kValuesBit : 0) |
                          (given_label ? kLabelBit : 0));
  for (const NewSampleField& field : fields) {
    AddText(field.name);
    fingerprint_.UpdateLe64(field.length | (field.encoding.empty() ? 0 : kEncodedBit));
    if (!field.encoding.empty()) AddText(field.encoding);
  }
  if (class_read) {
    AddText(kClassField);
    fingerprint_.UpdateLe64(*sample.class_file_bytes);
  }
  if (given_label) AddText(sample.label);
  if (values == 0) return;
  fingerprint_.UpdateLe64(values);
  for (const NewSampleValue& value : sample.values) {
    if (!counts(value)) continue;
    for (const std::string_view text : {value.name, value.encoding, value.text}) AddText(text);
  }
}

absl::Status IndexWriter::AddSample(const NewSample& sample) {
  RETURN_IF_ERROR(CheckSample(sample));
  bool irregular = false;
  ASSIGN_OR_RETURN(const uint32_t layout, LayoutId(sample, &irregular));
  uint32_t class_ordinal = 0;
  RETURN_IF_ERROR(CountLabel(sample.label, !HasClassField(sample), &class_ordinal));

  Block& block = samples_block_;
  if (block.items == 0) {
    AppendVarint(block.payload, objects_);
    block_object_ = objects_;
    previous_end_ = 0;
  }
  const bool new_object = block_object_ != objects_;
  AppendVarint(block.payload, uint64_t{layout} << kSampleFlagBits | (new_object ? kSampleNewObject : 0) |
                                  (irregular ? kSampleIrregular : 0) | (sample.crc32c ? 0 : kSampleWithoutCrc));
  if (new_object) {
    AppendVarint(block.payload, objects_ - block_object_ - 1);
    block_object_ = objects_;
    previous_end_ = 0;
  }
  AppendFrontCoded(block.payload, sample.key, &block.last_key);
  uint64_t end = previous_end_;
  for (size_t i = 0; i < sample.fields.size(); ++i) {
    const NewSampleField& field = sample.fields[i];
    if (i == 0 || irregular) AppendVarint(block.payload, (field.offset - AlignToUnit(end, unit_)) / unit_);
    AppendVarint(block.payload, field.length);
    end = field.offset + field.length;
  }
  for (const NewSampleValue& value : sample.values) AppendText(block.payload, value.text);
  if (!sample.label.empty()) AppendVarint(block.payload, class_ordinal);
  if (sample.crc32c) {
    AppendLe(block.payload, *sample.crc32c);
  } else {
    ++samples_without_crc_;
  }

  const uint64_t span = end - sample.fields.front().offset;
  span_bytes_ += span;
  max_span_ = std::max(max_span_, span);
  previous_end_ = end;
  open_end_ = end;
  open_object_ = true;
  AddToFingerprint(sample);
  classes_unread_ = classes_unread_ || HasUnreadClass(sample);
  if (keys_ascend_) {
    keys_ascend_ = samples_ == 0 || std::string_view(last_sample_key_) < sample.key;
    last_sample_key_ = sample.key;
  }
  ++samples_;
  return ++block.items == kBlockItems ? EndBlock(&block, BlockKind::kSamples) : absl::OkStatus();
}

absl::Status IndexWriter::AddObject(const IndexedObject& object) {
  if (object.key.empty() || object.key.size() > kMaxNameBytes || object.etag.size() > kMaxEtagBytes) {
    return Refused(object.key.substr(0, 100), "the index cannot hold an object with a key or an ETag of that length");
  }
  if (objects_ > 0 && object.key <= last_object_key_) {
    return Refused(object.key,
                   fmt::format("comes after '{}'; objects must be listed in bytewise order of keys", last_object_key_));
  }
  if (objects_ == UINT32_MAX) return Refused(object.key, "an index holds at most 2^32 - 1 objects");
  last_object_key_ = object.key;
  AppendFrontCoded(objects_block_.payload, object.key, &objects_block_.last_key);
  AppendVarint(objects_block_.payload, object.size);
  AppendEtag(objects_block_.payload, object.etag, object.incomplete);
  ++objects_;
  open_object_ = false;
  open_end_ = 0;
  return ++objects_block_.items == kBlockItems ? EndBlock(&objects_block_, BlockKind::kObjects) : absl::OkStatus();
}

absl::Status IndexWriter::EndBlock(Block* block, BlockKind kind) {
  if (block->items == 0) return absl::OkStatus();
  std::string header;
  AppendLe(header, BlockCrc(kind, block->offsets.size(), AsBytes(block->payload)));
  AppendLe(header, static_cast<uint32_t>(block->payload.size()));
  block->offsets.push_back(written_);
  RETURN_IF_ERROR(Append(header));
  RETURN_IF_ERROR(Append(block->payload));
  block->payload.clear();
  block->last_key.clear();
  block->items = 0;
  return absl::OkStatus();
}

absl::Status IndexWriter::Append(std::string_view bytes) {
  buffer_.append(bytes);
  written_ += bytes.size();
  return buffer_.size() >= kFlushBytes ? Flush() : absl::OkStatus();
}

absl::Status IndexWriter::Flush() {
  RETURN_IF_ERROR(out_->Append(AsBytes(buffer_)));
  buffer_.clear();
  return absl::OkStatus();
}

std::string IndexWriter::Names() const {
  std::string names;
  AppendVarint(names, field_names_.size());
  for (const std::string& name : field_names_) AppendText(names, name);
  AppendVarint(names, encodings_.size());
  for (const std::string& encoding : encodings_) AppendText(names, encoding);
  AppendVarint(names, layout_ids_.size());
  names.append(layouts_);
  AppendVarint(names, classes_.size());
  for (const Class& one : classes_) {
    AppendText(names, one.name);
    AppendVarint(names, one.samples);
  }
  if (class_names_.empty() || classes_.empty() || class_fields_ || class_names_.size() > kMaxClasses) return names;
  AppendVarint(names, class_names_.size());
  for (const std::string& name : class_names_) AppendText(names, name);
  return names;
}

std::string IndexWriter::Foot(uint64_t object_table, uint64_t sample_table, uint64_t names,
                              std::string_view names_bytes) const {
  std::string foot;
  AppendLe(foot, samples_without_crc_);
  AppendLe(foot, samples_);
  AppendLe(foot, objects_);
  AppendLe(foot, span_bytes_);
  AppendLe(foot, max_span_);
  AppendLe(foot, given_fingerprint_.value_or(fingerprint_.Digest().low));
  AppendLe(foot, classes_.empty() ? uint64_t{0} : label_runs_);
  AppendLe(foot, object_table);
  AppendLe(foot, sample_table);
  AppendLe(foot, names);
  AppendLe(foot, uint64_t{names_bytes.size()});
  AppendLe(foot, Crc32c(AsBytes(names_bytes)));
  AppendLe(foot, static_cast<uint32_t>(kind_) | (quotes_are_text_ ? kQuotesAreText : 0) |
                     (classes_unread_ ? kClassesUnread : 0));
  AppendLe(foot, Crc32c(AsBytes(foot)));
  foot.append(kFootMagic);
  return foot;
}

absl::StatusOr<IndexSummary> IndexWriter::Finish() {
  if (open_object_) return absl::InternalError("the samples at the end of the index have no object");
  RETURN_IF_ERROR(EndBlock(&samples_block_, BlockKind::kSamples));
  RETURN_IF_ERROR(EndBlock(&objects_block_, BlockKind::kObjects));
  uint64_t tables[2];
  const Block* const blocks[2] = {&objects_block_, &samples_block_};
  for (int i = 0; i < 2; ++i) {
    tables[i] = written_;
    for (const uint64_t offset : blocks[i]->offsets) {
      std::string entry;
      AppendLe(entry, offset);
      RETURN_IF_ERROR(Append(entry));
    }
  }
  const uint64_t names_at = written_;
  const std::string names = Names();
  if (names.size() > kMaxNamesBytes)
    return absl::InvalidArgumentError("the names of fields and classes take more than 1 GiB");
  RETURN_IF_ERROR(Append(names));
  RETURN_IF_ERROR(Append(Foot(tables[0], tables[1], names_at, names)));
  RETURN_IF_ERROR(Flush());
  RETURN_IF_ERROR(out_->Commit().status());
  std::sort(field_names_.begin(), field_names_.end());
  return IndexSummary{.samples = samples_,
                      .samples_without_crc = samples_without_crc_,
                      .objects = objects_,
                      .span_bytes = span_bytes_,
                      .index_bytes = written_,
                      .field_names = std::move(field_names_),
                      .keys_ascend = keys_ascend_};
}

}  // namespace millrace
