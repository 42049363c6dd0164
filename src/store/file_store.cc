#include "store/file_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_join.h"
#include "base/atomic_file.h"
#include "base/errno_status.h"
#include "base/life_sign.h"
#include "base/within.h"
#include "store/checks.h"
#include "store/file_system.h"
#include "store/piece_ledger.h"
#include "store/status_gatherer.h"

namespace millrace {

namespace {

constexpr int kThreads = 8;
constexpr size_t kParkedWalks = 4;
// A read looks at the stop token once in so many bytes. The checksum of these bytes is made next, while they are in the
// L2 cache of a core. With 256 KiB the checksum costs a tenth of the read, with 1 MiB a third (ISA-L's, a Xeon with 2
// MiB of that cache).
constexpr size_t kPiece = 256 << 10;

absl::Status Closed() {
  return absl::CancelledError("the file store is being closed");
}

void SetPhase(const GetOptions& options, RequestPhase phase) {
  if (options.progress != nullptr) options.progress->store(phase, std::memory_order_relaxed);
}

std::string WalkName(const ListOptions& options, const std::string& continuation) {
  return options.prefix + '\0' + options.delimiter + '\0' + continuation;
}

}  // namespace

FileStore::FileStore(std::string root, std::vector<std::string> within)
    : FileStore(std::move(root), std::move(within), std::nullopt) {}

FileStore::FileStore(OwnFolder own) : FileStore(own.path, {}, own) {}

FileStore::FileStore(std::string root, std::vector<std::string> within, std::optional<OwnFolder> own)
    : ObjectStore({.medium = StoreTraits::Medium::kFolder,
                   .root = root == "/" ? root : root + "/",
                   .bucket = {},
                   .identity = absl::StrJoin(within, ":"),
                   .own = std::move(own),
                   .within = std::move(within),
                   .holds_if_match = false}),
      root_(std::move(root)),
      threads_(kThreads, "file-store") {}

FileStore::~FileStore() {
  stopping_ = true;
}

absl::Status FileStore::Check(const std::string& key) const {
  RETURN_IF_ERROR(CheckKey(root_, key));
  return CheckFileKey(Uri(key), key);
}

absl::StatusOr<UniqueFd> FileStore::OpenToRead(const std::string& uri) const {
  // The open does not block, for the case that it is a pipe: opening one for reading would wait for a writer.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  if (traits().own) return OpenOwnFile(*traits().own, uri, kFlags);
  const std::vector<std::string>& within = traits().within;
  UniqueFd fd = within.empty() ? UniqueFd(open(uri.c_str(), kFlags)) : OpenWithin(within, uri, kFlags);
  if (!fd) return ReadErrno(errno, uri, "opening");
  return fd;
}

// A file keeps the mode of the one that it replaces, unless the folder says which mode its files have.
absl::StatusOr<std::unique_ptr<AtomicFile>> FileStore::CreateFile(const std::string& path,
                                                                  const PutOptions& options) const {
  if (const std::optional<OwnFolder>& own = traits().own) {
    ASSIGN_OR_RETURN(auto file, AtomicFile::Create(path, path, Durability::kSynced,
                                                   own->file_mode() & options.most_mode, LinkAtPath::kReplaced));
    RETURN_IF_ERROR(file->SetMode(own->file_mode() & options.most_mode));  // the umask may have taken something
    return file;
  }
  ASSIGN_OR_RETURN(auto file, AtomicFile::Create(path, path, Durability::kSynced, 0666 & options.most_mode));
  RETURN_IF_ERROR(file->KeepMode());
  return file;
}

absl::StatusOr<GetResult> FileStore::Read(const std::string& key, MutableByteSpan into, const GetOptions& options) {
  RETURN_IF_ERROR(Check(key));
  const std::string uri = Uri(key);
  RETURN_IF_ERROR(CheckGet(uri, options, into.size()));
  SetPhase(options, RequestPhase::kFirstByte);
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenToRead(uri));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return ReadErrno(errno, uri, "opening");
  if (!S_ISREG(info.st_mode)) return absl::NotFoundError(fmt::format("{}: is not a regular file", uri));
  const std::string etag = FileEtag(info);
  RETURN_IF_ERROR(CheckMatch(uri, options.if_match, etag));
  RETURN_IF_ERROR(CheckRange(uri, options.range, static_cast<uint64_t>(info.st_size)));
  SetPhase(options, RequestPhase::kBody);
  SpanVerifier spans(options.checksums, options.range, into);
  RETURN_IF_ERROR(ReadPieces(fd.get(), uri, into, options, spans));
  RETURN_IF_ERROR(DamagedSpans(uri, options, spans.Damaged()));
  return GetResult{etag, static_cast<uint64_t>(info.st_size)};
}

