#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_budget.h"
#include "base/status.h"
#include "dataset/dataset_place.h"
#include "dataset/index.h"
#include "dataset/manifest_rows.h"
#include "dataset/path_columns.h"
#include "dataset/sample_groups.h"
#include "dataset/sample_objects.h"
#include "shard/manifest.h"
#include "store/completion.h"
#include "store/stores.h"

namespace millrace {

/// A manifest as the URI of a data set. Its objects may lie anywhere in the store: keys of the index are keys of the
/// store.
struct ManifestPlace : DatasetPlace {
  ObjectInfo info;     // of the manifest
  std::string folder;  // it lies in: "" or ending with '/'
};

/// Finds the place of a manifest, if the URI is one: by its name (ManifestFormatOf), and an object is there. Returns
/// nullopt for other URIs. Blocking; Cancelled soon after a stop is requested.
absl::StatusOr<std::optional<ManifestPlace>> FindManifest(Stores& stores, std::string_view uri,
                                                          const std::stop_token& stop = {});

/// Compares an index with its manifest. FailedPrecondition if the manifest is not the one that was indexed. NotFound if
/// it was indexed with other columns than these, so that the index is as good as none. The objects are not looked at:
/// reads of them notice changes by their ETags.
absl::Status CheckManifest(const ManifestPlace& place, const ManifestColumns& columns, const Index& index);

struct ManifestValue {
  std::string_view name;
  std::string text;
  std::string_view encoding;  // kInt, kFloat, kText or kJson of field_value.h
};

/// Represents the entry of a manifest for one sample.
struct ManifestSample {
  std::string line;  // where, for errors: "line 7"
  std::string key;
  std::vector<RawSample::Field> fields;  // by offset
  std::string label;                     // the class; "": none
  std::vector<ManifestValue> values;     // by name
};

/// Represents the samples of a manifest in index order, by the keys of their objects. For example, the line
/// `cat/1.jpg,cat` is a sample of one object with a label. If several columns have paths, an object is several joined
/// ones (store/joined_objects.h). The manifest is itself an object of the index, without samples, so that the index
/// pins it. Memory, out of the budget: that of ManifestRows, and the manifest itself while it is read. Immutable.
class ManifestSamples {
 public:
  /// Reads the manifest, of that version. InvalidArgument, with its URI and the line, for malformed text, or for a path
  /// that
  /// - lies in another place,
  /// - is hidden,
  /// - has no name such as 0001.jpg,
  /// - is there twice,
  /// - or is a pair of token files.
  ///
  /// Returns ResourceExhausted if there is no memory for it; FailedPrecondition if it has been replaced; Cancelled soon
  /// after a stop.
  static absl::StatusOr<std::unique_ptr<ManifestSamples>> Read(const ManifestPlace& place,
                                                               const ManifestColumns& columns, MemoryBudget& memory,
                                                               const std::stop_token& stop = {});

  const ManifestPlace& place() const { return place_; }
  size_t size() const { return rows_.size(); }
  bool quotes_are_text() const { return quotes_are_text_; }
  /// Returns the keys of the objects of a sample, in the order of the columns.
  std::vector<std::string> ObjectsAt(size_t i) const;
  /// Returns the place that names it, for errors: "line 7".
  std::string LineAt(size_t i) const;
  /// Returns the entry of an object as ManifestObjects has it. nullopt for the manifest itself. InvalidArgument for a
  /// key that begins like one of joined objects but is none.
  absl::StatusOr<std::optional<ManifestSample>> Find(const IndexedObject& object) const;

 private:
  ManifestSamples(ManifestPlace place, MemoryBudget& memory);
  void WarnOfNoLabels() const;
  absl::Status Parse(const ManifestColumns& columns, MemoryBudget& memory, const std::stop_token& stop);
  absl::Status Add(const Manifest& manifest, const ManifestRow& row);
  absl::StatusOr<std::string> ObjectKey(std::string_view path) const;
  absl::Status CheckFurtherPaths(const Manifest& manifest, const ManifestRow& row) const;
  const PathColumn* FurtherPath(const ManifestColumn& column) const;
  absl::Status SortAndCheck();
  absl::Status CheckNoPairs(const std::stop_token& stop) const;

  const ManifestPlace place_;
  const std::string root_;  // URI of the store
  ManifestRows rows_;
  Manifest manifest_;
  bool quotes_are_text_ = false;
  std::vector<PathColumn> paths_;  // empty: there is one column of them
};

/// Lists the objects of a manifest. The store is asked about them ahead, about 64 at a time.
class ManifestObjects final : public ObjectSource {
 public:
  ManifestObjects(const ManifestSamples& samples, std::stop_token stop) : samples_(samples), stop_(std::move(stop)) {}

  /// Returns the next object. NotFound, with the manifest and its line, for an object that is not there. Cancelled soon
  /// after a stop.
  absl::StatusOr<std::optional<IndexedObject>> Next() override;
  DataKind kind() const override { return DataKind::kRawObjects; }
  const std::vector<std::string>& companions() const override { return none_; }
  const SkippedObjects& skipped() const override { return none_skipped_; }
  uint64_t total_bytes() const override { return 0; }

 private:
  using Coming = Completion<absl::StatusOr<ObjectInfo>>;
  const ManifestSamples& samples_;
  const std::stop_token stop_;
  const std::vector<std::string> none_;
  const SkippedObjects none_skipped_;
  size_t next_ = 0;   // sample to hand out
  size_t asked_ = 0;  // samples
  bool manifest_done_ = false;
  std::deque<Coming> coming_;
};

}  // namespace millrace
