#include "transfer/artifact.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/crypto.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/process.h"
#include "store/blocking.h"
#include "transfer/copy_object.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxArtifactInMemory = uint64_t{4} << 30;
constexpr int kCopyAttempts = 3;

std::string HashOf(std::string_view text) {
  Xxh3Stream stream;
  stream.Update(AsBytes(text));
  return stream.Digest().Hex();
}

absl::StatusOr<SharedArtifact> Checked(SharedArtifact artifact, CheckArtifact check) {
  RETURN_IF_ERROR(check(artifact));
  return artifact;
}

// Returns whether the status says that no usable one exists, and not that the search failed.
bool IsNoArtifact(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsPermissionDenied(status) || absl::IsDataLoss(status) ||
         absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status);
}

constexpr const char* kArtifactFolder = "index";

// Returns an absolute path, so that it stays the same if the program changes its working directory.
absl::StatusOr<std::string> FullPathOf(const std::string& cache_folder) {
  if (cache_folder.empty()) {
    return absl::NotFoundError("there is no cache folder: set MILLRACE_CACHE to a folder that can be written to");
  }
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(cache_folder, error);
  if (!error) path = std::filesystem::weakly_canonical(path, error);
  if (error) return ErrnoStatus(error.value(), cache_folder, "resolving the path");
  return path.string();
}

}  // namespace

std::string DefaultCacheFolder() {
  if (std::string own = EnvironmentValue("MILLRACE_CACHE"); !own.empty()) return own;
  if (const std::string xdg = EnvironmentValue("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/millrace";
  const std::string home = EnvironmentValue("HOME");
  return home.empty() ? "" : home + "/.cache/millrace";
}

absl::StatusOr<Location> OpenArtifactCache(Stores& stores, const std::string& cache_folder) {
  ASSIGN_OR_RETURN(const std::string parent, FullPathOf(cache_folder));
  ASSIGN_OR_RETURN(const OwnFolder folder, FindOwnFolder(parent, kArtifactFolder, FolderSharing::kGroupOfParent));
  return stores.OpenOwn(folder);
}

absl::StatusOr<Location> MakeArtifactCache(Stores& stores, const std::string& cache_folder) {
  ASSIGN_OR_RETURN(const std::string parent, FullPathOf(cache_folder));
  ASSIGN_OR_RETURN(const OwnFolder folder, TakeOwnFolder(parent, kArtifactFolder, FolderSharing::kGroupOfParent));
  return stores.OpenOwn(folder);
}

std::string StemFor(const std::string& name, const StoreTraits& store) {
  return store.principal.empty() ? name : fmt::format("{}+{}", name, HashOf(store.principal));
}

ArtifactPlaces::ArtifactPlaces(Stores& stores, ArtifactOptions options)
    : stores_(stores), options_(std::move(options)), beside_(options_.beside.store->traits()) {}

// Returns the name of one that is built now.
absl::StatusOr<std::string> ArtifactPlaces::BuiltName() {
  const std::string name = options_.stem + options_.suffix;
  if (options_.one_version) return name;
  const absl::StatusOr<ObjectInfo> beside = HeadBlocking(*options_.beside.store, options_.beside.prefix, options_.stop);
  if (absl::IsCancelled(beside.status())) return beside.status();
  return beside.ok() ? fmt::format("{}@{}{}", options_.stem, HashOf(beside->etag), options_.suffix) : name;
}

// Until it is known which of two is the artifact, others do not find the one in the cache folder.
std::string ArtifactPlaces::UnpublishedName() const {
  return options_.stem + (options_.one_version ? options_.suffix : ".unpublished");
}

std::string ArtifactPlaces::CopyName(std::string_view etag) const {
  if (options_.one_version) return options_.stem + options_.suffix;
  return fmt::format("{}-{}{}", options_.stem, HashOf(etag), options_.suffix);
}

absl::StatusOr<SharedArtifact> ArtifactPlaces::OpenCacheFile(const std::string& name, CheckArtifact check) {
  ASSIGN_OR_RETURN(const Location cache, Cache());
  const std::string path = cache.store->Uri(name);
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::OpenOwn(path, *cache.store->traits().own));
  return Checked(std::make_shared<Artifact>(path, std::move(file)), check);
}

absl::StatusOr<SharedArtifact> ArtifactPlaces::Open(Place place, CheckArtifact check, CheckArtifact verify) {
  switch (place) {
    case Place::kInPlaceOfBeside:
      return OpenInPlaceOfBeside(check);
    case Place::kBeside:
      return OpenBeside(check, verify);
    case Place::kCached:
      return OpenCacheFile(options_.stem + options_.suffix, check);
  }
  return absl::InternalError("no such place");
}

// The store is asked only if the cache folder has one.
absl::StatusOr<SharedArtifact> ArtifactPlaces::OpenInPlaceOfBeside(CheckArtifact check) {
  const absl::Status none = absl::NotFoundError("none was built in place of the one beside the data");
  if (options_.one_version) return none;
  ASSIGN_OR_RETURN(const Location cache, Cache());
  ASSIGN_OR_RETURN(const std::vector<ObjectInfo> built, ListAll(*cache.store, options_.stem + "@"));
  if (built.empty()) return none;
  ASSIGN_OR_RETURN(const std::string name, BuiltName());
  return OpenCacheFile(name, check);
}

absl::StatusOr<SharedArtifact> ArtifactPlaces::OpenBeside(CheckArtifact check, CheckArtifact verify) {
  if (beside_.is_remote()) return OpenCopy(check, verify);
  if (beside_.is_memory()) {
    absl::StatusOr<std::string> bytes = absl::FailedPreconditionError("not read");
    for (int attempt = 0; attempt < kCopyAttempts && absl::IsFailedPrecondition(bytes.status()); ++attempt) {
      // Another one may be published while it is read.
      bytes = ReadAll(*options_.beside.store, options_.beside.prefix, kMaxArtifactInMemory);
    }
    RETURN_IF_ERROR(bytes.status());
    return Checked(std::make_shared<Artifact>(BesideUri(), *std::move(bytes)), check);
  }
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(BesideUri(), beside_.within));
  return Checked(std::make_shared<Artifact>(BesideUri(), std::move(file)), check);
}

