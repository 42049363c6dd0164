#include "dataset/index_places.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/crypto.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "dataset/sample_objects.h"
#include "store/blocking.h"
#include "transfer/object_reader.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxIndexInMemory = uint64_t{4} << 30;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string Hash(std::string_view text) {
  Xxh3Stream stream;
  stream.Update(AsBytes(text));
  return stream.Digest().Hex();
}

// What is wrong with an index that is there, and the remedy.
absl::Status BuildAnew(const absl::Status& status, const std::string& uri) {
  if (absl::IsInvalidArgument(status)) {
    return absl::DataLossError(fmt::format("{}; build it again: millrace index {}", ToStd(status.message()), uri));
  }
  if (absl::IsPermissionDenied(status)) {
    return absl::PermissionDeniedError(fmt::format(
        "{}; have it made readable, or build one for yourself: millrace index {}", ToStd(status.message()), uri));
  }
  return status;
}

absl::StatusOr<PlacedIndex> Verified(PlacedIndex placed) {
  RETURN_IF_ERROR(Annotate(placed.index->Verify(), placed.uri));
  return placed;
}

}  // namespace

std::string DefaultCacheFolder() {
  if (std::string own = Environment("MILLRACE_CACHE"); !own.empty()) return own;
  if (const std::string xdg = Environment("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/millrace";
  const std::string home = Environment("HOME");
  return home.empty() ? "" : home + "/.cache/millrace";
}

IndexPlaces::IndexPlaces(Runtime& runtime, Stores& stores, const Location& data, std::string cache_folder,
                         std::stop_token stop, const ManifestPlace* manifest)
    : runtime_(runtime),
      stores_(stores),
      data_(data),
      uri_(manifest == nullptr ? data.store->Uri(data.Key("")) : manifest->uri),
      beside_{.store = data.store, .prefix = manifest == nullptr ? data.Key(kIndexName) : manifest->index_key},
      cache_folder_(cache_folder.empty() ? DefaultCacheFolder() : std::move(cache_folder)),
      hash_(Hash(fmt::format("{} {}", uri_, data.store->Identity()))),
      stop_(std::move(stop)) {
  const std::string uri = data.store->Uri("");
  if (uri.starts_with("s3://")) medium_ = Medium::kS3;
  if (uri.starts_with("mem://")) medium_ = Medium::kMemory;
}

absl::StatusOr<Location> IndexPlaces::Cache() {
  if (cache_folder_.empty()) {
    return absl::NotFoundError("there is no cache folder: set MILLRACE_CACHE to a folder that can be written to");
  }
  return stores_.Open(cache_folder_ + "/index");
}

// For an index that is built now.
absl::StatusOr<std::string> IndexPlaces::BuiltName() {
  const absl::StatusOr<ObjectInfo> beside = HeadBlocking(*beside_.store, beside_.prefix, stop_);
  if (absl::IsCancelled(beside.status())) return beside.status();
  return beside.ok() ? fmt::format("{}@{}.index", hash_, Hash(beside->etag)) : hash_ + ".index";
}
std::string IndexPlaces::UnpublishedName() const {
  return hash_ + ".unpublished";
}
std::string IndexPlaces::CopyName(std::string_view etag) const {
  return fmt::format("{}-{}.index", hash_, Hash(etag));
}

absl::StatusOr<PlacedIndex> IndexPlaces::OpenCacheFile(const std::string& name) {
  ASSIGN_OR_RETURN(const Location cache, Cache());
  PlacedIndex placed{.index = nullptr, .uri = cache.store->Uri(name)};
  ASSIGN_OR_RETURN(placed.index, Index::Open(placed.uri));
  return placed;
}

absl::StatusOr<PlacedIndex> IndexPlaces::Open(Place place) {
  if (place == Place::kBeside) return OpenBeside();
  absl::StatusOr<PlacedIndex> cached =
      place == Place::kCached ? OpenCacheFile(hash_ + ".index") : OpenInPlaceOfBeside();
  return cached.ok() ? std::move(cached) : BuildAnew(cached.status(), uri_);
}

// The store is asked only where the cache folder has one.
absl::StatusOr<PlacedIndex> IndexPlaces::OpenInPlaceOfBeside() {
  ASSIGN_OR_RETURN(const Location cache, Cache());
  ASSIGN_OR_RETURN(const std::vector<ObjectInfo> built, ListAll(*cache.store, hash_ + "@"));
  if (built.empty()) return absl::NotFoundError("none was built in place of the index beside the data");
  ASSIGN_OR_RETURN(const std::string name, BuiltName());
  return OpenCacheFile(name);
}

absl::StatusOr<PlacedIndex> IndexPlaces::OpenBeside() {
  PlacedIndex placed{.index = nullptr, .uri = beside_.store->Uri(beside_.prefix)};
  absl::StatusOr<std::unique_ptr<Index>> index;
  switch (medium_) {
    case Medium::kFile:
      index = Index::Open(placed.uri);
      break;
    case Medium::kMemory: {
      ASSIGN_OR_RETURN(std::string bytes, ReadAll(*beside_.store, beside_.prefix, kMaxIndexInMemory));
      index = Index::FromBytes(std::move(bytes));
      if (!index.ok()) index = Annotate(index.status(), placed.uri);
      break;
    }
    case Medium::kS3: {
      absl::StatusOr<PlacedIndex> copy = OpenCopy();
      return copy.ok() ? std::move(copy) : BuildAnew(copy.status(), uri_);
    }
  }
  if (!index.ok()) return BuildAnew(index.status(), uri_);
  placed.index = *std::move(index);
  return placed;
}

// Of an index on S3: the copy in the cache folder, made now if it is not there yet.
absl::StatusOr<PlacedIndex> IndexPlaces::OpenCopy() {
  const std::string uri = beside_.store->Uri(beside_.prefix);
  absl::StatusOr<PlacedIndex> copy = absl::UnknownError("not opened");
  std::string name;
  // What is not there, or damaged in the cache folder, is fetched. Nothing tells the store what the bytes must be,
  // so damage on the way shows only now, and only here can it be fetched again.
  for (int attempt = 0; attempt < 3 && !copy.ok(); ++attempt) {
    const absl::StatusOr<ObjectInfo> info = HeadBlocking(*beside_.store, beside_.prefix, stop_);
    // S3 says so of a missing object, too, if the credentials may not list the bucket.
    if (absl::IsPermissionDenied(info.status())) return absl::NotFoundError(info.status().message());
    RETURN_IF_ERROR(info.status());
    name = CopyName(info->etag);
    copy = OpenCacheFile(name);
    if (copy.ok()) break;
    ASSIGN_OR_RETURN(const Location cache, Cache());
    const absl::Status copied = Copy(beside_, info->size, info->etag, {.store = cache.store, .prefix = name}).status();
    if (absl::IsFailedPrecondition(copied)) {  // another one was published meanwhile
      copy = copied;
      continue;
    }
    RETURN_IF_ERROR(copied);
    copy = OpenCacheFile(name);
    if (copy.ok()) copy = Verified(*std::move(copy));
    if (!copy.ok()) RETURN_IF_ERROR(DeleteBlocking(*cache.store, name));
  }
  if (!copy.ok()) return Annotate(copy.status(), uri);
  RETURN_IF_ERROR(RemoveCopies(name));
  copy->uri = uri;
  return copy;
}

// Copies one object, whole or not at all.
absl::StatusOr<ObjectInfo> IndexPlaces::Copy(const Location& from, uint64_t size, const std::string& etag,
                                             const Location& to) {
  const ObjectInfo object{.key = from.prefix, .size = size, .etag = etag};
  PutOptions options;
  options.stop = stop_;
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> out, to.store->Write(to.prefix, options));
  RETURN_IF_ERROR(ReadPieces(*from.store, runtime_.memory(), ObjectReader::All(object), stop_,
                             [&out](const ObjectReader::Piece& piece) { return out->Append(piece.bytes); }));
  return out->Commit();
}

absl::Status IndexPlaces::RemoveNames(std::string_view prefix, std::string_view except) {
  ASSIGN_OR_RETURN(const Location cache, Cache());
  ASSIGN_OR_RETURN(const std::vector<ObjectInfo> found, ListAll(*cache.store, std::string(prefix)));
  for (const ObjectInfo& one : found) {
    if (one.key != except) RETURN_IF_ERROR(DeleteBlocking(*cache.store, one.key));
  }
  return absl::OkStatus();
}

absl::Status IndexPlaces::RemoveBuilt(std::string_view except) {
  RETURN_IF_ERROR(RemoveNames(hash_ + "@", except));
  return RemoveNames(hash_ + ".index", except);
}

absl::StatusOr<std::unique_ptr<Index>> IndexPlaces::FindReusable() {
  for (const Place place : kPlaces) {
    absl::StatusOr<PlacedIndex> placed = Open(place);
    const absl::Status status = placed.ok() ? placed->index->Verify() : placed.status();
    if (status.ok() && placed->index->TellsAll()) return std::move(placed->index);
    // What an outage hides may be there: reading all data again is too dear for a guess.
    if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsCancelled(status)) return status;
    if (!status.ok() && !absl::IsNotFound(status)) {
      Log(LogLevel::kWarning, "dataset",
          fmt::format("everything is read again, since the older index cannot be used: {}", ToStd(status.message())));
    }
  }
  return nullptr;
}

