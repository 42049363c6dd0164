#include "cache/disk_cache.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "cache/shared_file.h"

namespace millrace {

namespace {

constexpr uint64_t kQueuedBytes = 64 << 20;
constexpr int kReaders = 8;
constexpr size_t kMostFiles = 4096;
constexpr size_t kMostOpenSpans = size_t{2} << 20;
// Removed at a time, so that not each range that is written looks for room.
constexpr uint64_t kRoomAtOnce = 4 << 20;
constexpr uint64_t kRoomOfSize = 256;
constexpr int kWriteAttempts = 3;
// By which room is counted.
constexpr int64_t kPageBytes = 4096;

// A quarter of what the process may have open.
size_t MostFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 64;
  return std::clamp<size_t>(limit.rlim_cur / 4, 16, kMostFiles);
}

}  // namespace

DiskCache::DiskCache(DiskCacheOptions options, Parts parts)
    : options_(std::move(options)),
      folder_(std::move(parts.folder)),
      jobs_path_(std::move(parts.jobs_path)),
      most_files_(MostFiles()),
      reserved_(std::move(parts.reserved)),
      memory_(std::move(parts.memory)),
      usage_(std::move(parts.usage)),
      jobs_(std::move(parts.jobs)),
      claims_(std::move(parts.claims)),
      queued_(parts.queued_bytes),
      budget_(parts.budget),
      room_({.list = [this](absl::FunctionRef<void(const std::string&)> each) { ForEachName(each); },
             .open = [this](const std::string& name) { return OpenByName(name); },
             .knows =
                 [this](const std::string& store) {
                   const std::lock_guard lock(mutex_);
                   return stores_.contains(store);
                 },
             .forget = [this](const std::string& name, const std::shared_ptr<CacheFile>& file) { Forget(name, file); },
             // If this fails, the count stays too large, and is made again.
             .give_back = [this](uint64_t bytes) { usage_.GiveBack(bytes).IgnoreError(); },
             .failed = [this](const absl::Status& status) { OnDiskError(status, /*reading=*/false); }}),
      readers_(std::make_unique<ThreadPool>(kReaders, "cache-read")),
      writer_(std::make_unique<ThreadPool>(1, "cache-write")) {}

DiskCache::~DiskCache() {
  readers_.reset();  // their tasks may give the writer some
  writer_.reset();
}

absl::StatusOr<std::unique_ptr<DiskCache>> DiskCache::Open(DiskCacheOptions options) {
  if (options.folder.empty()) return absl::InvalidArgumentError("the cache needs a folder");
  std::string folder = FolderIn(options.folder);
  RETURN_IF_ERROR(MakeCacheFolder(folder));
  ASSIGN_OR_RETURN(DiskUsage usage, DiskUsage::Open(folder, options.lock_patience));
  const std::string jobs_path = JobTablePath(folder);
  ASSIGN_OR_RETURN(UniqueFd jobs, OpenShared(jobs_path));
  ASSIGN_OR_RETURN(std::unique_ptr<FetchClaims> claims, FetchClaims::Open(folder));
  std::unique_ptr<DiskCache> cache(new DiskCache(
      std::move(options),
      {std::move(folder), jobs_path, std::move(usage), std::move(jobs), std::move(claims), kQueuedBytes}));
  // It may have been larger before.
  cache->writer_->Submit([cache = cache.get()] { cache->Shrink(); });
  return cache;
}

std::unique_ptr<DiskCache> DiskCache::OpenOrWarn(DiskCacheOptions options) {
  const std::string folder = options.folder;
  absl::StatusOr<std::unique_ptr<DiskCache>> cache = Open(std::move(options));
  if (cache.ok()) return *std::move(cache);
  Log(LogLevel::kWarning, "cache",
      fmt::format("the cache {} cannot be used, so that everything is read from the store: {}", folder,
                  ToStd(cache.status().message())));
  return nullptr;
}

uint64_t DiskCache::MemoryFor(uint64_t size_bytes) {
  const uint64_t queued = std::min(kQueuedBytes, size_bytes);
  return size_bytes > UINT64_MAX - queued ? UINT64_MAX : size_bytes + queued;
}