// Opens the copy of one on S3 in the cache folder, which is made now if it is not there yet.
absl::StatusOr<SharedArtifact> ArtifactPlaces::OpenCopy(CheckArtifact check, CheckArtifact verify) {
  ObjectStore& store = *options_.beside.store;
  ASSIGN_OR_RETURN(const Location cache, MadeCache());
  absl::StatusOr<SharedArtifact> copy = absl::UnknownError("not opened");
  std::string name;
  // A copy that is missing, or damaged in the cache folder, is fetched. Nothing shows the store what the bytes must be,
  // so damage in transit shows only now, and only here can it be fetched again.
  for (int attempt = 0; attempt < kCopyAttempts && !copy.ok(); ++attempt) {
    absl::StatusOr<ObjectInfo> info = HeadBlocking(store, options_.beside.prefix, options_.stop);
    // S3 says so of a missing object, too, if the credentials may not list the bucket.
    if (absl::IsPermissionDenied(info.status())) return absl::NotFoundError(info.status().message());
    RETURN_IF_ERROR(info.status());
    info->key = options_.beside.prefix;
    name = CopyName(info->etag);
    copy = OpenCacheFile(name, check);
    if (copy.ok()) break;
    const absl::Status copied = CopyObject(store, *info, *cache.store, name, {.stop = options_.stop}).status();
    if (absl::IsFailedPrecondition(copied)) {  // another one was published meanwhile
      copy = copied;
      continue;
    }
    RETURN_IF_ERROR(copied);
    copy = OpenCacheFile(name, check);
    if (copy.ok()) copy = Checked(*std::move(copy), verify);
    if (!copy.ok()) RETURN_IF_ERROR(DeleteBlocking(*cache.store, name));
  }
  if (!copy.ok()) return Annotate(copy.status(), BesideUri());
  Remove(options_.stem + "-", name);
  return copy;
}