absl::StatusOr<PlacedIndex> IndexPlaces::BuildInCache(const std::string& name, const BuildOptions& options) {
  const auto open_index = [&]() -> absl::StatusOr<std::unique_ptr<ObjectWriter>> {
    ASSIGN_OR_RETURN(const Location cache, Cache());
    absl::StatusOr<std::unique_ptr<ObjectWriter>> out = cache.store->Write(name, {});
    if (out.ok()) return out;
    return Annotate(out.status(),
                    "the index can be kept neither beside the data nor in the cache folder (set MILLRACE_CACHE to a "
                    "folder that can be written to)");
  };
  ASSIGN_OR_RETURN(const BuiltIndex built, BuildIndex(runtime_, data_, open_index, options));
  ASSIGN_OR_RETURN(PlacedIndex placed, OpenCacheFile(name));
  placed.report = built.report;
  return placed;
}

// Puts a copy of an index from the cache folder beside data on S3. Until it is known which of the two is the index,
// others do not find the one in the cache folder.
absl::StatusOr<PlacedIndex> IndexPlaces::PublishFromCache(PlacedIndex built) {
  ASSIGN_OR_RETURN(const Location cache, Cache());
  const Location from{.store = cache.store, .prefix = UnpublishedName()};
  const absl::StatusOr<ObjectInfo> published = Copy(from, built.index->file_bytes(), "", beside_);
  if (absl::IsCancelled(published.status())) return published.status();
  std::error_code error;
  if (!published.ok()) {
    // The data set can be used all the same, on this machine.
    ASSIGN_OR_RETURN(const std::string name, BuiltName());
    const std::string kept = cache.store->Uri(name);
    std::filesystem::rename(built.uri, kept, error);
    if (error) return ErrnoStatus(error.value(), built.uri, "rename");
    RETURN_IF_ERROR(RemoveBuilt(name));
    built.uri = kept;
    Log(LogLevel::kInfo, "dataset",
        fmt::format("the index is kept in {}, not beside the data: {}", built.uri,
                    ToStd(published.status().message())));
    return built;
  }
  // Kept under the name by which OpenBeside will look for it.
  const std::string copy = CopyName(published->etag);
  std::filesystem::rename(built.uri, cache.store->Uri(copy), error);
  if (!error) RETURN_IF_ERROR(RemoveCopies(copy));
  RETURN_IF_ERROR(RemoveBuilt(""));  // of a time when nothing could be put beside the data
  built.uri = beside_.store->Uri(beside_.prefix);
  return built;
}

