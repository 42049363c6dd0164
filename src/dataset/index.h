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

/// Represents a stored field: a name and the place of its bytes in the sample's span. A field that `is_inline` has no
/// bytes in the object: its value is the text itself (the class of a raw object's folder, or another value in the
/// index).
struct IndexedField {
  std::string_view name;  // lives as long as the Index
  uint64_t offset = 0;    // from the start of the sample's span
  uint64_t length = 0;
  std::string_view inline_text;  // lives as long as the Index
  bool is_inline = false;
  std::string_view encoding;  // how the stored bytes become the value (shard/field_value.h); lives as long as the Index
};

/// Represents one sample: a span of an object, from the first byte of its first field to the last byte of its last one.
/// The CRC32C covers the whole span as it is stored (between fields of a tar lie headers). A sample that was not read
/// has no CRC. Only the checksum of the store, if it keeps one, tells then if the bytes are right.
struct IndexedSample {
  std::string key;
  uint32_t object = 0;  // ordinal
  ByteRange span;
  std::optional<uint32_t> crc32c;
  std::vector<IndexedField> fields;  // in bytewise order of names
  /// Its class: the place in Index::class_counts(). nullopt if it has no class, or if the index keeps no classes
  /// (has_labels()).
  std::optional<uint32_t> label;
  /// True in the index of a data set with a file of labels (labels_file.h) if that file says what it should of the
  /// sample.
  bool in_labels_file = false;
};

/// Represents the number of samples that carry a class.
struct ClassCount {
  std::string name;  // raw objects: the folder; shards: the number in the field `cls`; manifests: the label
  uint64_t samples = 0;
};

/// The samples of a data set and their places, in index order: object key as bytes, then offset. For example, sample 0
/// may be bytes 512 to 110,000 of the object `000.tar`. The index is a memory-mapped file (docs/formats/index.md);
/// opening does not read it, lookups are O(1). Immutable and thread-safe.
class Index {
 public:
  /// Opens an index. DataLoss if the file is damaged or cut, InvalidArgument if it is not an index or of another
  /// version.
  static absl::StatusOr<std::unique_ptr<Index>> Open(std::shared_ptr<const Artifact> artifact);
  static absl::StatusOr<std::unique_ptr<Index>> Open(const std::string& path);
  /// Opens an index from bytes in memory (tests, the fuzzer).
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
  /// Returns the number of samples without a CRC.
  uint64_t samples_without_crc() const;
  /// True if raw objects have files of their classes (7.cls) that nobody has read: these are fields of their samples,
  /// and no classes of the index. The same of fields `cls` of shards that nobody has read.
  bool classes_unread() const;
  /// Returns true for a file of version 4. Its fingerprint is of another kind, so it only serves to make a new index.
  bool is_of_older_version() const;
  /// Identifies its objects: their keys, sizes and ETags. Reads a little of each block of objects.
  uint64_t ObjectsChecksum() const;
  uint64_t total_bytes() const;  // of all spans
  uint64_t max_span_bytes() const;
  double mean_span_bytes() const;
  const std::vector<std::string>& field_names() const;  // of the whole data set, in bytewise order
  /// Returns the fields that are image files, by their names (IsImageField) or encodings; in bytewise order.
  const std::vector<std::string>& image_fields() const;
  /// Returns true if some samples do not have any of these fields.
  bool SomeLack(const std::vector<std::string>& fields) const;
  /// Returns true if some samples are not in the file of labels.
  bool SomeLackLabels() const;
  /// Returns the names of classes: folders of raw objects, or the labels of a manifest that are texts; in bytewise
  /// order. Empty if classes are numbers, as those of shards are.
  const std::vector<std::string>& class_names() const;
  /// Returns the names of numbered classes that the index holds: those of 0, 1, 2 and so on. They are class_names()
  /// after OrderClasses.
  const std::vector<std::string>& own_class_names() const;

  /// The classes in the order of class_names(), or by number; empty if `cls` is missing, is not a number, or has too
  /// many values.
  const std::vector<ClassCount>& class_counts() const;
  /// True if there are classes, and samples have theirs.
  bool has_labels() const;
  /// Numbers the classes in this order, that of another data set; from then on, class_names() returns it. It may have
  /// more names than there are classes. If classes are numbers, these stay, and the names are those of 0, 1, 2 and so
  /// on. InvalidArgument if a class is not among the names, if a name comes twice, or if there are no classes. Call it
  /// before other threads use the index.
  absl::Status OrderClasses(const std::vector<std::string>& names);
  /// The number of runs of samples with one class, in index order. If the data are sorted by class, there are as many
  /// runs as classes.
  uint64_t class_runs() const;
  uint64_t file_bytes() const;  // of the index itself

  /// True if it has, for every sample, all that a new index would be given. It is false if there were too many labels
  /// to keep.
  bool TellsAll() const;

  /// Looks up a sample or an object. `out` is reused so that a walk allocates nothing. sample < size(). DataLoss if the
  /// file turns out to be damaged.
  absl::Status Lookup(uint64_t sample, IndexedSample* out) const;
  absl::Status LookupObject(uint32_t object, IndexedObject* out) const;
  /// Returns the number of the object with that key; nullopt if there is none. Looks some of them up. DataLoss as in
  /// Lookup.
  absl::StatusOr<std::optional<uint32_t>> FindObject(std::string_view key) const;

  /// Calls `each` with the number and the entry of samples first .. last-1, in order. It is several times faster than
  /// Lookup of each. last <= size().
  absl::Status Scan(uint64_t first, uint64_t last, absl::FunctionRef<void(uint64_t, const IndexedSample&)> each) const;

  /// Calls `each` with the samples of that object, in order, as they were given to IndexWriter; ends with its first
  /// error. `*block` is 0 before the first call. A caller that visits objects in ascending order passes the same
  /// variable each time. All calls together then walk the index once, however many objects are passed over. object <
  /// objects(). Not for an index with a file of labels, which hides fields.
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