// Removes other versions from the cache folder. Nobody looks at them, so that one stays if it cannot be removed.
void ArtifactPlaces::Remove(const std::string& prefix, std::string_view except) {
  if (options_.one_version) return;
  const absl::StatusOr<Location> cache = Cache();
  if (!cache.ok()) return;
  const absl::StatusOr<std::vector<ObjectInfo>> found = ListAll(*cache->store, prefix);
  if (!found.ok()) return;
  for (const ObjectInfo& one : *found) {
    if (one.key == except) continue;
    if (const absl::Status removed = DeleteBlocking(*cache->store, one.key); !removed.ok()) {
      Log(LogLevel::kWarning, "transfer", fmt::format("an old version stays: {}", ToStd(removed.message())));
    }
  }
}

void ArtifactPlaces::RemoveBuilt(std::string_view except) {
  Remove(options_.stem + "@", except);
  Remove(options_.stem + options_.suffix, except);
}

absl::Status ArtifactPlaces::Rename(const std::string& from, const std::string& to) {
  ASSIGN_OR_RETURN(const Location cache, Cache());
  std::error_code error;
  std::filesystem::rename(cache.store->Uri(from), cache.store->Uri(to), error);
  return error ? ErrnoStatus(error.value(), cache.store->Uri(from), "rename") : absl::OkStatus();
}

absl::Status ArtifactPlaces::RefusedBeside(const absl::Status& reason) const {
  if (options_.home != ArtifactHome::kBeside) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{} cannot be kept beside the data, and must not be kept elsewhere: {}", options_.title,
                  ToStd(reason.message())));
}

void ArtifactPlaces::LogKeptInCache(const absl::Status& reason) const {
  Log(LogLevel::kInfo, "transfer",
      fmt::format("{} is kept in the cache folder, not beside the data: {}", options_.title, ToStd(reason.message())));
}

// Puts a copy of what was built in the cache folder beside data on S3.
absl::StatusOr<SharedArtifact> ArtifactPlaces::Publish() {
  ASSIGN_OR_RETURN(const Location cache, Cache());
  const std::string built = UnpublishedName();
  std::string path = cache.store->Uri(built);
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::OpenOwn(path, *cache.store->traits().own));
  ASSIGN_OR_RETURN(ObjectInfo info, HeadBlocking(*cache.store, built, options_.stop));
  info.key = built;
  const absl::StatusOr<CopiedObject> published =
      CopyObject(*cache.store, info, *options_.beside.store, options_.beside.prefix, {.stop = options_.stop});
  if (absl::IsCancelled(published.status())) return published.status();
  if (!published.ok()) {
    // The data set can be used all the same, on this machine.
    ASSIGN_OR_RETURN(const std::string name, BuiltName());
    RETURN_IF_ERROR(Rename(built, name));
    RemoveBuilt(name);
    RETURN_IF_ERROR(RefusedBeside(published.status()));
    LogKeptInCache(published.status());
    path = cache.store->Uri(name);
  } else {
    // The copy is kept under the name by which OpenCopy will look for it.
    const std::string copy = CopyName(published->info.etag);
    if (Rename(built, copy).ok()) Remove(options_.stem + "-", copy);
    RemoveBuilt("");  // of a time when nothing could be put beside the data
    if (!options_.one_version) path = BesideUri();
  }
  return std::make_shared<Artifact>(std::move(path), std::move(file));
}