absl::Status FileStore::ReadPieces(int fd, const std::string& uri, MutableByteSpan into, const GetOptions& options,
                                   SpanVerifier& spans) {
  uint64_t offset = options.range.offset;
  while (!into.empty()) {
    if (options.stop.stop_requested() || stopping_)
      return absl::CancelledError(fmt::format("{}: reading was cancelled", uri));
    const ssize_t n = pread(fd, into.data(), std::min(into.size(), kPiece), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, uri, "reading");
    MovedBytes(static_cast<uint64_t>(n));
    if (n == 0)
      return absl::FailedPreconditionError(fmt::format("{}: was truncated to {} bytes while it was read", uri, offset));
    counters_.bytes_read += static_cast<uint64_t>(n);
    offset += static_cast<uint64_t>(n);
    into = into.subspan(static_cast<size_t>(n));
    spans.Came(offset);
  }
  return absl::OkStatus();
}

void FileStore::Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) {
  SetPhase(options, RequestPhase::kQueued);
  threads_.Submit([this, key = std::move(key), into, options = std::move(options), done = std::move(done)]() mutable {
    ++counters_.get;
    absl::StatusOr<GetResult> result = Closed();
    if (options.stop.stop_requested()) {
      result = absl::CancelledError(fmt::format("{}: reading was cancelled", Uri(key)));
    } else if (!stopping_) {
      result = Read(key, into, options);
    }
    SetPhase(options, RequestPhase::kDone);
    std::move(done)(std::move(result));
  });
}

absl::StatusOr<ObjectInfo> FileStore::Stat(const std::string& key) const {
  RETURN_IF_ERROR(Check(key));
  const std::string uri = Uri(key);
  struct stat info {};
  if (traits().own) {
    ASSIGN_OR_RETURN(const UniqueFd fd, OpenToRead(uri));
    if (fstat(fd.get(), &info) != 0) return ReadErrno(errno, uri, "looking it up");
  } else if (StatWithin(traits().within, uri, &info) != 0) {
    return ReadErrno(errno, uri, "looking it up");
  }
  if (!S_ISREG(info.st_mode)) return absl::NotFoundError(fmt::format("{}: is not a regular file", uri));
  return FileInfo(key, info);
}

void FileStore::Head(std::string key, HeadOptions, HeadCallback done) {
  threads_.Submit([this, key = std::move(key), done = std::move(done)]() mutable {
    ++counters_.head;
    if (stopping_) return std::move(done)(Closed());
    std::move(done)(Stat(key));
  });
}

absl::Status FileStore::CheckChange(const std::string& key) const {
  RETURN_IF_ERROR(Check(key));
  return CheckMayWrite(key);
}

absl::Status FileStore::CheckMayWrite(const std::string& key) const {
  if (traits().within.empty()) return absl::OkStatus();
  return absl::PermissionDeniedError(fmt::format("{}: this program only reads there", Uri(key)));
}

// Nothing replaces a file only as long as it is the one that was read.
absl::Status FileStore::CheckWrite(const std::string& key, const PutOptions& options) const {
  RETURN_IF_ERROR(CheckChange(key));
  if (options.if_match.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "{}: a folder cannot hold the condition if_match; keep it in a store that can, such as S3", Uri(key)));
}