absl::StatusOr<std::unique_ptr<DiskCache>> DiskCache::OpenInMemory(MemoryBudget& budget, uint64_t size_bytes) {
  if (size_bytes == 0) return absl::InvalidArgumentError("a cache in memory needs a size");
  if (const int64_t page = sysconf(_SC_PAGESIZE); page > kPageBytes) {
    return absl::InvalidArgumentError(fmt::format(
        "a cache in memory needs a machine whose pages have {} bytes, and here they have {}; name a folder, "
        "such as one of a tmpfs",
        kPageBytes, page));
  }
  const uint64_t bytes = MemoryFor(size_bytes);
  Reservation reserved = budget.TryReserve(bytes);
  if (!reserved) {
    return absl::ResourceExhaustedError(fmt::format(
        "a cache of {} in memory (with what waits to be written, {}) does not fit into the process's budget of {}, of "
        "which {} are taken; choose a smaller one, or raise the budget",
        FormatSize(size_bytes), FormatSize(bytes), FormatSize(budget.limit()), FormatSize(budget.used())));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<CacheMemory> memory, CacheMemory::Make());
  ASSIGN_OR_RETURN(UniqueFd jobs, MakeMemoryFile("millrace-cache-jobs"));
  std::string jobs_path = fmt::format("/proc/self/fd/{}", jobs.get());
  DiskCacheOptions options{.folder = std::string(DiskCacheOptions::kMemory), .size_bytes = size_bytes};
  std::string folder = "in memory";  // for messages
  return std::unique_ptr<DiskCache>(
      new DiskCache(std::move(options),
                    {std::move(folder), std::move(jobs_path), DiskUsage::OfMemory(), std::move(jobs),
                     FetchClaims::OfProcess(), bytes - size_bytes, std::move(memory), std::move(reserved), &budget}));
}

void DiskCache::OnDiskError(const absl::Status& status, bool reading) {
  writes_ = false;
  if (reading) reads_ = false;
  if (warned_.exchange(true)) return;
  Log(LogLevel::kWarning, "cache",
      fmt::format("the cache {} {} until this process ends, and what it lacks comes from the store: {}", folder_,
                  reading ? "is not used" : "takes nothing new", ToStd(status.message())));
}

KeepCounts DiskCache::counts() const {
  return {.written_bytes = written_bytes_.load(std::memory_order_relaxed),
          .not_admitted_bytes = not_admitted_bytes_.load(std::memory_order_relaxed),
          .dropped_bytes = dropped_bytes_.load(std::memory_order_relaxed),
          .waiting_bytes = queued_.used()};
}

std::unique_ptr<JobEntry> DiskCache::Join(const std::string& store, uint32_t job, uint64_t period, uint64_t clock) {
  {
    const std::lock_guard lock(mutex_);
    stores_.insert(store);
  }
  absl::StatusOr<std::unique_ptr<JobEntry>> entry = JobEntry::Make(jobs_path_, job, period, clock);
  if (entry.ok()) return *std::move(entry);
  Log(LogLevel::kDebug, "cache", ToStd(entry.status().message()));
  return nullptr;
}

// ---- Files

std::shared_ptr<CacheFile> DiskCache::Lookup(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return nullptr;
  files_.splice(files_.begin(), files_, found->second);
  return found->second->file;
}

std::shared_ptr<CacheFile> DiskCache::Find(const CacheIdentity& identity, const std::string& name) {
  std::shared_ptr<CacheFile> file = Lookup(name);
  if (file == nullptr && memory_ != nullptr) return nullptr;
  if (file == nullptr) {
    absl::StatusOr<std::unique_ptr<CacheFile>> opened = CacheFile::Open(folder_ + "/" + name);
    if (!opened.ok()) {
      const absl::Status& status = opened.status();
      if (absl::IsDataLoss(status)) {
        RemoveUnsound(folder_ + "/" + name);
      } else if (!absl::IsNotFound(status) && !absl::IsResourceExhausted(status)) {
        // The program may have too many files open: that passes.
        OnDiskError(status, /*reading=*/true);
      }
      return nullptr;
    }
    file = *std::move(opened);
    Remember(name, file);
  }
  return file->identity() == identity ? file : nullptr;  // two names that are hashed to the same
}