absl::StatusOr<FileLock> ArtifactPlaces::Lock() {
  if (beside_.is_memory()) return FileLock();
  // A folder can be locked itself, which leaves no trace. The rest is built in the cache folder.
  if (beside_.is_folder() && MayWriteBeside()) {
    absl::StatusOr<FileLock> lock = FileLock::OfFolder(beside_.root, options_.stop, options_.max_lock_wait);
    if (!absl::IsDeadlineExceeded(lock.status())) return lock;
    // An artifact appears by a rename, so several may build one. The processes of this user still wait for each other.
    Log(LogLevel::kWarning, "transfer",
        fmt::format("{}; {} is built without that lock", ToStd(lock.status().message()), options_.title));
  }
  const absl::StatusOr<Location> cache = MadeCache();
  if (!cache.ok()) return FileLock();  // what is wrong with the folder is said when something is written there
  return FileLock::OfFile(cache->store->Uri(options_.stem + ".lock"), options_.stop);
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> ArtifactPlaces::WriteInCache(const std::string& name) {
  ASSIGN_OR_RETURN(const Location cache, MadeCache());
  return cache.store->Write(name, {});
}

absl::StatusOr<SharedArtifact> ArtifactPlaces::Build(BuildArtifact build) {
  std::string in_cache;  // its name there
  absl::Status refused;  // beside the data
  const auto open = [&]() -> absl::StatusOr<std::unique_ptr<ObjectWriter>> {
    in_cache = UnpublishedName();
    if (!MayWriteBeside()) {
      refused = absl::PermissionDeniedError(options_.home == ArtifactHome::kCache ? "the program has said so"
                                                                                  : "this program only reads the data");
      RETURN_IF_ERROR(RefusedBeside(refused));
      ASSIGN_OR_RETURN(in_cache, BuiltName());
    } else if (!beside_.is_remote()) {
      absl::StatusOr<std::unique_ptr<ObjectWriter>> beside = options_.beside.store->Write(options_.beside.prefix, {});
      in_cache.clear();
      if (beside.ok()) return beside;
      refused = beside.status();
      RETURN_IF_ERROR(RefusedBeside(refused));
      ASSIGN_OR_RETURN(in_cache, BuiltName());
    }
    absl::StatusOr<std::unique_ptr<ObjectWriter>> out = WriteInCache(in_cache);
    if (out.ok()) return out;
    return Annotate(out.status(),
                    fmt::format("{} can be kept neither beside the data nor in the cache folder (set MILLRACE_CACHE to "
                                "a folder that can be written to)",
                                options_.title));
  };
  RETURN_IF_ERROR(build(open));
  if (beside_.is_remote() && MayWriteBeside()) return Publish();
  const auto no_check = [](const SharedArtifact&) { return absl::OkStatus(); };
  if (!in_cache.empty()) {
    LogKeptInCache(refused);
    RemoveBuilt(in_cache);
    return OpenCacheFile(in_cache, no_check);
  }
  RemoveBuilt("");  // of a time when nothing could be put beside the data; it is not looked at any more
  return OpenBeside(no_check, no_check);
}

absl::StatusOr<SharedArtifact> ArtifactPlaces::Find(bool locked, CheckArtifact check, CheckArtifact verify) {
  for (const Place place : kPlaces) {
    if (place == Place::kBeside && beside_.is_remote() && !locked) continue;  // one process copies it
    absl::StatusOr<SharedArtifact> found = Open(place, check, verify);
    if (found.ok() || !IsNoArtifact(found.status())) return found;
  }
  return absl::NotFoundError("nothing sound is there");
}

absl::StatusOr<SharedArtifact> ArtifactPlaces::GetOrBuild(CheckArtifact check, CheckArtifact verify,
                                                          BuildArtifact build) {
  absl::StatusOr<SharedArtifact> found = Find(/*locked=*/false, check, verify);
  if (!absl::IsNotFound(found.status())) return found;
  ASSIGN_OR_RETURN(const FileLock lock, Lock());
  found = Find(/*locked=*/true, check, verify);  // the process that held the lock has built it by now
  if (!absl::IsNotFound(found.status())) return found;
  ASSIGN_OR_RETURN(SharedArtifact built, Build(build));
  RETURN_IF_ERROR(Annotate(verify(built), built->uri()));
  return built;
}

}  // namespace millrace
