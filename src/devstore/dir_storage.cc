#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <unordered_map>

#include "base/crypto.h"
#include "devstore/dir_walk.h"
#include "devstore/file_content.h"
#include "devstore/s3_error.h"
#include "devstore/s3_request.h"
#include "devstore/sidecar.h"
#include "devstore/storage.h"
#include "devstore/upload_files.h"
#include "devstore/within_root.h"

namespace millrace {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxCachedRecords = size_t{1} << 17;
constexpr int64_t kStaleTemporaryNs = int64_t{24} * 3600 * 1'000'000'000;

std::string HashOf(std::string_view key) {
  return HexEncode(Sha256(AsBytes(key)));
}

/// A folder that cannot be read is treated as empty.
std::vector<std::string> NamesIn(const std::string& folder) {
  auto names = ReadFolder(folder);
  return names.ok() ? *std::move(names) : std::vector<std::string>();
}

/// Returns whether the error of a path means that there is no such object.
bool MeansAbsent(int error) {
  return error == ENOENT || error == ENOTDIR || error == ELOOP || error == ENAMETOOLONG || error == ENXIO;
}

/// Records of files that were asked for lately. Thread-safe.
class RecordCache {
 public:
  std::shared_ptr<const ObjectRecord> Find(const std::string& path, const FileIdentity& identity) {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(path);
    return found != entries_.end() && found->second.first == identity ? found->second.second : nullptr;
  }
  void Insert(const std::string& path, const FileIdentity& identity, std::shared_ptr<const ObjectRecord> record) {
    std::lock_guard lock(mutex_);
    if (entries_.size() >= kMaxCachedRecords) entries_.clear();
    entries_.insert_or_assign(path, std::pair(identity, std::move(record)));
  }
  void Erase(const std::string& path) {
    std::lock_guard lock(mutex_);
    entries_.erase(path);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::pair<FileIdentity, std::shared_ptr<const ObjectRecord>>> entries_;
};

class DirStorage final : public Storage {
 public:
  explicit DirStorage(std::string root)
      : root_(std::move(root)),
        side_(root_ + "/.devstore"),
        temporary_(side_ + "/tmp"),
        names_(root_),
        uploads_(side_ + "/uploads") {}

  void Load();

  absl::StatusOr<std::vector<BucketInfo>> Buckets() override;
  absl::Status CreateBucket(const std::string& bucket) override;
  absl::Status DeleteBucket(const std::string& bucket) override;
  absl::Status CheckBucket(const std::string& bucket) override;
  absl::StatusOr<StoredObject> Open(const std::string& bucket, const std::string& key) override;
  absl::StatusOr<std::shared_ptr<const ObjectRecord>> Describe(const std::string& bucket,
                                                               const std::string& key) override {
    std::shared_lock lock(mutex_);
    return DescribeLocked(bucket, key);
  }
  absl::StatusOr<std::unique_ptr<KeyWalk>> Walk(const std::string& bucket) override;
  void StopWalks() override { names_.Stop(); }
  absl::StatusOr<std::unique_ptr<BlobWriter>> NewBlob(uint64_t) override { return NewFileBlob(temporary_); }
  absl::StatusOr<std::shared_ptr<Content>> Concatenate(
      const std::vector<std::shared_ptr<const Content>>& contents) override {
    return JoinFiles(temporary_, contents);
  }
  absl::StatusOr<std::shared_ptr<const ObjectRecord>> Put(const std::string& bucket, const std::string& key,
                                                          std::shared_ptr<Content> content, ObjectAttributes attributes,
                                                          std::string etag, Check check) override;
  absl::Status Delete(const std::string& bucket, const std::string& key, Check check) override;