// Of another version of Millrace, or damaged.
void DiskCache::RemoveUnsound(const std::string& path) {
  if (const std::optional<uint64_t> freed = UnlinkUnused(path)) usage_.GiveBack(*freed).IgnoreError();
}

// To make room: what is no sound file goes.
std::shared_ptr<CacheFile> DiskCache::OpenByName(const std::string& name) {
  if (std::shared_ptr<CacheFile> file = Lookup(name)) return file;
  if (memory_ != nullptr) return nullptr;
  const std::string path = folder_ + "/" + name;
  absl::StatusOr<std::unique_ptr<CacheFile>> opened = CacheFile::Open(path);
  if (opened.ok()) {
    std::shared_ptr<CacheFile> file = *std::move(opened);
    Remember(name, file);
    return file;
  }
  if (absl::IsDataLoss(opened.status())) RemoveUnsound(path);
  return nullptr;
}

// Two that open it at once have two of it, of which the first stays.
void DiskCache::Remember(const std::string& name, std::shared_ptr<CacheFile> file) {
  std::vector<std::shared_ptr<CacheFile>> closed;  // without the lock
  const std::lock_guard lock(mutex_);
  if (by_name_.contains(name)) return;
  const size_t spans = file->spans() + 1;
  open_spans_ += spans;
  files_.push_front({name, std::move(file), spans});
  by_name_.emplace(name, files_.begin());
  // What is in memory is nowhere else.
  while (memory_ == nullptr && files_.size() > 1 && (files_.size() > most_files_ || open_spans_ > kMostOpenSpans)) {
    open_spans_ -= files_.back().spans;
    by_name_.erase(files_.back().name);
    closed.push_back(std::move(files_.back().file));
    files_.pop_back();
  }
}

// Another one of that name, made since, stays.
void DiskCache::Forget(const std::string& name, const std::shared_ptr<CacheFile>& file) {
  const std::lock_guard lock(mutex_);
  const auto found = by_name_.find(name);
  if (found == by_name_.end() || found->second->file != file) return;
  open_spans_ -= found->second->spans;
  files_.erase(found->second);
  by_name_.erase(found);
}

void DiskCache::ForEachName(absl::FunctionRef<void(const std::string& name)> each) {
  if (memory_ == nullptr) return ForEachCacheFile(folder_, each);
  const std::lock_guard lock(mutex_);
  for (const OpenFile& file : files_) each(file.name);
}

absl::StatusOr<std::unique_ptr<CacheFile>> DiskCache::MakeFile(const Kept& kept, const CacheFile::First* first,
                                                               bool* is_new) {
  if (memory_ == nullptr) {
    return CacheFile::OpenOrMake(folder_ + "/" + kept.name, kept.identity, kept.object_bytes, first, is_new);
  }
  absl::StatusOr<std::unique_ptr<CacheFile>> made = CacheFile::InMemory(memory_, kept.identity, kept.object_bytes);
  *is_new = made.ok();
  return made;
}

