#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "base/status.h"
#include "dataset/build_report.h"
#include "dataset/file_lock.h"
#include "dataset/index.h"
#include "dataset/index_builder.h"
#include "dataset/manifest_set.h"
#include "store/stores.h"

namespace millrace {

/// Where Millrace keeps what it can make again: $MILLRACE_CACHE, $XDG_CACHE_HOME/millrace or ~/.cache/millrace; ""
/// where none of these is set.
std::string DefaultCacheFolder();

/// An index and where it was found, or put.
struct PlacedIndex {
  std::unique_ptr<Index> index;
  std::string uri;
  BuildReport report = {};  // of one that was built
};

/// The places where the index of one data set may lie: beside the data and in the cache folder. Blocking; not
/// thread-safe.
///
/// In the cache folder, `H.index` is one that was built for the data, where H hashes their URI and the S3 endpoint,
/// `H.lock` is locked by the process that builds it, and `H-E.index` a copy of the one beside the data, where E hashes
/// its ETag. A new copy replaces the older ones. `H@E.index` was built while the one beside the data had the ETag E and
/// could not be replaced: it is the newer of the two until that one is another.
class IndexPlaces {
 public:
  /// `cache_folder` and `stop` as in OpenOptions. Touches nothing yet. `manifest`: the data set is what it lists, and
  /// `data` its place; null for a folder.
  IndexPlaces(Runtime& runtime, Stores& stores, const Location& data, std::string cache_folder,
              std::stop_token stop = {}, const ManifestPlace* manifest = nullptr);

  /// Waits until no other process of this machine builds the index of these data, and keeps them from it. Where
  /// nothing can be locked, several may build: that costs time, and all of them make the same.
  absl::StatusOr<FileLock> LockForBuilding();

  /// Where an index may be, the newest first. No clocks are compared: one in the cache folder is newer than that beside
  /// the data only if it was built in its place.
  enum class Place : uint8_t { kInPlaceOfBeside, kBeside, kCached };
  static constexpr Place kPlaces[] = {Place::kInPlaceOfBeside, Place::kBeside, Place::kCached};

  /// NotFound if there is none.
  absl::StatusOr<PlacedIndex> Open(Place place);

  /// An index that is there and from which a new one can take what is unchanged (BuildOptions::reuse), whether or not
  /// it matches the data; null if there is none.
  absl::StatusOr<std::unique_ptr<Index>> FindReusable();

  /// Builds the index and puts it where it will be found again.
  absl::StatusOr<PlacedIndex> Build(const BuildOptions& options);

 private:
  enum class Medium { kFile, kMemory, kS3 };

  absl::StatusOr<Location> Cache();
  absl::StatusOr<PlacedIndex> OpenInPlaceOfBeside();
  absl::StatusOr<PlacedIndex> OpenBeside();
  absl::StatusOr<std::string> BuiltName();
  std::string UnpublishedName() const;
  std::string CopyName(std::string_view etag) const;
  absl::StatusOr<PlacedIndex> OpenCacheFile(const std::string& name);
  absl::StatusOr<PlacedIndex> OpenCopy();
  absl::StatusOr<PlacedIndex> BuildInCache(const std::string& name, const BuildOptions& options);
  absl::StatusOr<ObjectInfo> Copy(const Location& from, uint64_t size, const std::string& etag, const Location& to);
  absl::Status RemoveNames(std::string_view prefix, std::string_view except);
  absl::Status RemoveCopies(std::string_view except) { return RemoveNames(hash_ + "-", except); }
  absl::Status RemoveBuilt(std::string_view except);
  absl::StatusOr<PlacedIndex> PublishFromCache(PlacedIndex built);

  Runtime& runtime_;
  Stores& stores_;
  const Location data_;
  const std::string uri_;  // of the data set
  const Location beside_;  // prefix = the whole key
  const std::string cache_folder_;
  const std::string hash_;
  const std::stop_token stop_;
  Medium medium_ = Medium::kFile;
};

}  // namespace millrace
