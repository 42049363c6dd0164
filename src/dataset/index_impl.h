#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dataset/index.h"
#include "dataset/index_decoder.h"
#include "dataset/index_format.h"
#include "transfer/artifact.h"

/// Defines the contents of an Index. Only for index.cc, which looks samples and objects up, and index_open.cc, which
/// opens files.

namespace millrace {

namespace index_format {

inline absl::Status Damaged(std::string_view what) {
  return absl::DataLossError(fmt::format("damaged index ({}); build it again with `millrace index URI`", what));
}

struct LayoutField {
  uint32_t name = 0;
  uint32_t place = kHidden;  // among the sample's fields by bytewise order of names
  FieldKind kind = FieldKind::kStored;
  uint32_t encoding = 0;

  static constexpr uint32_t kHidden = UINT32_MAX;  // a place: it is none of the fields
  bool hidden() const { return place == kHidden; }
};

struct FieldLayout {
  uint64_t gap = 0;                 // in units
  std::vector<LayoutField> fields;  // as stored
  bool labelled = false;            // by a class, whether that is a field or not
  bool has_values = false;
  bool in_labels_file = false;
  uint32_t visible = 0;  // fields
};

// Represents the state that decoding carries along a block.
struct SampleCursor {
  uint64_t object = 0;
  uint64_t end = 0;                     // of the sample before, in the same object
  const FieldLayout* layout = nullptr;  // of the latest sample
};

}  // namespace index_format

struct Index::Impl {
  absl::Status Open();
  absl::Status ReadFoot();
  absl::Status ReadNames();
  bool ReadLayout(index_format::Decoder* names);
  bool ReadLayoutField(index_format::Decoder* names, index_format::LayoutField* field) const;
  void ReadClasses(index_format::Decoder* names);
  void ReadOwnClassNames(index_format::Decoder* names);
  void ListFields();
  absl::StatusOr<ByteSpan> Block(index_format::BlockKind block_kind, uint64_t number) const;
  absl::StatusOr<uint64_t> FirstObject(uint64_t block) const;
  bool DecodeSample(index_format::Decoder* block, index_format::SampleCursor* cursor, bool wanted,
                    IndexedSample* out) const;
  bool DecodeStored(index_format::Decoder* block, index_format::SampleCursor* cursor, bool irregular,
                    IndexedSample* out) const;
  bool DecodeValues(index_format::Decoder* block, const index_format::FieldLayout& layout, IndexedSample* out) const;
  bool DecodeLabel(index_format::Decoder* block, const index_format::FieldLayout& layout, IndexedSample* out) const;
  void Tell(const IndexedSample& sample, const index_format::FieldLayout& layout, std::vector<NewSampleField>* fields,
            std::vector<NewSampleValue>* values, NewSample* told) const;

  SharedArtifact artifact;
  ByteSpan data;  // of it

  bool older_version = false;
  uint64_t samples = 0;
  uint64_t samples_without_crc = 0;
  uint64_t objects = 0;
  bool quotes_are_text = false;
  bool classes_unread = false;
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
  std::vector<index_format::FieldLayout> layouts;
  std::vector<std::string> class_names;
  std::vector<std::string> own_class_names;  // of numbered classes
  std::vector<ClassCount> class_counts;
  std::vector<uint32_t> class_places;    // by stored ordinal: the place among the sorted names
  std::vector<std::string> class_texts;  // by place, of raw objects: the same as text
  bool labelled = false;                 // some layout is
  bool has_class_field = false;          // some layout has one: then classes are names, else numbers
};

}  // namespace millrace
