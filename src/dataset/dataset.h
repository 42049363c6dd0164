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

/// Says if an index is built if none fits, and where it is kept.
enum class IndexUse : uint8_t {
  kBuild,    // beside the data, or in the cache folder if that cannot be
  kBeside,   // beside the data; FailedPrecondition if that cannot be
  kCache,    // in the cache folder
  kRequire,  // none is built: NotFound
};

/// Where an index that is built, and its parts, may be put.
ArtifactHome HomeOf(IndexUse use);

/// The share of one of several processes that build the index of shards together: those whose number, in index order,
/// is `part` modulo `parts`.
struct IndexShare {
  uint64_t part = 0;
  uint64_t parts = 1;

  bool Has(uint64_t number) const { return number % parts == part; }
};

struct OpenOptions {
  bool rebuild = false;   // build an index even where there is one
  bool skip_bad = false;  // in building, leave out the samples of damaged shards from the bad place on: built()
  bool reuse = true;      // in building, take the samples of unchanged objects from the index that is there
  std::optional<TokenArrays> tokens;  // an index that is built now is of plain arrays, which are cut so
  ManifestColumns columns;            // of a manifest; an index that was built with others is built again
  std::optional<LabelsFile> labels;   // which samples have in place of what they have themselves
  IndexUse index = IndexUse::kBuild;
  std::vector<std::string> classes;  // the order that numbers them, if it is not that of their names: OrderClasses()
  RawReads raw;  // of raw objects, the index is to have what these reads tell; else it is built again
  uint64_t part_bytes = uint64_t{1} << 30;  // BuildOptions::part_bytes
  /// In building: other processes, one for each of the parts, may open the data set at the same time. Each reads its
  /// own shards first, and then what is still missing, so none waits for another one.
  IndexShare share;
  ProgressFn progress;       // of building
  std::string cache_folder;  // where an index is kept that cannot be stored beside the data; "" = $MILLRACE_CACHE,
                             // $XDG_CACHE_HOME/millrace or ~/.cache/millrace
  std::stop_token stop;      // when requested, opening ends soon with Cancelled
};

/// A place of samples and its index. The index is looked for beside the data (`.millrace/index`), then in the cache
/// folder; but one in the cache folder that was built because that beside the data could not be replaced comes first.
/// If there is no index, it is built and stored: beside the data if the place is writable, else in the cache folder.
/// Objects that an older index has unchanged (key, size, ETag) are not read again for it. An index beside
/// data on S3 is copied to the cache folder, once for each version (ETag), and mapped from there. Of several processes
/// that open a new data set, one builds the index, and the others wait for it (those of one machine), unless they have
/// shares of it. A build of an index of shards that was killed is continued (index_parts.h).
///
/// Opening compares the index with the objects of the store (keys, sizes, ETags) if there are at most 10,000 of
/// them, which is always so for shards of a sensible size. An index from which samples of damaged shards were left out
/// (skip_bad) matches as any other, until they are repaired. In larger data sets, reads notice changed objects by
/// their ETags; added ones are not noticed. Immutable after opening; the Stores must outlive it.
class Dataset {
 public:
  /// Opens `uri`: a prefix with shards of one kind, token files or raw objects, or a single one of these objects
  /// (dataset_place.h), or a manifest that lists objects (shard/manifest.h: .csv, .jsonl, .ndjson, .manifest, .json),
  /// which is then compared with the index in their place.
  /// Plain arrays are raw objects until an index is built that says otherwise (OpenOptions::tokens). Errors:
  /// NotFound (bucket, folder or no samples under the prefix), PermissionDenied, DataLoss (truncated shard: object,
  /// offset, reason), FailedPrecondition (an index that does not match its objects any more: says which object, and to
  /// run `millrace index`), and DataLoss if an index is damaged. An index in the cache folder that matches is
  /// preferred to one beside the data that does not. Those of OpenLabelledIndex, if there are labels.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(Runtime& runtime, Stores& stores, std::string_view uri,
                                                       const OpenOptions& options = {});

  /// Some of the shards of `place`, as `index` has them. `joined` is the store of the place; `cache_folder` is that of
  /// OpenOptions.
  static std::unique_ptr<Dataset> OfSome(DatasetPlace place, std::unique_ptr<JoinedStore> joined,
                                         std::unique_ptr<Index> index, const std::string& cache_folder);

  const std::string& uri() const { return uri_; }
  /// What the URI names, but for the objects of a manifest.
  const DatasetPlace& place() const { return place_; }
  /// Whether the URI is a manifest: its objects may lie anywhere in the store.
  bool is_manifest() const { return is_manifest_; }
  /// Where the index is kept; for reports.
  const std::string& index_uri() const { return index_uri_; }
  /// The report of building the index; nullopt if it existed.
  const std::optional<BuildReport>& built() const { return built_; }
  const Index& index() const { return *index_; }
  /// OpenOptions::labels, and LabelledIndex::id; null and 0 if there are none.
  const LabelsFile* labels() const { return labels_ ? &*labels_ : nullptr; }
  /// OpenOptions::classes.
  const std::vector<std::string>& classes() const { return classes_; }
  uint64_t labels_id() const { return labels_id_; }
  ObjectStore& store() const { return *place_.store; }
  /// The store's key of an object of the index.
  std::string StoreKey(std::string_view object_key) const { return place_.Key(object_key); }
  /// OpenOptions::cache_folder, or its default.
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
