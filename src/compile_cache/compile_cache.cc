#include "compile_cache/compile_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/atomic_file.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/crypto.h"
#include "base/long_task.h"
#include "base/process.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/thread_pool.h"
#include "compile_cache/placed_file.h"
#include "store/blocking.h"
#include "transfer/bulk_job.h"
#include "transfer/key_pattern.h"
#include "transfer/object_reader.h"

namespace millrace {

namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr uint64_t kSmallFile = 4 << 20;  // what is fetched by one request
constexpr int kFetchThreads = 16;         // of such: 64 MiB in memory at most
constexpr Milliseconds kMaxPoll{2000};
constexpr Milliseconds kOrphanAge = std::chrono::hours(24);  // longer than any upload takes

/// Makes SHA-256 and CRC32C of bytes as they come.
class CacheDigest {
 public:
  void Update(ByteSpan bytes) {
    sha256_.Update(bytes);
    crc32c_ = Crc32c(bytes, crc32c_);
    bytes_ += bytes.size();
  }
  /// Call it once, last.
  void Tell(CachedFile* file) {
    file->bytes = bytes_;
    file->sha256 = HexEncode(sha256_.Finish());
    file->crc32c = crc32c_;
  }

 private:
  Sha256Stream sha256_;
  uint32_t crc32c_ = 0;
  uint64_t bytes_ = 0;
};

absl::Status HashFile(const std::string& path, CachedFile* file) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> open(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (open == nullptr) return absl::NotFoundError(fmt::format("{}: cannot be read", path));
  CacheDigest digest;
  Buffer buffer(1 << 20);
  for (;;) {
    const size_t got = std::fread(buffer.data(), 1, buffer.size(), open.get());
    digest.Update(buffer.span().first(got));
    if (got < buffer.size()) break;
  }
  if (std::ferror(open.get()) != 0) return absl::UnknownError(fmt::format("{}: cannot be read", path));
  digest.Tell(file);
  return absl::OkStatus();
}

bool IsSame(const CachedFile& file, const std::string& place) {
  std::error_code error;
  if (std::filesystem::file_size(place, error) != file.bytes || error) return false;
  CachedFile there;
  return HashFile(place, &there).ok() && there.sha256 == file.sha256;
}

// Returns true if the object is at fault, and not the way to it.
bool IsRefused(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsOutOfRange(status) ||
         absl::IsFailedPrecondition(status);
}

}  // namespace

CompileCache::CompileCache(Location location, Stores& stores, MemoryBudget& memory, CompileCacheOptions options)
    : store_(*location.store),
      stores_(stores),
      memory_(memory),
      options_(std::move(options)),
      folder_(AsFolder(location.prefix) + options_.key + "/"),
      document_(store_, folder_ + "RECORD", kMaxCacheRecordBytes),
      holder_(RandomHex(16)) {}

absl::StatusOr<CacheVersion> CompileCache::Read(const std::stop_token& stop) const {
  ASSIGN_OR_RETURN(VersionedDocument::Version read, document_.Read(stop));
  CacheVersion version{.record = {}, .version = std::move(read.version)};
  if (version.version.empty()) return version;
  absl::StatusOr<CacheRecord> record = CacheRecord::FromJson(read.text);
  if (!record.ok()) return Annotate(record.status(), document_.Uri());
  version.record = *std::move(record);
  return version;
}