// A file that was not there; `written`: and `first` is in it. Null if it cannot be kept, or if there is no room (any
// more).
std::shared_ptr<CacheFile> DiskCache::Make(const Kept& kept, const CacheFile::First& first, bool* written,
                                           bool* no_room) {
  if (!writes_) return nullptr;
  const bool with_first = memory_ == nullptr && first.fits();
  const uint64_t disk_bytes = CacheFile::kEmptyDiskBytes + (with_first ? first.disk_bytes() : 0);
  const absl::StatusOr<bool> taken = usage_.Take(disk_bytes, limit());
  if (!taken.ok()) OnDiskError(taken.status(), /*reading=*/false);
  *no_room = taken.ok() && !*taken;
  if (!taken.ok() || !*taken) return nullptr;
  bool is_new = false;
  absl::StatusOr<std::unique_ptr<CacheFile>> made = MakeFile(kept, with_first ? &first : nullptr, &is_new);
  if (!is_new) usage_.GiveBack(disk_bytes).IgnoreError();
  // Names that are too long are not kept, nor what comes while another process has the file.
  if (absl::IsInvalidArgument(made.status()) || absl::IsNotFound(made.status())) return nullptr;
  if (!made.ok()) {
    OnDiskError(made.status(), /*reading=*/false);
    return nullptr;
  }
  std::shared_ptr<CacheFile> shared = *std::move(made);
  if (shared->identity() != kept.identity) return nullptr;
  Remember(kept.name, shared);
  if (is_new) room_.Made(kept.name);
  *written = is_new && with_first;
  return shared;
}

// ---- Reading

std::optional<uint64_t> DiskCache::Read(const CacheIdentity& identity, ByteRange range,
                                        std::span<const SpanChecksum> checksums, MutableByteSpan into,
                                        ReadBytes bytes) {
  if (!reads_.load(std::memory_order_relaxed)) return std::nullopt;
  const std::shared_ptr<CacheFile> file = Find(identity, cache_format::FileName(identity));
  if (file == nullptr) return std::nullopt;
  uint64_t freed = 0;
  const absl::Status status = file->Read(range, checksums, into, &freed, bytes);
  if (status.ok()) return file->object_bytes();
  if (freed > 0) usage_.GiveBack(freed).IgnoreError();
  if (absl::IsDataLoss(status)) {
    Log(LogLevel::kDebug, "cache", ToStd(status.message()));
  } else if (!absl::IsNotFound(status)) {
    OnDiskError(status, /*reading=*/true);
  }
  return std::nullopt;
}

void DiskCache::Touch(const CacheIdentity& identity, ByteRange range, const PlannedRead* plan) {
  const std::shared_ptr<CacheFile> file = Find(identity, cache_format::FileName(identity));
  if (file == nullptr) return;
  if (plan == nullptr) {
    return file->ChangeHints(range, [](const UseHints& of, ByteRange /*there*/) {
      // What a plan knows of is its own, as long as it lives.
      if (of.job > UseHints::kUnplanned) return of;
      UnplannedUse use = UnplannedUse::Of(of);
      if (of.job == UseHints::kUnplanned) ++use.reads;
      return use.Pack();
    });
  }
  for (const PlannedRead::Span& span : plan->spans) {
    const uint64_t begin = std::max(span.range.offset, range.offset);
    const uint64_t end = std::min(span.range.end(), range.end());
    if (begin >= end) continue;
    file->ChangeHints({begin, end - begin}, [&](const UseHints& of, ByteRange there) {
      const bool within = there.offset >= span.range.offset && there.end() <= span.range.end();
      const uint32_t job = plan->pinned || of.job == UseHints::kPinned ? UseHints::kPinned : plan->job;
      UseHints hints{job, within ? span.next_use : std::min(span.next_use, span.around_use)};
      if (plan->shared && of.job == plan->job && of.next_use > plan->use)
        hints.next_use = std::min(hints.next_use, of.next_use);
      return hints;
    });
  }
}

// ---- Writing

void DiskCache::Keep(const CacheIdentity& identity, uint64_t object_bytes, uint64_t offset, ByteSpan bytes,
                     const PlannedRead* plan, std::shared_ptr<void> until) {
  if (!keeps() || bytes.empty()) return LetGo(std::move(until));
  const uint64_t within = std::min<uint64_t>(bytes.size(), queued_.limit());
  Reservation room = queued_.TryReserve(within);
  // In memory, what is longer than all that may wait is not in the cache's part of the budget.
  Reservation beyond;
  if (room && budget_ != nullptr && bytes.size() > within) {
    beyond = budget_->TryReserve(bytes.size() - within);
    if (!beyond) room = Reservation();
  }
  if (!room) {
    dropped_bytes_.fetch_add(bytes.size(), std::memory_order_relaxed);
    return LetGo(std::move(until));
  }
  Buffer copy(bytes.size());
  std::memcpy(copy.span().data(), bytes.data(), bytes.size());
  PlannedRead spans = plan == nullptr ? PlannedRead{.job = UseHints::kUnplanned} : *plan;
  writer_->Submit([this, identity, object_bytes, offset, copy = std::move(copy), room = std::move(room),
                   beyond = std::move(beyond), spans = std::move(spans),
                   until = std::move(until)]() { WriteAll(identity, object_bytes, offset, copy.span(), spans); });
}