  absl::StatusOr<std::string> CreateUpload(Upload upload) override {
    RETURN_IF_ERROR(CheckBucket(upload.bucket));
    return uploads_.Create(std::move(upload));
  }
  absl::Status PutPart(const std::string& upload_id, int number, std::shared_ptr<Content> content,
                       UploadPart part) override {
    return uploads_.PutPart(upload_id, number, static_cast<FileContent&>(*content), std::move(part));
  }
  absl::StatusOr<Upload> FindUpload(const std::string& bucket, const std::string& key,
                                    const std::string& upload_id) override {
    return uploads_.table().Find(bucket, key, upload_id);
  }
  std::vector<Upload> Uploads(const std::string& bucket) override { return uploads_.table().List(bucket); }
  absl::Status RemoveUpload(const std::string& upload_id) override { return uploads_.Remove(upload_id); }

  /// Returns the first key from `from` on that is not a path.
  std::optional<std::string> FirstOddKey(const std::string& bucket, std::string_view from);

 private:
  std::string BucketPath(const std::string& bucket) const { return root_ + "/" + bucket; }
  std::string OddFolder(const std::string& bucket) const { return side_ + "/odd/" + bucket; }
  std::string RecordPath(const std::string& bucket, const std::string& key) const {
    const std::string hash = HashOf(key);
    return fmt::format("{}/meta/{}/{}/{}", side_, bucket, hash.substr(0, 2), hash.substr(2));
  }
  bool IsOdd(const std::string& bucket, const std::string& key) const {
    if (odd_.empty()) return false;
    const auto found = odd_.find(bucket);
    return found != odd_.end() && found->second.contains(key);
  }
  /// Returns the place of the object if there is one.
  std::string ObjectPath(const std::string& bucket, const std::string& key) const {
    if (IsPlainPath(key) && !IsOdd(bucket, key)) return BucketPath(bucket) + "/" + key;
    return OddFolder(bucket) + "/" + HashOf(key);
  }
  absl::Status Absent(const std::string& bucket, const std::string& key) {
    const absl::Status no_bucket = CheckBucket(bucket);
    return no_bucket.ok() ? NoSuchKey(key) : no_bucket;
  }
  std::shared_ptr<const ObjectRecord> RecordOf(const std::string& path, const std::string& bucket,
                                               const std::string& key, const struct stat& stat);
  absl::StatusOr<std::shared_ptr<const ObjectRecord>> DescribeLocked(const std::string& bucket, const std::string& key);
  absl::StatusOr<std::shared_ptr<const ObjectRecord>> ExistingLocked(const std::string& bucket, const std::string& key);
  absl::StatusOr<std::string> Place(const std::string& from, const std::string& bucket, const std::string& key);
  absl::StatusOr<bool> PlaceAsPath(const std::string& from, const std::string& to);
  void PruneFolders(const std::string& bucket, std::string path);
  void LoadOddKeys(const std::string& bucket);

  const std::string root_;
  const std::string side_;
  const std::string temporary_;
  DirCache names_;
  RecordCache records_;
  UploadFiles uploads_;
  std::shared_mutex mutex_;  // held alone for changes of files, shared for looking at one
  std::unordered_map<std::string, std::set<std::string, std::less<>>> odd_;  // bucket -> keys that are no paths
};

class MergedWalk final : public KeyWalk {
 public:
  MergedWalk(DirStorage& storage, std::string bucket, DirWalk walk)
      : storage_(storage), bucket_(std::move(bucket)), walk_(std::move(walk)) {}
  absl::StatusOr<std::optional<std::string>> FirstFrom(std::string_view from) override {
    ASSIGN_OR_RETURN(std::optional<std::string> file, walk_.FirstFrom(from));
    std::optional<std::string> odd = storage_.FirstOddKey(bucket_, from);
    if (!file || (odd && *odd < *file)) return odd;
    return file;
  }