absl::Status CompileCache::RunStart(const std::stop_token& stop) {
  const auto begin = std::chrono::steady_clock::now();
  const auto now = [&] { return std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - begin); };
  const uint64_t term_ms = static_cast<uint64_t>(options_.term.count());
  StartProtocol start({.lease = {.holder = holder_, .host = HostName(), .renewals = 0, .term_ms = term_ms},
                       .about = options_.about,
                       .limit = options_.wait,
                       .poll = std::clamp(options_.term / 30, Milliseconds(1), kMaxPoll)});
  std::string told;
  while (start.next() != StartProtocol::Step::kDone) {
    switch (start.next()) {
      case StartProtocol::Step::kRead:
        start.OnRead(Read(stop), now());
        break;
      case StartProtocol::Step::kWrite:
        if (!start.other_host().empty()) {
          Journal(fmt::format("{} has stopped renewing its lease, which this host takes", start.other_host()));
        }
        start.OnWritten(document_.Replace(start.to_write().ToJson(), start.version()));
        break;
      case StartProtocol::Step::kWait:
        if (told != start.other_host()) {
          told = start.other_host();
          Journal(fmt::format("{} compiles; waiting for it, {} s at most", told, options_.wait.count() / 1000));
        }
        if (!SleepUnlessStopped(start.pause(), stop))
          return absl::CancelledError("interrupted while another host compiles");
        start.OnWaited();
        break;
      case StartProtocol::Step::kDone:
        break;
    }
  }
  holds_lease_ = start.outcome() == StartProtocol::Outcome::kCompile;  // also after a stop: it is to be given back
  if (stop.stop_requested()) return absl::CancelledError("interrupted");
  RETURN_IF_ERROR(start.status());
  record_ = start.record();
  if (holds_lease_) Journal("nothing is cached yet: this host compiles, others wait for it");
  if (start.outcome() == StartProtocol::Outcome::kTimedOut && options_.wait.count() == 0) {
    Journal(fmt::format("nothing is cached yet: {} compiles, and this host starts without waiting for it",
                        start.other_host()));
  } else if (start.outcome() == StartProtocol::Outcome::kTimedOut) {
    Journal(fmt::format("{} has compiled for {} s and told nothing: this host compiles, too", start.other_host(),
                        options_.wait.count() / 1000));
  }
  return absl::OkStatus();
}

absl::Status CompileCache::Start(const std::stop_token& stop) {
  RETURN_IF_ERROR(RunStart(stop));
  if (record_.publications == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Fetch(stop));
  for (FoundFile& found : FindCacheFiles(options_.folders).files) {
    std::string path = found.path;
    before_.insert_or_assign(std::move(path), std::move(found));
  }
  return absl::OkStatus();
}

absl::Status CompileCache::FetchFile(const CachedFile& file, const std::string& place, const std::stop_token& stop) {
  const std::string key = ObjectKey(file.sha256);
  const std::string uri = store_.Uri(key);
  // Compilers make it again if it is lost, so that it need not be on the disk when this returns.
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> out, AtomicFile::Create(place, place, Durability::kUnsynced));
  CacheDigest digest;
  const ByteRange range{0, file.bytes};
  std::vector<SpanChecksum> checksums;
  if (file.bytes > 0) checksums.push_back({range, file.crc32c});
  if (file.bytes <= kSmallFile) {
    Buffer buffer(file.bytes);
    const MutableByteSpan into(buffer.data(), file.bytes);
    ASSIGN_OR_RETURN(const GetResult got,
                     GetBlocking(store_, key, into, {.range = range, .checksums = checksums, .stop = stop}));
    if (got.object_size != file.bytes)
      return absl::DataLossError(fmt::format("{}: has {} bytes, not {}", uri, got.object_size, file.bytes));
    digest.Update(into);
    const std::string_view text(reinterpret_cast<const char*>(into.data()), into.size());
    const std::optional<std::string> local = LocalTritonGroup(file.path, place, text);
    RETURN_IF_ERROR(out->Append(local ? AsBytes(*local) : ByteSpan(into)));
  } else {
    ObjectReader::Request request{.object = {.key = key, .size = file.bytes}, .range = range, .checksums = checksums};
    RETURN_IF_ERROR(ReadPieces(store_, memory_, std::move(request), stop, [&](const ObjectReader::Piece& piece) {
      digest.Update(piece.bytes);
      return out->Append(piece.bytes);
    }));
  }
  CachedFile got;
  digest.Tell(&got);
  if (got.sha256 != file.sha256) return absl::DataLossError(fmt::format("{}: its bytes have another SHA-256", uri));
  return out->Commit(/*only_if_absent=*/false).status();
}