absl::StatusOr<ObjectInfo> FileStore::Store(const std::string& key, ByteSpan body, const PutOptions& options) {
  RETURN_IF_ERROR(CheckWrite(key, options));
  ASSIGN_OR_RETURN(const auto file, CreateFile(Uri(key), options));
  RETURN_IF_ERROR(file->Append(body));
  ASSIGN_OR_RETURN(const struct stat info, file->Commit(options.only_if_absent, options.modified_ms));
  return FileInfo(key, info);
}

void FileStore::Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) {
  threads_.Submit([this, key = std::move(key), body, options = std::move(options), done = std::move(done)]() mutable {
    ++counters_.put;
    if (stopping_) return std::move(done)(Closed());
    if (options.stop.stop_requested()) {
      return std::move(done)(absl::CancelledError(fmt::format("{}: PUT was cancelled", Uri(key))));
    }
    std::move(done)(Store(key, body, options));
  });
}

absl::Status FileStore::Remove(const std::string& key) const {
  RETURN_IF_ERROR(CheckChange(key));
  if (unlink(Uri(key).c_str()) == 0) return absl::OkStatus();
  // There is no such object: nothing has the name, or a folder has it.
  if (errno == ENOENT || errno == ENOTDIR || errno == EISDIR) return absl::OkStatus();
  return ErrnoStatus(errno, Uri(key), "deleting");
}

// Each key is one task, so that several threads remove them together.
void FileStore::Delete(std::vector<std::string> keys, DeleteCallback done) {
  auto gather = std::make_shared<StatusGatherer>(keys.size(), std::move(done));
  for (size_t i = 0; i < keys.size(); ++i) {
    threads_.Submit([this, i, key = std::move(keys[i]), gather] {
      ++counters_.del;
      gather->Set(i, stopping_ ? Closed() : Remove(key));
    });
  }
}

absl::Status FileStore::RemoveVersion(const std::string& key, const std::string& etag) const {
  RETURN_IF_ERROR(Check(key));
  RETURN_IF_ERROR(CheckVersion(Uri(key), etag));
  const absl::StatusOr<ObjectInfo> now = Stat(key);
  if (absl::IsNotFound(now.status())) return absl::OkStatus();
  RETURN_IF_ERROR(now.status());
  RETURN_IF_ERROR(CheckMatch(Uri(key), etag, now->etag));
  return Remove(key);
}

void FileStore::DeleteVersion(std::string key, std::string etag, DoneCallback done) {
  threads_.Submit([this, key = std::move(key), etag = std::move(etag), done = std::move(done)]() mutable {
    ++counters_.del;
    std::move(done)(stopping_ ? Closed() : RemoveVersion(key, etag));
  });
}

// A continuation is 'k' and the last key of the page before, or 'p' and its last common prefix.
absl::StatusOr<std::unique_ptr<FileWalk>> FileStore::ResumeWalk(const ListOptions& options) {
  FileWalk::Start start{options.start_after, false};
  if (!options.continuation.empty()) {
    const std::string name = WalkName(options, options.continuation);
    std::lock_guard lock(walks_mutex_);
    const auto parked =
        std::find_if(walks_.begin(), walks_.end(), [&](const auto& walk) { return walk.first == name; });
    if (parked != walks_.end()) {
      std::unique_ptr<FileWalk> walk = std::move(parked->second);
      walks_.erase(parked);
      return walk;
    }
    start = {options.continuation.substr(1), options.continuation.front() == 'p'};
  }
  const auto links = traits().own ? FileWalk::Links::kPassedOver : FileWalk::Links::kFollowed;
  return FileWalk::Open(root_, options.prefix, !options.delimiter.empty(), std::move(start), links, traits().within);
}

void FileStore::ParkWalk(const ListOptions& options, const std::string& continuation, std::unique_ptr<FileWalk> walk) {
  std::lock_guard lock(walks_mutex_);
  walks_.emplace_front(WalkName(options, continuation), std::move(walk));
  if (walks_.size() > kParkedWalks) walks_.pop_back();
}

