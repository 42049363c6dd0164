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

/// An index and where it was found, or put.
struct PlacedIndex {
  std::unique_ptr<Index> index;
  std::string uri;
  BuildReport report = {};  // of one that was built
};

/// The beginning of the names of artifacts of the data in the cache folder: a hash of their URI and the S3 endpoint,
/// and that of the principal (StemFor).
std::string IndexStem(const DatasetPlace& data);

/// The places of the index of one data set (transfer/artifact.h). In the cache folder its stem is IndexStem. Blocking;
/// not thread-safe.
class IndexPlaces {
 public:
  using Place = ArtifactPlaces::Place;

  /// `cache_folder` and `stop` as in OpenOptions. Touches nothing yet.
  IndexPlaces(Runtime& runtime, Stores& stores, const DatasetPlace& data, const std::string& cache_folder,
              std::stop_token stop = {}, ArtifactHome home = ArtifactHome::kBesideOrCache);

  /// As ArtifactPlaces::Lock.
  absl::StatusOr<FileLock> LockForBuilding() { return places_.Lock(); }

  /// NotFound if there is none. Other errors name the remedy.
  absl::StatusOr<PlacedIndex> Open(Place place);

  /// An index that is there and from which a new one can take what is unchanged (BuildOptions::reuse), whether or not
  /// it matches the data; null if there is none.
  absl::StatusOr<std::unique_ptr<Index>> FindReusable();

  /// Builds the index and puts it where it will be found again.
  absl::StatusOr<PlacedIndex> Build(const BuildOptions& options);

 private:
  Runtime& runtime_;
  const DatasetPlace data_;
  ArtifactPlaces places_;
};

}  // namespace millrace