absl::Status CompileCache::FetchFiles(const std::vector<CachedFile>& wanted,
                                      std::map<std::string, absl::Status>* failures, const std::stop_token& stop) {
  std::mutex mutex;
  const auto fetch = [&](const CachedFile& file) {
    if (stop.stop_requested()) return;
    const absl::Status status = FetchFile(file, PlaceOfCachedFile(options_.folders, file.path), stop);
    std::lock_guard lock(mutex);
    if (!status.ok()) failures->emplace(file.path, status);
  };
  {
    ThreadPool threads(kFetchThreads, "compile-cache");
    for (const CachedFile& file : wanted) {
      if (file.bytes <= kSmallFile) threads.Submit([&fetch, &file] { fetch(file); });
    }
  }
  for (const CachedFile& file : wanted) {
    if (file.bytes > kSmallFile) fetch(file);
  }
  return stop.stop_requested() ? absl::CancelledError("interrupted while the cache was fetched") : absl::OkStatus();
}

absl::Status CompileCache::Fetch(const std::stop_token& stop) {
  std::vector<CachedFile> wanted;
  uint64_t bytes = 0;
  for (const CachedFile& file : record_.files) {
    const std::string place = PlaceOfCachedFile(options_.folders, file.path);
    if (place.empty() || IsSame(file, place)) continue;
    wanted.push_back(file);
    bytes += file.bytes;
  }
  std::map<std::string, absl::Status> failures;
  RETURN_IF_ERROR(FetchFiles(wanted, &failures, stop));
  // A group that is not whole is of no use, and may do harm.
  std::set<std::string> groups;
  for (const auto& [path, status] : failures) groups.insert(CacheGroup(path));
  size_t usable = 0;
  for (const CachedFile& file : record_.files) {
    const std::string place = PlaceOfCachedFile(options_.folders, file.path);
    if (place.empty() || groups.contains(CacheGroup(file.path))) continue;
    AddJaxTimeOfUse(file.path, place);
    ++usable;
  }
  Journal(fmt::format("{} of {} can be used; {} of {} fetched ({})", usable,
                      Counted(record_.files.size(), "cached file"), wanted.size() - failures.size(),
                      Counted(wanted.size(), "missing file"), FormatSize(bytes)));
  if (failures.empty()) return absl::OkStatus();
  PublishProtocol::Job refusal{.holder = holder_, .about = {}, .publishes = false};
  for (const CachedFile& file : record_.files) {
    if (!groups.contains(CacheGroup(file.path))) continue;
    std::error_code ignored;
    std::filesystem::remove(PlaceOfCachedFile(options_.folders, file.path), ignored);
    const auto failed = failures.find(file.path);
    if (failed != failures.end() && IsRefused(failed->second)) refusal.refused.push_back(file);
  }
  const auto& [first, why] = *failures.begin();
  Journal(fmt::format("{} cannot be used, and will be compiled again if needed; {}: {}",
                      Counted(failures.size(), "cached file"), first, ToStd(why.message())));
  if (refusal.refused.empty()) return absl::OkStatus();
  return RunPublish(std::move(refusal), stop);
}

absl::Status CompileCache::Renew(const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const bool held, RenewIfHeld(stop));
  if (held) return absl::OkStatus();
  holds_lease_ = false;
  return absl::FailedPreconditionError("another host has taken the lease");
}

absl::StatusOr<bool> CompileCache::RenewIfHeld(const std::stop_token& stop) const {
  ASSIGN_OR_RETURN(CacheVersion now, Read(stop));
  if (!now.record.lease || now.record.lease->holder != holder_) return false;
  ++now.record.lease->renewals;
  RETURN_IF_ERROR(document_.Replace(now.record.ToJson(), now.version));
  return true;
}

