#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/bytes.h"
#include "base/status.h"
#include "dataset/new_sample.h"
#include "shard/data_kind.h"

namespace millrace {

class Artifact;

/// An object that holds samples, pinned to the version that was indexed.
struct IndexedObject {
  std::string key;  // below the data set's URI
  uint64_t size = 0;
  std::string etag;
  bool incomplete = false;  // it is damaged: the samples from some place on are left out
};

/// A stored field: a name and the place of its bytes in the sample's span. A field that `is_inline` has no bytes in the
/// object: its value is the text itself (the class of a raw object's folder, or another value in the index).
struct IndexedField {
  std::string_view name;  // lives as long as the Index
  uint64_t offset = 0;    // from the start of the sample's span
  uint64_t length = 0;
  std::string_view inline_text;  // lives as long as the Index
  bool is_inline = false;
  std::string_view encoding;  // how the stored bytes become the value (shard/field_value.h); lives as long as the Index
};

/// One sample: a span of an object, from the first byte of its first field to the last byte of its last one. The
/// CRC32C covers the whole span as it is stored (between fields of a tar lie headers). There is no CRC of a
/// sample that nobody has read: then only the checksum of the store, if it keeps one, tells if its bytes are right.
struct IndexedSample {
  std::string key;
  uint32_t object = 0;  // ordinal
  ByteRange span;
  std::optional<uint32_t> crc32c;
  std::vector<IndexedField> fields;  // in bytewise order of names
  /// Its class: the place in Index::class_counts(). nullopt if it has none, or if the index keeps none (has_labels()).
  std::optional<uint32_t> label;
  /// In the index of a data set with a file of labels (labels_file.h): whether that says what it should of the sample.
  bool in_labels_file = false;
};

/// How many samples carry a class.
struct ClassCount {
  std::string name;  // raw objects: the folder; shards: the number in the field `cls`; manifests: the label
  uint64_t samples = 0;
};

/// All samples of a data set and their places, in index order: object key as bytes, then offset. A memory-mapped file
/// (docs/formats/index.md); opening does not read it, lookups are O(1). Immutable and thread-safe.
class Index {
 public:
  /// DataLoss if the file is damaged or cut, InvalidArgument if it is not an index or of another version.
  static absl::StatusOr<std::unique_ptr<Index>> Open(std::shared_ptr<const Artifact> artifact);
  static absl::StatusOr<std::unique_ptr<Index>> Open(const std::string& path);
  /// The same over bytes in memory (tests, the fuzzer).
  static absl::StatusOr<std::unique_ptr<Index>> FromBytes(std::string bytes);
  ~Index();

  uint64_t size() const;  // samples
  uint64_t objects() const;
  DataKind kind() const;
  /// True for a manifest in CSV that was read so (CsvQuotes::kText).
  bool quotes_are_text() const;
  /// Identifies samples and their order: keys, fields, lengths, encodings and values; not CRCs, ETags, times, or names
  /// of objects' folders. It does not change if samples get a CRC. Other bytes of the same length have the same
  /// fingerprint: ETags tell them apart.
  uint64_t fingerprint() const;
  /// How many samples have no CRC.
  uint64_t samples_without_crc() const;
  /// True if raw objects have files of their classes (7.cls) that nobody has read: these are fields of their samples,
  /// and no classes of the index. The same of fields `cls` of shards that nobody has read.
  bool classes_unread() const;
  /// True for a file of version 4. Its fingerprint is of another kind, so it only serves to make a new index.
  bool is_of_older_version() const;
  /// Identifies its objects: their keys, sizes and ETags. Reads a little of each block of objects.
  uint64_t ObjectsChecksum() const;
  uint64_t total_bytes() const;  // of all spans
  uint64_t max_span_bytes() const;
  double mean_span_bytes() const;
  const std::vector<std::string>& field_names() const;  // of the whole data set, in bytewise order
  /// Those that are image files, by their names (IsImageField) or encodings; in bytewise order.
  const std::vector<std::string>& image_fields() const;
  /// Whether there are samples that have none of these fields.
  bool SomeLack(const std::vector<std::string>& fields) const;
  /// Likewise, that are not in the file of labels.
  bool SomeLackLabels() const;
  /// Folders of raw objects, or the labels of a manifest that are texts; in bytewise order. Empty if classes are
  /// numbers, as those of shards are.
  const std::vector<std::string>& class_names() const;
  /// Names of numbered classes that the index holds: those of 0, 1, 2 and so on. They are class_names() after
  /// OrderClasses.
  const std::vector<std::string>& own_class_names() const;

  /// In the order of class_names(), or by number; empty if `cls` is missing, is not a number, or has too many values.
  const std::vector<ClassCount>& class_counts() const;
  /// Whether there are classes, and samples tell theirs.
  bool has_labels() const;
  /// Numbers the classes in this order, that of another data set: class_names() is it from now on. It may have more
  /// names than there are classes. If classes are numbers, these stay, and the names are those of 0, 1, 2 and so on.
  /// InvalidArgument if a class is not among them, if a name comes twice, or if there are no classes. To be called
  /// before other threads use the index.
  absl::Status OrderClasses(const std::vector<std::string>& names);
  /// Runs of samples with one class, in index order: as few as there are classes when the data are sorted by class.
  uint64_t class_runs() const;
  uint64_t file_bytes() const;  // of the index itself

  /// Whether it knows of every sample all that a new index would be told: not if there were too many labels to keep.
  bool TellsAll() const;

  /// `out` is reused so that a walk allocates nothing. sample < size(). DataLoss if the file turns out to be damaged.
  absl::Status Lookup(uint64_t sample, IndexedSample* out) const;
  absl::Status LookupObject(uint32_t object, IndexedObject* out) const;
  /// The number of the object with that key; nullopt if there is none. Looks some of them up. DataLoss as there.
  absl::StatusOr<std::optional<uint32_t>> FindObject(std::string_view key) const;

  /// Calls `each` with the number and the entry of samples first .. last-1, in order; several times faster than Lookup
  /// of each. last <= size().
  absl::Status Scan(uint64_t first, uint64_t last, absl::FunctionRef<void(uint64_t, const IndexedSample&)> each) const;

  /// Calls `each` with the samples of that object, in order, as the index was told of them; ends with its first error.
  /// A caller that visits objects in ascending order passes the same `*block` each time, which is 0 at first; that
  /// costs one walk through the index, however many objects are passed over. object < objects(). Not of an index with a
  /// file of labels, which hides fields.
  absl::Status ScanObject(uint32_t object, uint64_t* block,
                          absl::FunctionRef<absl::Status(const NewSample&)> each) const;

  /// Reads the whole file and verifies its checksums; for a copy that came over a network. DataLoss.
  absl::Status Verify() const;

 private:
  struct Impl;
  explicit Index(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