void DiskCache::LetGo(std::shared_ptr<void> until) {
  if (until != nullptr) readers_->Submit([until = std::move(until)] {});
}

void DiskCache::WriteAll(const CacheIdentity& identity, uint64_t object_bytes, uint64_t offset, ByteSpan bytes,
                         const PlannedRead& plan) {
  const std::string name = cache_format::FileName(identity);
  const uint32_t job = plan.pinned ? UseHints::kPinned : plan.job;
  Kept kept{identity, name, object_bytes, offset, bytes, {job, UseHints::kNever}};
  if (plan.job == UseHints::kUnplanned)
    kept.hints = UnplannedUse{.written_ms = static_cast<uint64_t>(UnixMilliseconds())}.Pack();
  if (plan.spans.empty()) return Write(kept);
  for (const PlannedRead::Span& span : plan.spans) {
    const uint64_t begin = std::max(span.range.offset, offset);
    const uint64_t end = std::min(span.range.end(), offset + bytes.size());
    if (begin >= end) continue;
    kept.offset = begin;
    kept.bytes = bytes.subspan(begin - offset, end - begin);
    kept.hints.next_use = span.next_use;
    Write(kept);
  }
}

void DiskCache::Write(const Kept& kept) {
  std::shared_ptr<CacheFile> file = Find(kept.identity, kept.name);
  if (file != nullptr && file->object_bytes() != kept.object_bytes) return;
  const ByteRange whole{kept.offset, kept.bytes.size()};
  for (const ByteRange& part : file == nullptr ? std::vector<ByteRange>{whole} : file->Missing(whole)) {
    if (!writes_) return;
    const absl::Status status = WritePart(kept, part, file);
    if (!status.ok()) return OnDiskError(status, /*reading=*/false);
  }
}

// `file`: as Find has just found it; null if there is none. For the next part, it becomes the one that was written to.
absl::Status DiskCache::WritePart(const Kept& kept, ByteRange part, std::shared_ptr<CacheFile>& file) {
  const ByteSpan bytes = kept.bytes.subspan(part.offset - kept.offset, part.length);
  RoomMaker::Incoming incoming{kept.name, part.offset, kept.hints};
  for (int attempt = 0; attempt < kWriteAttempts; ++attempt) {
    if (attempt > 0) file = Find(kept.identity, kept.name);
    const uint64_t of_file = file == nullptr ? CacheFile::kEmptyDiskBytes : 0;
    if (!EnsureRoom(CacheFile::DiskBytes(part.length) + of_file, incoming)) break;
    bool no_room = false;  // another process was faster
    UseHints hints = kept.hints;
    if (incoming.proven) {
      UnplannedUse use = UnplannedUse::Of(hints);
      use.proven = true;
      hints = use.Pack();
    }
    bool written = false;
    if (file == nullptr) file = Make(kept, {part.offset, bytes, hints}, &written, &no_room);
    if (file == nullptr && no_room) continue;
    if (file == nullptr) {
      dropped_bytes_.fetch_add(part.length, std::memory_order_relaxed);
      return absl::OkStatus();
    }
    const auto take = [&](uint64_t disk_bytes) -> absl::Status {
      ASSIGN_OR_RETURN(const bool taken, usage_.Take(disk_bytes, limit()));
      no_room = !taken;
      return taken ? absl::OkStatus() : absl::ResourceExhaustedError("no room in the cache");
    };
    const auto give_back = [&](uint64_t disk_bytes) { usage_.GiveBack(disk_bytes).IgnoreError(); };
    const absl::Status status = written ? absl::OkStatus() : file->Write(part.offset, bytes, hints, {take, give_back});
    if (status.ok()) {
      written_bytes_.fetch_add(part.length, std::memory_order_relaxed);
      return status;
    }
    if (absl::IsNotFound(status)) {
      Forget(kept.name, file);
    } else if (!no_room) {
      dropped_bytes_.fetch_add(part.length, std::memory_order_relaxed);
      return status;
    }
  }
  not_admitted_bytes_.fetch_add(part.length, std::memory_order_relaxed);
  return absl::OkStatus();
}

