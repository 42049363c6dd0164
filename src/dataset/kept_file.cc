#include "dataset/kept_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "dataset/file_lock.h"
#include "dataset/sample_objects.h"
#include "store/blocking.h"

namespace millrace {

namespace {

using Kept = std::shared_ptr<const KeptFile>;

constexpr uint64_t kMaxBytes = uint64_t{4} << 30;   // that are held in memory
constexpr uint64_t kCopyBytes = uint64_t{8} << 20;  // at a time

class KeptPlaces {
 public:
  KeptPlaces(Stores& stores, const Dataset& dataset, const KeepOptions& options)
      : store_(dataset.store()),
        key_(dataset.StoreKey(fmt::format("{}{}", kDatasetFolder, options.name))),
        options_(options),
        on_s3_(store_.Uri("").starts_with("s3://")),
        in_memory_(store_.Uri("").starts_with("mem://")) {
    if (dataset.cache_folder().empty()) return;
    if (absl::StatusOr<Location> cache = stores.Open(dataset.cache_folder() + "/index"); cache.ok()) cache_ = *cache;
  }

  /// Null when there is none on this machine that is sound.
  absl::StatusOr<Kept> Find() {
    if (in_memory_) return FindInMemory();
    if (!on_s3_) {
      if (Kept beside = OpenFile(store_.Uri(key_), options_.check)) return beside;
    }
    if (cache_.store == nullptr) return nullptr;
    return OpenFile(cache_.store->Uri(CacheKey()), options_.check);
  }

  // From S3 to the cache folder, by one process of this machine. Null when there is none, or what arrives is not sound:
  // it is made again.
  absl::StatusOr<Kept> Download() const {
    if (!on_s3_ || cache_.store == nullptr) return nullptr;
    const absl::StatusOr<ObjectInfo> info = HeadBlocking(store_, key_, options_.stop);
    if (absl::IsNotFound(info.status()) || absl::IsPermissionDenied(info.status())) return nullptr;
    RETURN_IF_ERROR(info.status());
    const absl::Status copied = CopyFromS3(*info);
    if (absl::IsNotFound(copied) || absl::IsFailedPrecondition(copied)) return nullptr;  // it was replaced meanwhile
    RETURN_IF_ERROR(copied);
    return OpenFile(cache_.store->Uri(CacheKey()), options_.verify);
  }

  absl::StatusOr<FileLock> Lock() {
    if (in_memory_) return FileLock();
    if (!on_s3_) return FileLock::OfFolder(store_.Uri(""), options_.stop);
    if (cache_.store == nullptr) return FileLock();
    std::error_code ignored;  // what is wrong with the folder is said when something is written there
    std::filesystem::create_directories(cache_.store->Uri(""), ignored);
    return FileLock::OfFile(cache_.store->Uri(CacheKey() + ".lock"), options_.stop);
  }

  absl::StatusOr<Kept> Make() {
    if (on_s3_) {
      RETURN_IF_ERROR(MakeInCache());
      const absl::Status published = Publish();
      if (absl::IsCancelled(published)) return published;
      if (!published.ok()) LogKeptInCache(published);
      return OpenMade(cache_.store->Uri(CacheKey()));
    }
    absl::StatusOr<std::unique_ptr<ObjectWriter>> beside = store_.Write(key_, {});
    if (!beside.ok()) {
      RETURN_IF_ERROR(MakeInCache());
      LogKeptInCache(beside.status());
      return OpenMade(cache_.store->Uri(CacheKey()));
    }
    RETURN_IF_ERROR(MakeWith(**beside));
    if (in_memory_) return FindInMemory();
    return OpenMade(store_.Uri(key_));
  }

 private:
  std::string CacheKey() const { return options_.name; }

  void LogKeptInCache(const absl::Status& reason) const {
    Log(LogLevel::kInfo, "dataset",
        fmt::format("{} is kept in the cache folder, not beside the data: {}", options_.name, ToStd(reason.message())));
  }

  // Null for one that is not there or not sound: it can be made again.
  static Kept OpenFile(const std::string& path, absl::FunctionRef<absl::Status(ByteSpan)> check) {
    absl::StatusOr<MappedFile> file = MappedFile::Open(path);
    if (!file.ok() || !check(file->bytes()).ok()) return nullptr;
    return std::make_shared<const KeptFile>(path, *std::move(file));
  }

  absl::StatusOr<Kept> OpenMade(const std::string& path) const {
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
    RETURN_IF_ERROR(Annotate(options_.verify(file.bytes()), path));
    return std::make_shared<const KeptFile>(path, std::move(file));
  }

  absl::StatusOr<Kept> FindInMemory() const {
    absl::StatusOr<std::string> bytes = ReadAll(store_, key_, kMaxBytes);
    if (!bytes.ok() || !options_.check(AsBytes(*bytes)).ok()) return nullptr;
    return std::make_shared<const KeptFile>(store_.Uri(key_), *std::move(bytes));
  }

  absl::Status MakeWith(ObjectWriter& out) const {
    RETURN_IF_ERROR(options_.make(out));
    return out.Commit().status();
  }

  absl::Status MakeInCache() const {
    if (cache_.store == nullptr) {
      return absl::NotFoundError(
          fmt::format("{} can be kept neither beside the data nor in a cache folder: set MILLRACE_CACHE to a folder "
                      "that can be written to",
                      options_.name));
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> out, cache_.store->Write(CacheKey(), {}));
    return MakeWith(*out);
  }

  // From the cache folder to the data on S3.
  absl::Status Publish() const {
    ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(cache_.store->Uri(CacheKey())));
    PutOptions put;
    put.stop = options_.stop;
    ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> out, store_.Write(key_, put));
    for (ByteSpan left = file.bytes(); !left.empty(); left = left.subspan(std::min(left.size(), kCopyBytes))) {
      RETURN_IF_ERROR(out->Append(left.first(std::min(left.size(), kCopyBytes))));
    }
    return out->Commit().status();
  }

  absl::Status CopyFromS3(const ObjectInfo& info) const {
    ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> out, cache_.store->Write(CacheKey(), {}));
    std::string piece;
    for (uint64_t at = 0; at < info.size; at += piece.size()) {
      piece.resize(std::min(kCopyBytes, info.size - at));
      GetOptions get;
      get.range = {at, piece.size()};
      get.if_match = info.etag;
      get.stop = options_.stop;
      RETURN_IF_ERROR(GetBlocking(store_, key_, AsWritableBytes(piece), std::move(get)).status());
      RETURN_IF_ERROR(out->Append(AsBytes(piece)));
    }
    return out->Commit().status();
  }

  ObjectStore& store_;
  const std::string key_;
  const KeepOptions& options_;
  const bool on_s3_;
  const bool in_memory_;
  Location cache_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const KeptFile>> FindOrMake(Stores& stores, const Dataset& dataset,
                                                           const KeepOptions& options) {
  KeptPlaces places(stores, dataset, options);
  ASSIGN_OR_RETURN(Kept found, places.Find());
  if (found != nullptr) return found;
  ASSIGN_OR_RETURN(const FileLock lock, places.Lock());
  ASSIGN_OR_RETURN(found, places.Find());  // whoever held the lock has made it by now
  if (found == nullptr) {
    ASSIGN_OR_RETURN(found, places.Download());
  }
  return found != nullptr ? absl::StatusOr<Kept>(std::move(found)) : places.Make();
}

}  // namespace millrace