 private:
  DirStorage& storage_;
  const std::string bucket_;
  DirWalk walk_;
};

/// Takes up what an earlier run left in the side folder.
void DirStorage::Load() {
  for (const std::string& bucket : NamesIn(side_ + "/odd")) LoadOddKeys(bucket.substr(0, bucket.find('/')));
  uploads_.Load();
  // Uploads that were in flight when a devstore was killed; recent ones may belong to another devstore that runs now.
  for (const std::string& name : NamesIn(temporary_)) {
    const std::string path = temporary_ + "/" + name;
    struct stat stat;
    if (::stat(path.c_str(), &stat) == 0 && NowNs() - IdentityOf(stat).modified_ns > kStaleTemporaryNs)
      unlink(path.c_str());
  }
}

void DirStorage::LoadOddKeys(const std::string& bucket) {
  for (const std::string& hash : NamesIn(OddFolder(bucket))) {
    if (hash.size() != 64) continue;
    const auto record = ReadTextFile(fmt::format("{}/meta/{}/{}/{}", side_, bucket, hash.substr(0, 2), hash.substr(2)));
    if (!record.ok()) continue;
    std::string key = FieldOr(DecodeFields(*record), "key");
    if (HashOf(key) == hash) odd_[bucket].insert(std::move(key));
  }
}

std::optional<std::string> DirStorage::FirstOddKey(const std::string& bucket, std::string_view from) {
  std::shared_lock lock(mutex_);
  const auto keys = odd_.find(bucket);
  if (keys == odd_.end()) return std::nullopt;
  const auto found = keys->second.lower_bound(from);
  if (found == keys->second.end()) return std::nullopt;
  return *found;
}

absl::StatusOr<std::vector<BucketInfo>> DirStorage::Buckets() {
  ASSIGN_OR_RETURN(const DirCache::Names names, names_.Read(root_));
  std::vector<BucketInfo> buckets;
  for (const std::string& name : *names) {
    if (!name.ends_with('/') || name.starts_with('.')) continue;
    struct stat stat;
    if (::stat((root_ + "/" + name).c_str(), &stat) == 0) {
      buckets.push_back({name.substr(0, name.size() - 1), stat.st_mtim.tv_sec});
    }
  }
  std::sort(buckets.begin(), buckets.end(), [](const BucketInfo& a, const BucketInfo& b) { return a.name < b.name; });
  return buckets;
}

absl::Status DirStorage::CheckBucket(const std::string& bucket) {
  if (!MayNameBucket(bucket)) return NoSuchBucket(bucket);
  const UniqueFd folder(open(BucketPath(bucket).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  return folder && LiesWithin(folder, root_) ? absl::OkStatus() : NoSuchBucket(bucket);
}

absl::Status DirStorage::CreateBucket(const std::string& bucket) {
  if (mkdir(BucketPath(bucket).c_str(), 0777) == 0) return absl::OkStatus();
  const int error = errno;
  if (error != EEXIST || !CheckBucket(bucket).ok()) return FileError(error, "creating the bucket", bucket);
  return S3Error(s3code::kBucketAlreadyOwnedByYou,
                 "Your previous request to create the named bucket succeeded and you already own it.",
                 {{"BucketName", bucket}});
}

absl::Status DirStorage::DeleteBucket(const std::string& bucket) {
  RETURN_IF_ERROR(CheckBucket(bucket));
  const auto not_empty = [&] {
    return S3Error(s3code::kBucketNotEmpty, "The bucket you tried to delete is not empty", {{"BucketName", bucket}});
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<KeyWalk> walk, Walk(bucket));
  ASSIGN_OR_RETURN(const std::optional<std::string> key, walk->FirstFrom(""));
  if (key) return not_empty();
  {
    std::lock_guard lock(mutex_);
    if (!RemoveEmptyFolders(BucketPath(bucket))) return not_empty();  // a file has appeared, or it is a link
    std::error_code error;
    fs::remove_all(fmt::format("{}/meta/{}", side_, bucket), error);
    fs::remove_all(OddFolder(bucket), error);
    odd_.erase(bucket);
  }
  for (const Upload& upload : Uploads(bucket)) RemoveUpload(upload.id).IgnoreError();
  return absl::OkStatus();
}

std::shared_ptr<const ObjectRecord> DirStorage::RecordOf(const std::string& path, const std::string& bucket,
                                                         const std::string& key, const struct stat& stat) {
  const FileIdentity identity = IdentityOf(stat);
  if (auto cached = records_.Find(path, identity)) return cached;
  std::optional<ObjectRecord> record;
  if (const auto text = ReadTextFile(RecordPath(bucket, key)); text.ok()) record = DecodeObject(*text, identity);
  if (!record) record = ObjectRecord{{}, DerivedETag(identity), identity.size, identity.modified_ns};
  auto shared = std::make_shared<const ObjectRecord>(*std::move(record));
  records_.Insert(path, identity, shared);
  return shared;
}

absl::StatusOr<StoredObject> DirStorage::Open(const std::string& bucket, const std::string& key) {
  if (!MayNameBucket(bucket)) return NoSuchBucket(bucket);
  std::shared_lock lock(mutex_);
  const std::string path = ObjectPath(bucket, key);
  // O_NONBLOCK: a pipe in the folder must not block the server.
  auto file = std::make_shared<const UniqueFd>(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!*file) return MeansAbsent(errno) ? Absent(bucket, key) : FileError(errno, "opening", key);
  struct stat stat;
  if (fstat(file->get(), &stat) != 0) return FileError(errno, "looking at", key);
  if (!S_ISREG(stat.st_mode) || !LiesWithin(*file, root_)) return Absent(bucket, key);
  StoredObject object;
  object.record = RecordOf(path, bucket, key, stat);
  object.content = std::make_shared<const FileContent>(std::move(file), object.record->size);
  return object;
}

absl::StatusOr<std::shared_ptr<const ObjectRecord>> DirStorage::DescribeLocked(const std::string& bucket,
                                                                               const std::string& key) {
  if (!MayNameBucket(bucket)) return NoSuchBucket(bucket);
  const std::string path = ObjectPath(bucket, key);
  const UniqueFd file(open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat stat;
  if (!file || fstat(file.get(), &stat) != 0)
    return MeansAbsent(errno) ? Absent(bucket, key) : FileError(errno, "looking at", key);
  if (!S_ISREG(stat.st_mode) || !LiesWithin(file, root_)) return Absent(bucket, key);
  return RecordOf(path, bucket, key, stat);
}

/// Returns the object that a write replaces; null if it does not exist.
absl::StatusOr<std::shared_ptr<const ObjectRecord>> DirStorage::ExistingLocked(const std::string& bucket,
                                                                               const std::string& key) {
  auto existing = DescribeLocked(bucket, key);
  if (IsS3Error(existing.status(), s3code::kNoSuchKey)) return nullptr;
  return existing;
}

absl::StatusOr<std::unique_ptr<KeyWalk>> DirStorage::Walk(const std::string& bucket) {
  RETURN_IF_ERROR(CheckBucket(bucket));
  return std::make_unique<MergedWalk>(*this, bucket, DirWalk(names_, BucketPath(bucket)));
}

absl::StatusOr<std::shared_ptr<const ObjectRecord>> DirStorage::Put(const std::string& bucket, const std::string& key,
                                                                    std::shared_ptr<Content> content,
                                                                    ObjectAttributes attributes, std::string etag,
                                                                    Check check) {
  auto& file = static_cast<FileContent&>(*content);
  struct stat stat;
  if (fstat(file.file().get(), &stat) != 0) return FileError(errno, "looking at", key);
  FileIdentity identity = IdentityOf(stat);
  identity.changed_ns = 0;  // is not known before it has its place
  auto record = std::make_shared<const ObjectRecord>(
      ObjectRecord{std::move(attributes), std::move(etag), identity.size, identity.modified_ns});

  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CheckBucket(bucket));
  ASSIGN_OR_RETURN(const auto existing, ExistingLocked(bucket, key));
  RETURN_IF_ERROR(check(existing.get()));
  // The record is written first: it names the file's identity, so that it cannot be taken for the old file's.
  RETURN_IF_ERROR(WriteTextFile(RecordPath(bucket, key), EncodeObject(key, *record, identity)));
  ASSIGN_OR_RETURN(const std::string path, Place(file.path(), bucket, key));
  file.Keep();
  if (fstat(file.file().get(), &stat) != 0) return FileError(errno, "looking at", key);
  identity = IdentityOf(stat);
  WriteTextFile(RecordPath(bucket, key), EncodeObject(key, *record, identity)).IgnoreError();  // the first one is true
  records_.Insert(path, identity, record);
  return record;
}

/// Moves a finished file to where the object belongs; the result is its path.
absl::StatusOr<std::string> DirStorage::Place(const std::string& from, const std::string& bucket,
                                              const std::string& key) {
  if (IsPlainPath(key) && !IsOdd(bucket, key)) {
    std::string to = BucketPath(bucket) + "/" + key;
    ASSIGN_OR_RETURN(const bool placed, PlaceAsPath(from, to));
    if (placed) return to;
  }
  RETURN_IF_ERROR(MakeFolders(OddFolder(bucket)));
  std::string to = OddFolder(bucket) + "/" + HashOf(key);
  if (rename(from.c_str(), to.c_str()) != 0) return FileError(errno, "writing", key);
  odd_[bucket].insert(key);
  return to;
}

/// Returns false when the path is taken in a way that does not exist in S3. Either a folder is where the file should
/// be, or a file where a folder should be. Also returns false when a link leads out of the root.
absl::StatusOr<bool> DirStorage::PlaceAsPath(const std::string& from, const std::string& to) {
  const size_t slash = to.rfind('/');
  const UniqueFd folder = MakeFolderWithin(root_, to.substr(0, slash));
  if (!folder) return false;
  const char* const name = to.c_str() + slash + 1;
  const auto moved = [&] { return renameat(AT_FDCWD, from.c_str(), folder.get(), name) == 0; };
  if (moved()) return true;
  if (errno == EISDIR && unlinkat(folder.get(), name, AT_REMOVEDIR) == 0 && moved()) return true;  // an empty folder
  if (errno == ENOTDIR || errno == EISDIR || errno == EEXIST || errno == ENOTEMPTY || errno == ENAMETOOLONG ||
      errno == ELOOP) {
    return false;
  }
  return FileError(errno, "writing", to);
}

absl::Status DirStorage::Delete(const std::string& bucket, const std::string& key, Check check) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CheckBucket(bucket));
  ASSIGN_OR_RETURN(const auto existing, ExistingLocked(bucket, key));
  RETURN_IF_ERROR(check(existing.get()));
  if (existing == nullptr) return absl::OkStatus();
  const std::string path = ObjectPath(bucket, key);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return FileError(errno, "deleting", key);
  unlink(RecordPath(bucket, key).c_str());
  records_.Erase(path);
  const auto odd = odd_.find(bucket);
  if (odd != odd_.end() && odd->second.erase(key) > 0) {
    if (odd->second.empty()) odd_.erase(odd);
  } else {
    PruneFolders(bucket, path);
  }
  return absl::OkStatus();
}

/// Folders are no objects: those that a deletion leaves empty go as well.
void DirStorage::PruneFolders(const std::string& bucket, std::string path) {
  const size_t bucket_end = BucketPath(bucket).size();
  for (;;) {
    path.resize(path.rfind('/'));
    if (path.size() <= bucket_end || rmdir(path.c_str()) != 0) return;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Storage>> OpenDirStorage(const std::string& root) {
  std::error_code error;
  const fs::path canonical = fs::canonical(root, error);
  if (error || !fs::is_directory(canonical, error)) {
    return absl::NotFoundError(
        fmt::format("{} is not a folder; make it first, or use mem: for objects in memory", root));
  }
  const std::string path = RealPathOf(UniqueFd(open(canonical.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)));
  if (path.empty()) {
    return absl::FailedPreconditionError(fmt::format(
        "devstore cannot resolve links below {}: it needs /proc; mount it, or use mem: for objects in memory", root));
  }
  auto storage = std::make_unique<DirStorage>(path);
  storage->Load();
  return storage;
}

}  // namespace millrace