absl::StatusOr<ListPage> FileStore::Page(const ListOptions& options) {
  RETURN_IF_ERROR(CheckList(Uri(options.prefix), options));
  ASSIGN_OR_RETURN(std::unique_ptr<FileWalk> walk, ResumeWalk(options));
  const size_t limit = static_cast<size_t>(std::min(options.max_keys, kMaxPage));
  ListPage page;
  std::string last;
  for (;;) {
    ASSIGN_OR_RETURN(const FileWalk::Item* next, walk->Peek());
    if (next == nullptr) return page;
    if (page.objects.size() + page.common_prefixes.size() == limit) break;
    FileWalk::Item item = walk->Take();
    last = (item.is_prefix ? 'p' : 'k') + item.object.key;
    if (item.is_prefix) {
      page.common_prefixes.push_back(std::move(item.object.key));
    } else {
      page.objects.push_back(std::move(item.object));
    }
  }
  page.continuation = last;
  ParkWalk(options, page.continuation, std::move(walk));
  return page;
}

void FileStore::List(ListOptions options, ListCallback done) {
  threads_.Submit([this, options = std::move(options), done = std::move(done)]() mutable {
    ++counters_.list;
    if (stopping_) return std::move(done)(Closed());
    std::move(done)(Page(options));
  });
}

absl::Status FileStore::RemoveTemporary(const std::string& prefix) {
  if (!prefix.empty()) RETURN_IF_ERROR(CheckFileKey(Uri(prefix), prefix.substr(0, prefix.size() - 1)));
  RETURN_IF_ERROR(CheckMayWrite(prefix));
  return RemoveAbandoned(Uri(prefix));
}

class FileStore::Writer final : public PieceWriter {
 public:
  Writer(FileStore& store, std::string key, PutOptions options, std::unique_ptr<AtomicFile> file)
      : store_(store),
        key_(std::move(key)),
        options_(std::move(options)),
        file_(std::move(file)),
        ledger_(store.Uri(key_), store.traits().pieces) {}

  void Write(size_t index, uint64_t offset, ByteSpan bytes, std::optional<uint32_t> /*crc32c*/,
             DoneCallback done) override {
    absl::Status bad = ledger_.Admit(index, {offset, bytes.size()});
    if (!bad.ok()) return std::move(done)(std::move(bad));
    store_.threads_.Submit(
        [this, index, offset, bytes, done = std::move(done)]() mutable { done(WriteNow(index, offset, bytes)); });
  }

  void Commit(uint64_t object_bytes, PutCallback done) override {
    store_.threads_.Submit([this, object_bytes, done = std::move(done)]() mutable { done(CommitNow(object_bytes)); });
  }

 private:
  absl::Status WriteNow(size_t index, uint64_t offset, ByteSpan bytes) {
    if (options_.stop.stop_requested() || store_.stopping_)
      return absl::CancelledError(fmt::format("{}: writing was cancelled", ledger_.uri()));
    RETURN_IF_ERROR(file_->WriteAt(offset, bytes));
    ledger_.Enter(index);
    return absl::OkStatus();
  }

  absl::StatusOr<ObjectInfo> CommitNow(uint64_t object_bytes) {
    RETURN_IF_ERROR(ledger_.CheckAll(object_bytes));
    ++store_.counters_.put;
    ASSIGN_OR_RETURN(const struct stat info, file_->Commit(options_.only_if_absent, options_.modified_ms));
    return FileInfo(key_, info);
  }

  FileStore& store_;
  const std::string key_;
  const PutOptions options_;
  const std::unique_ptr<AtomicFile> file_;
  PieceLedger ledger_;
};

absl::StatusOr<std::unique_ptr<PieceWriter>> FileStore::WritePieces(std::string key, PutOptions options) {
  RETURN_IF_ERROR(CheckWrite(key, options));
  ASSIGN_OR_RETURN(auto file, CreateFile(Uri(key), options));
  return std::make_unique<Writer>(*this, std::move(key), std::move(options), std::move(file));
}

}  // namespace millrace