FoundFiles CompileCache::FindNew() const {
  FoundFiles found = FindCacheFiles(options_.folders);
  std::erase_if(found.files, [&](const FoundFile& file) {
    const auto before = before_.find(file.path);
    return before != before_.end() && before->second == file;
  });
  return found;
}

absl::StatusOr<CompileCache::Hashed> CompileCache::Hash(const FoundFile& found, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const Location location, stores_.OpenObjectInTree(found.file));
  Hashed hashed{.found = found, .file = {.path = found.path}, .object = {}};
  // The copy is pinned to this version: a file that changes meanwhile is not taken.
  ASSIGN_OR_RETURN(hashed.object, HeadBlocking(*location.store, location.prefix, stop));
  hashed.object.key = location.prefix;
  RETURN_IF_ERROR(HashFile(found.file, &hashed.file));
  if (hashed.file.bytes != hashed.object.size)
    return absl::FailedPreconditionError(fmt::format("{}: changes while it is read", found.file));
  return hashed;
}

absl::StatusOr<std::vector<CachedFile>> CompileCache::HashNew(const FoundFiles& found, int64_t latest_ns,
                                                              const std::stop_token& stop) {
  std::vector<CachedFile> files;
  std::set<std::string> changing;  // groups
  const uint64_t now_ms = static_cast<uint64_t>(UnixMilliseconds());
  for (const FoundFile& file : found.files) {
    if (stop.stop_requested()) return absl::CancelledError("interrupted");
    if (file.modified_ns > latest_ns) {
      changing.insert(CacheGroup(file.path));
      continue;
    }
    if (record_.Find(file.path) != nullptr || file.bytes > options_.max_bytes) continue;
    auto known = hashed_.find(file.path);
    if (known == hashed_.end() || !(known->second.found == file)) {
      absl::StatusOr<Hashed> hashed = Hash(file, stop);
      if (!hashed.ok()) {
        changing.insert(CacheGroup(file.path));
        continue;
      }
      hashed->file.stored_ms = now_ms;
      known = hashed_.insert_or_assign(file.path, *std::move(hashed)).first;
    }
    files.push_back(known->second.file);
  }
  std::erase_if(files, [&](const CachedFile& file) { return changing.contains(CacheGroup(file.path)); });
  return files;
}

absl::Status CompileCache::Publish(const FoundFiles& found, int64_t latest_ns, bool sweeps,
                                   const std::stop_token& stop) {
  PublishProtocol::Job job{.holder = holder_, .about = options_.about, .max_bytes = options_.max_bytes};
  // Hashing and uploading may take longer than the term. If this and the publication write at once, one of the two
  // fails on the version and tries again.
  std::jthread renews;
  if (holds_lease_) {
    renews = std::jthread([this](const std::stop_token& published) {
      while (SleepUnlessStopped(options_.term / 3, published)) RenewIfHeld(published).IgnoreError();
    });
  }
  ASSIGN_OR_RETURN(job.files, HashNew(found, latest_ns, stop));
  RETURN_IF_ERROR(RunPublish(std::move(job), stop));
  renews.request_stop();
  return sweeps ? Sweep(stop) : absl::OkStatus();
}

absl::Status CompileCache::GiveBack(const std::stop_token& stop) {
  if (!holds_lease_) return absl::OkStatus();
  return RunPublish({.holder = holder_, .about = options_.about, .publishes = false}, stop);
}