absl::StatusOr<FileLock> IndexPlaces::LockForBuilding() {
  // A folder can be locked itself, which leaves no trace; of a bucket the index is built in the cache folder.
  if (medium_ == Medium::kFile) return FileLock::OfFolder(data_.store->Uri(""), stop_);
  if (medium_ == Medium::kMemory) return FileLock();
  const absl::StatusOr<Location> cache = Cache();
  if (!cache.ok()) return FileLock();
  std::error_code ignored;  // what is wrong with the folder is said when something is written there
  std::filesystem::create_directories(cache->store->Uri(""), ignored);
  return FileLock::OfFile(cache->store->Uri(hash_ + ".lock"), stop_);
}

absl::StatusOr<PlacedIndex> IndexPlaces::Build(const BuildOptions& options) {
  if (medium_ == Medium::kS3) {
    ASSIGN_OR_RETURN(PlacedIndex built, BuildInCache(UnpublishedName(), options));
    return PublishFromCache(std::move(built));
  }
  bool in_cache = false;
  const auto open_index = [&]() -> absl::StatusOr<std::unique_ptr<ObjectWriter>> {
    absl::StatusOr<std::unique_ptr<ObjectWriter>> out = beside_.store->Write(beside_.prefix, {});
    in_cache = !out.ok();
    return out;
  };
  const absl::StatusOr<BuiltIndex> built = BuildIndex(runtime_, data_, open_index, options);
  if (in_cache) {
    Log(LogLevel::kInfo, "dataset",
        fmt::format("the index is kept in the cache folder, not beside the data: {}", ToStd(built.status().message())));
    ASSIGN_OR_RETURN(const std::string name, BuiltName());
    ASSIGN_OR_RETURN(PlacedIndex placed, BuildInCache(name, options));
    RETURN_IF_ERROR(RemoveBuilt(name));
    return placed;
  }
  RETURN_IF_ERROR(built.status());
  ASSIGN_OR_RETURN(PlacedIndex placed, OpenBeside());
  placed.report = built->report;
  (void)RemoveBuilt("");  // of a time when nothing could be put beside the data; it is not looked at any more
  return placed;
}

}  // namespace millrace
