#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "base/status.h"
#include "dataset/build_report.h"
#include "dataset/dataset_place.h"
#include "dataset/index.h"
#include "dataset/index_builder.h"
#include "store/stores.h"
#include "transfer/artifact.h"

namespace millrace {

/// Represents an index and the place where it was found, or put.
struct PlacedIndex {
  std::unique_ptr<Index> index;
  std::string uri;
  BuildReport report = {};  // of one that was built
};

/// Returns the beginning of the names of the data's artifacts in the cache folder. It is a hash of their URI and the S3
/// endpoint, and that of the principal (StemFor).
std::string IndexStem(const DatasetPlace& data);

/// The places of the index of one data set (transfer/artifact.h). In the cache folder its stem is IndexStem. Blocking;
/// not thread-safe.
class IndexPlaces {
 public:
  using Place = ArtifactPlaces::Place;

  /// Takes `cache_folder` and `stop` as in OpenOptions. Accesses no store yet.
  IndexPlaces(Runtime& runtime, Stores& stores, const DatasetPlace& data, const std::string& cache_folder,
              std::stop_token stop = {}, ArtifactHome home = ArtifactHome::kBesideOrCache);

  /// Locks as ArtifactPlaces::Lock does.
  absl::StatusOr<FileLock> LockForBuilding() { return places_.Lock(); }

  /// Opens the index of a place. NotFound if there is none. Other errors name the remedy.
  absl::StatusOr<PlacedIndex> Open(Place place);

  /// Returns an existing index from which a new one can take unchanged objects (BuildOptions::reuse), even if it does
  /// not match the data; null if there is none.
  absl::StatusOr<std::unique_ptr<Index>> FindReusable();

  /// Builds the index and puts it where it will be found again.
  absl::StatusOr<PlacedIndex> Build(const BuildOptions& options);

 private:
  Runtime& runtime_;
  const DatasetPlace data_;
  ArtifactPlaces places_;
};

}  // namespace millrace
