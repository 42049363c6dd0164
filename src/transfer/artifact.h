#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "base/mapped_file.h"
#include "store/stores.h"
#include "transfer/file_lock.h"

namespace millrace {

/// Millrace keeps here what it can make again: $MILLRACE_CACHE, $XDG_CACHE_HOME/millrace or ~/.cache/millrace; "" if
/// none of these is set.
std::string DefaultCacheFolder();

/// Opens the folder `index` of a cache folder, in which artifacts are kept. It is this user's alone, or a group's, and
/// `index-UID` if the first one belongs to another user (base/own_folder.h). Open makes nothing: NotFound if there is
/// none. Returns NotFound also for the cache folder "".
absl::StatusOr<Location> OpenArtifactCache(Stores& stores, const std::string& cache_folder);
absl::StatusOr<Location> MakeArtifactCache(Stores& stores, const std::string& cache_folder);

/// Returns the beginning of the names of an artifact in the cache folder. Each principal has a stem of its own, so that
/// nobody gets an artifact of data that only other credentials may read. For folders it is `name`.
std::string StemFor(const std::string& name, const StoreTraits& store);

/// Holds the bytes of a file that is made from data once and kept: an index, a table of rows. Immutable and
/// thread-safe.
class Artifact {
 public:
  Artifact(std::string uri, MappedFile file) : uri_(std::move(uri)), file_(std::move(file)) {}
  Artifact(std::string uri, std::string bytes) : uri_(std::move(uri)), text_(std::move(bytes)) {}

  /// Returns the place of the artifact; for messages.
  const std::string& uri() const { return uri_; }
  ByteSpan bytes() const { return file_ ? file_->bytes() : AsBytes(text_); }

 private:
  const std::string uri_;
  std::optional<MappedFile> file_;
  std::string text_;
};

using SharedArtifact = std::shared_ptr<const Artifact>;

/// Checks whether bytes are what they should be. It may keep the artifact, or what it makes of it.
using CheckArtifact = absl::FunctionRef<absl::Status(const SharedArtifact&)>;
/// Opens the object that an artifact is written to, once, and writes and commits it.
using OpenArtifact = absl::FunctionRef<absl::StatusOr<std::unique_ptr<ObjectWriter>>()>;
using BuildArtifact = absl::FunctionRef<absl::Status(OpenArtifact)>;

/// Says where an artifact that is built may be put.
enum class ArtifactHome : uint8_t {
  kBesideOrCache,  // beside the data, or in the cache folder if that cannot be
  kBeside,         // beside the data; FailedPrecondition if that cannot be
  kCache,          // in the cache folder
};

struct ArtifactOptions {
  Location beside;           // its place beside the data; prefix = the whole key
  std::string cache_folder;  // "": there is none
  /// In the cache folder it is at `index/STEM` + `suffix`.
  std::string stem;
  std::string suffix;
  /// Says whether the stem says all that the bytes depend on: then all artifacts that are found are the same. Otherwise
  /// a newer one may replace it beside the data.
  bool one_version = false;
  ArtifactHome home = ArtifactHome::kBesideOrCache;
  std::string title;  // "the index"; for messages
  std::stop_token stop;
  std::chrono::milliseconds max_lock_wait = kMaxFolderWait;  // for the lock of the folder with the data
};

/// Describes the places where one artifact of some data may be: beside the data and in the cache folder. It is written
/// whole or not at all. Blocking; not thread-safe; the Stores must outlive it.
///
/// The cache folder may hold these files, with the suffix S:
///   - `STEM S` is an artifact that was built for the data;
///   - `STEM.lock` is locked by the process that builds it;
///   - `STEM-E S` is a copy of the artifact beside data on S3, where E hashes its ETag. A new copy replaces the older
///     ones;
///   - `STEM@E S` was built while the artifact beside the data had the ETag E and could not be replaced. It is the
///     newer of the two until that one is another.
///
/// If there is only one version, all these are `STEM S`.
///
/// If the Stores only read (Stores::reads_only), nothing is put beside data, except in memory.
class ArtifactPlaces {
 public:
  /// Touches nothing yet.
  ArtifactPlaces(Stores& stores, ArtifactOptions options);

  /// It may be in these places, the newest first. No clocks are compared: one in the cache folder is newer than that
  /// beside the data only if it was built in its place.
  enum class Place : uint8_t { kInPlaceOfBeside, kBeside, kCached };
  static constexpr Place kPlaces[] = {Place::kInPlaceOfBeside, Place::kBeside, Place::kCached};

  std::string BesideUri() const { return options_.beside.store->Uri(options_.beside.prefix); }

  /// Returns NotFound if there is none; otherwise what `check` says, of each that is opened. An artifact beside data on
  /// S3 is copied to the cache folder, unless it is there; `verify` is asked of such a copy, which is fetched again if
  /// it is damaged.
  absl::StatusOr<SharedArtifact> Open(Place place, CheckArtifact check, CheckArtifact verify);

  /// Waits until no other process of this machine builds the artifact, and keeps them from it. If nothing can be
  /// locked, or another process holds the folder's lock for too long, several may build: that costs time, and all of
  /// them make the same.
  absl::StatusOr<FileLock> Lock();

  /// Builds it and puts it where it will be found again: ArtifactOptions::home.
  absl::StatusOr<SharedArtifact> Build(BuildArtifact build);

  /// Calls Open, or if nothing sound is there Build, by one process of this machine; for artifacts of one version. An
  /// outage of the store, which may hide one, is an error.
  absl::StatusOr<SharedArtifact> GetOrBuild(CheckArtifact check, CheckArtifact verify, BuildArtifact build);

 private:
  bool MayWriteBeside() const {
    return options_.home != ArtifactHome::kCache && (beside_.is_memory() || !stores_.reads_only());
  }
  absl::StatusOr<Location> Cache() { return OpenArtifactCache(stores_, options_.cache_folder); }
  absl::StatusOr<Location> MadeCache() { return MakeArtifactCache(stores_, options_.cache_folder); }
  absl::StatusOr<std::unique_ptr<ObjectWriter>> WriteInCache(const std::string& name);
  absl::StatusOr<std::string> BuiltName();
  std::string UnpublishedName() const;
  std::string CopyName(std::string_view etag) const;
  absl::StatusOr<SharedArtifact> OpenCacheFile(const std::string& name, CheckArtifact check);
  absl::StatusOr<SharedArtifact> OpenInPlaceOfBeside(CheckArtifact check);
  absl::StatusOr<SharedArtifact> OpenBeside(CheckArtifact check, CheckArtifact verify);
  absl::StatusOr<SharedArtifact> OpenCopy(CheckArtifact check, CheckArtifact verify);
  absl::StatusOr<SharedArtifact> Find(bool locked, CheckArtifact check, CheckArtifact verify);
  absl::Status Rename(const std::string& from, const std::string& to);
  void Remove(const std::string& prefix, std::string_view except);
  void RemoveBuilt(std::string_view except);
  absl::StatusOr<SharedArtifact> Publish();
  absl::Status RefusedBeside(const absl::Status& reason) const;
  void LogKeptInCache(const absl::Status& reason) const;

  Stores& stores_;
  const ArtifactOptions options_;
  const StoreTraits& beside_;  // of the store that has the data
};

}  // namespace millrace
