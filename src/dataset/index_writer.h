#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/crypto.h"
#include "base/status.h"
#include "dataset/index.h"
#include "dataset/index_format.h"
#include "dataset/new_sample.h"
#include "store/object_store.h"

namespace millrace {

/// Counts of a finished index.
struct IndexSummary {
  uint64_t samples = 0;
  uint64_t samples_without_crc = 0;
  uint64_t objects = 0;
  uint64_t span_bytes = 0;
  uint64_t index_bytes = 0;
  std::vector<std::string> field_names;  // in bytewise order
  bool keys_ascend = true;               // of samples, so that no two are equal
};

/// Writes an index front to back, into any store, while samples come. Memory: half a byte for each sample, plus the
/// names of fields and classes (bounded, see index_format.h). Nothing is visible before Finish succeeds. Not
/// thread-safe; after an error only destruction is allowed.
class IndexWriter {
 public:
  IndexWriter(DataKind kind, std::unique_ptr<ObjectWriter> out);
  ~IndexWriter();

  /// Adds a sample of the object that the next AddObject names. Samples of an object come in order of offset.
  /// InvalidArgument, with the sample's key, if a bound of the format is exceeded or fields overlap.
  absl::Status AddSample(const NewSample& sample);

  /// Ends an object. Objects come in ascending order of keys.
  absl::Status AddObject(const IndexedObject& object);

  uint64_t samples() const { return samples_; }

  /// Sets Index::quotes_are_text().
  void SetQuotesAreText() { quotes_are_text_ = true; }

  /// Marks the index as that of a data set with a file of labels; called before the first sample. Its fingerprint
  /// becomes this one, which is that of the index without the file, since the order of samples does not depend on
  /// labels. If classes are names, those of shards become fields `cls`, as those of raw objects do.
  void SetLabelled(uint64_t fingerprint, bool class_names) {
    given_fingerprint_ = fingerprint;
    class_fields_ = class_fields_ || class_names;
  }

  /// Sets Index::own_class_names() of shards; called before Finish. They are left out if classes are no numbers, and if
  /// they are too many.
  void SetClassNames(std::vector<std::string> names) { class_names_ = std::move(names); }

  absl::StatusOr<IndexSummary> Finish();

 private:
  struct Block {
    std::string payload;
    uint64_t items = 0;
    std::string last_key;
    std::vector<uint64_t> offsets;  // of the finished ones, in the file
  };
  struct Class {
    std::string name;
    uint64_t samples = 0;
  };

  absl::Status CheckSample(const NewSample& sample) const;
  absl::Status CheckValues(const NewSample& sample) const;
  bool HasClassField(const NewSample& sample) const;
  bool HasUnreadClass(const NewSample& sample) const;
  absl::StatusOr<uint32_t> FieldId(std::string_view name);
  absl::StatusOr<uint32_t> EncodingId(std::string_view encoding);
  absl::Status AppendLayoutField(std::string& layout, std::string_view name, index_format::FieldKind kind,
                                 std::string_view encoding);
  absl::StatusOr<std::string> Layout(const NewSample& sample, bool* irregular);
  absl::StatusOr<uint32_t> LayoutId(const NewSample& sample, bool* irregular);
  absl::Status CountLabel(std::string_view label, bool numeric, uint32_t* ordinal);
  void AddText(std::string_view text);
  void AddToFingerprint(const NewSample& sample);
  absl::Status EndBlock(Block* block, index_format::BlockKind kind);
  absl::Status Append(std::string_view bytes);
  absl::Status Flush();
  std::string Names() const;
  std::string Foot(uint64_t object_table, uint64_t sample_table, uint64_t names, std::string_view names_bytes) const;

  const DataKind kind_;
  bool quotes_are_text_ = false;
  bool classes_unread_ = false;
  const uint64_t unit_;
  bool class_fields_;  // classes become fields
  std::optional<uint64_t> given_fingerprint_;
  std::unique_ptr<ObjectWriter> out_;
  std::string buffer_;
  uint64_t written_ = 0;  // with what is still in buffer_

  Block samples_block_;
  Block objects_block_;
  uint64_t samples_ = 0;
  uint64_t samples_without_crc_ = 0;
  uint64_t objects_ = 0;
  bool open_object_ = false;   // samples wait for their object
  uint64_t block_object_ = 0;  // object of the latest sample in the block
  uint64_t previous_end_ = 0;  // of the latest sample of the same object and block
  uint64_t open_end_ = 0;      // of the latest sample of the open object
  std::string last_object_key_;

  std::unordered_map<std::string, uint32_t> field_ids_;
  std::vector<std::string> field_names_;  // by id
  std::vector<std::string> encodings_;    // by id - 1; 0 is ""
  std::unordered_map<std::string, uint32_t> layout_ids_;
  std::string layouts_;  // as stored
  std::string scratch_;
  std::unordered_map<std::string, uint32_t> class_ids_;
  std::vector<Class> classes_;
  std::vector<std::string> class_names_;
  bool labels_complete_ = true;
  uint64_t label_runs_ = 0;
  std::string last_label_;

  std::string last_sample_key_;
  bool keys_ascend_ = true;
  uint64_t span_bytes_ = 0;
  uint64_t max_span_ = 0;
  Xxh3Stream fingerprint_;
};

}  // namespace millrace
