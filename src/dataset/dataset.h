#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/long_task.h"
#include "dataset/build_report.h"
#include "dataset/dataset_place.h"
#include "dataset/index.h"
#include "dataset/index_reuse.h"
#include "dataset/labels_file.h"
#include "dataset/tar_header_store.h"
#include "net/runtime.h"
#include "shard/manifest.h"
#include "shard/token_format.h"
#include "store/joined_store.h"
#include "store/stores.h"
#include "transfer/artifact.h"

namespace millrace {

/// Says whether an index is built if none fits, and where it is kept.
enum class IndexUse : uint8_t {
  kBuild,    // beside the data, or in the cache folder if that cannot be
  kBeside,   // beside the data; FailedPrecondition if that cannot be
  kCache,    // in the cache folder
  kRequire,  // none is built: NotFound
};

/// Returns the places in which a newly built index and its parts may be put.
ArtifactHome HomeOf(IndexUse use);

/// Names the share of one of several processes that build the index of shards together. Its shards are those whose
/// number, in index order, is `part` modulo `parts`.
struct IndexShare {
  uint64_t part = 0;
  uint64_t parts = 1;

  bool Has(uint64_t number) const { return number % parts == part; }
};

struct OpenOptions {
  bool rebuild = false;   // build an index even if there is one
  bool skip_bad = false;  // in building, leave out the samples of damaged shards from the bad place on: built()
  bool reuse = true;      // in building, take the samples of unchanged objects from the index that is there
  std::optional<TokenArrays> tokens;  // an index that is built now is of plain arrays, which are cut so
  ManifestColumns columns;            // of a manifest; an index that was built with others is built again
  std::optional<LabelsFile> labels;   // which samples have in place of what they have themselves
  IndexUse index = IndexUse::kBuild;
  std::vector<std::string> classes;  // the order that numbers them, if it is not that of their names: OrderClasses()
  RawReads raw;  // of raw objects, the index is to have what these reads tell; else it is built again
  uint64_t part_bytes = uint64_t{1} << 30;  // BuildOptions::part_bytes
  /// Used in building: other processes, one for each of the parts, may open the data set at the same time. Each reads
  /// its own shards first, and then the shards that are still missing, so no process waits for another one.
  IndexShare share;
  ProgressFn progress;       // of building
  std::string cache_folder;  // where an index is kept that cannot be stored beside the data; "" = $MILLRACE_CACHE,
                             // $XDG_CACHE_HOME/millrace or ~/.cache/millrace
  std::stop_token stop;      // when requested, opening ends soon with Cancelled
};

/// A data set: the place of its samples, and its index. For example, the data set `s3://bucket/train` has its shards
/// below that prefix, and its index in `s3://bucket/train/.millrace/index`.
///
/// The index is looked for beside the data (`.millrace/index`), then in the cache folder. An index in the cache folder
/// comes first if it was built because the one beside the data could not be replaced. If there is no index, it is built
/// and stored: beside the data if the place is writable, else in the cache folder. The build does not read objects
/// again that are unchanged (key, size, ETag) in an older index. An index beside data on S3 is copied to the cache
/// folder, once for each version (ETag), and mapped from there.
///
/// If several processes of one machine open a new data set, one builds the index, and the others wait for it. Processes
/// that have shares of the index do not wait. If a build of an index of shards was killed, the next one continues it
/// (index_parts.h).
///
/// Opening compares the index with the objects of the store (keys, sizes, ETags) if there are at most 10,000 of them,
/// which is always so for shards of a sensible size. An index from which samples of damaged shards were left out
/// (skip_bad) matches as any other, until the shards are repaired. In larger data sets, reads notice changed objects by
/// their ETags; added ones are not noticed. Immutable after opening; the Stores must outlive it.
class Dataset {
 public:
  /// Opens `uri`. It names one of these:
  /// - a prefix with shards of one kind, token files or raw objects;
  /// - a single object of these kinds (dataset_place.h);
  /// - a manifest that lists objects (shard/manifest.h: .csv, .jsonl, .ndjson, .manifest, .json). The manifest is then
  ///   compared with the index in place of its objects.
  ///
  /// Plain arrays are raw objects until an index is built that says otherwise (OpenOptions::tokens). If the index in
  /// the cache folder matches and the one beside the data does not, the former is used.
  ///
  /// Errors:
  /// - NotFound: no such bucket or folder, or no samples under the prefix;
  /// - PermissionDenied;
  /// - DataLoss: a truncated shard (with object, offset and reason), or a damaged index;
  /// - FailedPrecondition: the index does not match its objects any more. The message says which object, and to run
  ///   `millrace index`.
  /// - If there are labels, also the errors of OpenLabelledIndex.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(Runtime& runtime, Stores& stores, std::string_view uri,
                                                       const OpenOptions& options = {});

  /// Makes a data set of some of the shards of `place`, those that `index` has. `joined` is the store of the place;
  /// `cache_folder` is OpenOptions::cache_folder.
  static std::unique_ptr<Dataset> OfSome(DatasetPlace place, std::unique_ptr<JoinedStore> joined,
                                         std::unique_ptr<Index> index, const std::string& cache_folder);

  const std::string& uri() const { return uri_; }
  /// Returns the place that the URI names. The objects of a manifest may lie elsewhere.
  const DatasetPlace& place() const { return place_; }
  /// True if the URI is a manifest: its objects may lie anywhere in the store.
  bool is_manifest() const { return is_manifest_; }
  /// Returns the place of the index, for reports.
  const std::string& index_uri() const { return index_uri_; }
  /// Returns the report of building the index; nullopt if it existed.
  const std::optional<BuildReport>& built() const { return built_; }
  const Index& index() const { return *index_; }
  /// The labels are OpenOptions::labels, and their id is LabelledIndex::id; null and 0 if there are none.
  const LabelsFile* labels() const { return labels_ ? &*labels_ : nullptr; }
  /// Returns the order of classes, as in OpenOptions::classes.
  const std::vector<std::string>& classes() const { return classes_; }
  uint64_t labels_id() const { return labels_id_; }
  ObjectStore& store() const { return *place_.store; }
  /// Returns the store's key of an object of the index.
  std::string StoreKey(std::string_view object_key) const { return place_.Key(object_key); }
  /// The cache folder: OpenOptions::cache_folder, or its default.
  const std::string& cache_folder() const { return cache_folder_; }

 private:
  Dataset() = default;
  std::string uri_;
  std::string index_uri_;
  std::optional<BuildReport> built_;
  std::unique_ptr<JoinedStore> joined_;  // the store of place_; null for manifests
  DatasetPlace place_;
  std::string cache_folder_;
  std::unique_ptr<Index> index_;
  std::unique_ptr<Index> unlabelled_;        // that without labels, if headers_ needs it
  std::unique_ptr<TarHeaderStore> headers_;  // the store of place_ then; null: its shards were read
  std::optional<LabelsFile> labels_;
  std::vector<std::string> classes_;
  uint64_t labels_id_ = 0;
  bool is_manifest_ = false;
};

}  // namespace millrace