absl::Status CompileCache::RunPublish(PublishProtocol::Job job, const std::stop_token& stop) {
  PublishProtocol publish(std::move(job));
  Rng jitter(HashKey(std::hash<std::string>()(holder_), {}));
  while (publish.next() != PublishProtocol::Step::kDone) {
    if (stop.stop_requested()) return absl::CancelledError("interrupted");
    switch (publish.next()) {
      case PublishProtocol::Step::kRead:
        if (publish.tries() > 0) {
          const uint64_t most = std::min<uint64_t>(uint64_t{10} << std::min(publish.tries(), 8), 2000);
          if (!SleepUnlessStopped(Milliseconds(jitter.Next() % most), stop)) return absl::CancelledError("interrupted");
        }
        publish.OnRead(Read(stop));
        break;
      case PublishProtocol::Step::kUpload:
        publish.OnUploaded(Upload(publish.to_upload(), stop));
        break;
      case PublishProtocol::Step::kWrite:
        publish.OnWritten(document_.Replace(publish.to_write().ToJson(), publish.version()));
        break;
      case PublishProtocol::Step::kRemove:
        Remove(publish.to_remove(), stop);
        publish.OnRemoved();
        break;
      case PublishProtocol::Step::kDone:
        break;
    }
  }
  RETURN_IF_ERROR(publish.status());
  holds_lease_ = false;
  record_ = publish.record();
  if (publish.added() > 0) {
    Journal(fmt::format("{} stored; {} ({}) are cached now", Counted(publish.added(), "new file"), record_.files.size(),
                        FormatSize(record_.Bytes())));
  }
  return absl::OkStatus();
}

std::set<std::string> CompileCache::Upload(const std::vector<CachedFile>& files, const std::stop_token& stop) {
  std::set<std::string> failed;
  for (const CachedFile& file : files) failed.insert(file.sha256);
  const absl::StatusOr<Location> tree = stores_.OpenInTree("/");
  if (!tree.ok()) return failed;
  std::mutex mutex;
  BulkJob job({.copied =
                   [&](const ObjectInfo&, const std::string& key, const ObjectInfo&) {
                     std::lock_guard lock(mutex);
                     failed.erase(key.substr(key.rfind('/') + 1));
                   },
               .content_type = "application/octet-stream",
               .stop = stop});
  for (const CachedFile& file : files) {
    const auto hashed = hashed_.find(file.path);
    if (hashed == hashed_.end()) continue;
    if (!job.Copy(*tree->store, hashed->second.object, store_, ObjectKey(file.sha256)).ok()) break;
  }
  const BulkJob::Reports reports = job.Finish();
  if (!reports.copied.failures.empty()) {
    const auto& [uri, why] = *reports.copied.failures.begin();
    Journal(fmt::format("{} could not be stored; {}", Counted(failed.size(), "file"), ToStd(why.message())));
  }
  return failed;
}

void CompileCache::Remove(const std::set<std::string>& objects, const std::stop_token& stop) {
  BulkJob job({.stop = stop});
  for (const std::string& sha256 : objects) {
    if (!job.Remove(store_, {.key = ObjectKey(sha256)}).ok()) break;
  }
  const BulkJob::Reports reports = job.Finish();
  if (reports.removed.failed > 0)
    Journal(fmt::format("{} could not be removed", Counted(reports.removed.failed, "old object")));
}

absl::Status CompileCache::Sweep(const std::stop_token& stop) {
  std::set<std::string> needed;
  for (const CachedFile& file : record_.files) needed.insert(file.sha256);
  std::set<std::string> orphans;
  const std::string prefix = ObjectKey("");
  const int64_t young_ms = UnixMilliseconds() - kOrphanAge.count();
  const absl::Status listed = ForEachObject(
      store_, prefix,
      [&](const ObjectInfo& object) {
        std::string sha256 = object.key.substr(prefix.size());
        if (object.modified_ms != 0 && object.modified_ms < young_ms && !needed.contains(sha256))
          orphans.insert(std::move(sha256));
        return absl::OkStatus();
      },
      stop);
  if (!listed.ok()) return absl::IsNotFound(listed) ? absl::OkStatus() : listed;
  Remove(orphans, stop);
  return absl::OkStatus();
}

}  // namespace millrace