void DiskCache::Flush() {
  std::mutex mutex;
  std::condition_variable written;
  bool done = false;
  writer_->Submit([&] {
    const std::lock_guard lock(mutex);
    done = true;
    written.notify_all();
  });
  std::unique_lock lock(mutex);
  written.wait(lock, [&] { return done; });
}

// ---- Room

uint64_t DiskCache::capacity_bytes() {
  if (memory_ != nullptr) return options_.size_bytes;
  const absl::StatusOr<uint64_t> used = usage_.bytes();
  struct statvfs info {};
  if (!used.ok() || statvfs(folder_.c_str(), &info) != 0) return options_.size_bytes;
  const double kept = options_.free_share * static_cast<double>(info.f_blocks) * static_cast<double>(info.f_frsize);
  const double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize) - kept;
  return std::min(limit(), static_cast<uint64_t>(std::max(0.0, static_cast<double>(*used) + free)));
}

// Bytes that must go before `bytes` more may come, by the limit and by the space that is to stay free.
uint64_t DiskCache::Excess(uint64_t bytes) {
  uint64_t excess = 0;
  if (options_.size_bytes > 0) {
    const absl::StatusOr<uint64_t> used = usage_.bytes();
    if (used.ok() && *used + bytes > limit()) excess = *used + bytes - limit();
  }
  if (memory_ != nullptr) return excess;
  struct statvfs info {};
  if (statvfs(folder_.c_str(), &info) != 0) return excess;  // then writing will say what is wrong
  const double kept = options_.free_share * static_cast<double>(info.f_blocks) * static_cast<double>(info.f_frsize);
  const double lacking =
      kept + static_cast<double>(bytes) - static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  return lacking > 0 ? std::max(excess, static_cast<uint64_t>(lacking)) : excess;
}

std::vector<JobClock> DiskCache::Jobs(uint32_t own) {
  OpenAgainIfGone(jobs_path_, &jobs_);
  std::vector<JobClock> jobs = LiveJobs(jobs_.get());
  const bool there = std::any_of(jobs.begin(), jobs.end(), [&](const JobClock& job) { return job.job == own; });
  if (!there && own != UseHints::kPinned) jobs.push_back({own, 0, UseHints::kNever});
  return jobs;
}

bool DiskCache::EnsureRoom(uint64_t bytes, RoomMaker::Incoming& incoming) {
  uint64_t excess = Excess(bytes);
  if (excess == 0) return true;
  if (excess > bytes) {  // too much is there, whatever comes
    Shrink();
    if ((excess = Excess(bytes)) == 0) return true;
  }
  const absl::StatusOr<uint64_t> used = usage_.bytes();
  if (!used.ok()) {
    OnDiskError(used.status(), /*reading=*/false);
    return false;
  }
  const uint64_t more = std::min(kRoomAtOnce, *used / kRoomOfSize);
  room_.MakeRoom(excess + more, incoming, *used, Jobs(incoming.hints.job));
  return Excess(bytes) == 0;
}

void DiskCache::Shrink() {
  OpenAgainIfGone(jobs_path_, &jobs_);
  RoomMaker::Incoming nobody;
  nobody.forced = true;
  uint64_t before = UINT64_MAX;
  for (uint64_t excess = Excess(0); excess > 0 && excess < before; excess = Excess(0)) {
    before = excess;
    room_.MakeRoom(excess, nobody, excess, LiveJobs(jobs_.get()));
  }
}

}  // namespace millrace
