#include "cache/range_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <future>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "cache/disk_cache.h"
#include "cache/memory_cache.h"
#include "cache/shared_file.h"

namespace millrace {

namespace {

constexpr int kReaders = 8;
constexpr size_t kMostOpenSpans = size_t{2} << 20;
// So much is removed at a time, so that not each range that is written looks for room.
constexpr uint64_t kRoomAtOnce = 4 << 20;
constexpr uint64_t kRoomOfSize = 256;
// In a slab, less is lacking than it seems once a place is free that suits: two blocks of the disk.
constexpr uint64_t kRoomOfPlaces = 8192;
constexpr int kWriteAttempts = 3;
constexpr size_t kMaxTenantBytes = 256;
constexpr size_t kMaxBadFiles = 16;

std::array<OpenFiles::Bound, OpenFiles::kGroups> BoundsFor(size_t most_files) {
  if (most_files == SIZE_MAX) return {};  // what is in memory is nowhere else
  // The slabs that this process reads have no bound of their spans: they are in use all the time.
  return {OpenFiles::Bound{most_files, kMostOpenSpans}, OpenFiles::Bound{most_files, SIZE_MAX},
          OpenFiles::Bound{most_files / 4, RoomMaker::kMostForeignSpans}};
}

}  // namespace

absl::Status CheckCacheTenant(std::string_view tenant) {
  const auto is_printable = [](char c) { return static_cast<unsigned char>(c) > ' ' && c != '\x7f'; };
  if (tenant.size() <= kMaxTenantBytes && std::all_of(tenant.begin(), tenant.end(), is_printable))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("the name of a tenant has up to {} bytes, without spaces and control characters", kMaxTenantBytes));
}

RangeCache::RangeCache(Parts parts)
    : parts_(std::move(parts)),
      queued_(parts_.queued_bytes),
      open_(BoundsFor(parts_.most_files)),
      room_({.list = [this](CacheFileVisitor each) { ForEachName(each); },
             .open = [this](const std::string& name) { return FileOf(name, /*is_wanted=*/false); },
             .opened = [this](const std::string& name) { return open_.Peek(name); },
             .knows =
                 [this](const std::string& store) {
                   const std::lock_guard lock(mutex_);
                   return stores_.contains(store);
                 },
             .forget = [this](const std::string& name,
                              const std::shared_ptr<CacheFile>& file) { open_.Forget(name, file); },
             .give_back = [this](uint64_t bytes) { GiveBack(bytes); },
             .failed = [this](const absl::Status& status) { OnError(status, /*reading=*/false); }}),
      readers_(std::make_unique<ThreadPool>(kReaders, "cache-read")),
      writer_(std::make_unique<ThreadPool>(1, "cache-write")) {}

absl::StatusOr<std::unique_ptr<RangeCache>> RangeCache::Open(const std::optional<RangeCacheOptions>& options,
                                                             MemoryBudget& budget) {
  if (!options) return std::unique_ptr<RangeCache>();
  if (options->in_memory()) return MemoryCache::Open(budget, options->size_bytes, options->tenant);
  return std::unique_ptr<RangeCache>(DiskCache::OpenOrWarn(*options));
}

std::string RangeCache::TenantOf(const std::string& principal) const {
  return parts_.tenant.empty() ? principal : fmt::format("name {}", parts_.tenant);
}

void RangeCache::Stop() {
  readers_.reset();  // their tasks may give the writer some
  writer_.reset();
}

void RangeCache::OnError(const absl::Status& status, bool reading) {
  writes_ = false;
  if (reading) reads_ = false;
  if (warned_.exchange(true)) return;
  Log(LogLevel::kWarning, "cache",
      fmt::format("the cache {} {} until this process ends, and what it lacks comes from the store: {}", parts_.name,
                  reading ? "is not used" : "takes nothing new", ToStd(status.message())));
}

// One file says nothing of the others; many say that the disk fails.
void RangeCache::OnBadFile(const std::string& name, const absl::Status& status) {
  size_t bad = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!bad_files_.insert(name).second) return;
    bad = bad_files_.size();
  }
  if (bad >= kMaxBadFiles) return OnError(status, /*reading=*/true);
  if (bad > 1) return;
  Log(LogLevel::kWarning, "cache",
      fmt::format("a file of the cache {} is not used, and what it holds comes from the store: {}", parts_.name,
                  ToStd(status.message())));
}

bool RangeCache::IsBad(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return bad_files_.contains(name);
}

KeepCounts RangeCache::counts() const {
  return {.written_bytes = written_bytes_.load(std::memory_order_relaxed),
          .not_admitted_bytes = not_admitted_bytes_.load(std::memory_order_relaxed),
          .dropped_bytes = dropped_bytes_.load(std::memory_order_relaxed),
          .waiting_bytes = queued_.used()};
}

std::unique_ptr<JobEntry> RangeCache::Join(const std::string& store, uint32_t job, uint64_t period, uint64_t clock) {
  {
    const std::lock_guard lock(mutex_);
    stores_.insert(store);
  }
  absl::StatusOr<std::unique_ptr<JobEntry>> entry = JobEntry::Make(parts_.jobs_path, job, period, clock);
  if (entry.ok()) return *std::move(entry);
  Log(LogLevel::kDebug, "cache", ToStd(entry.status().message()));
  return nullptr;
}

// ---- Files

// Returns null if it is not there or cannot be read. After an error that does not pass, one that is wanted, and not
// only to make room, is not opened again.
std::shared_ptr<CacheFile> RangeCache::FileOf(const std::string& name, bool is_wanted) {
  if (std::shared_ptr<CacheFile> file = open_.Find(name, is_wanted)) return file;
  if (IsBad(name)) return nullptr;
  OpenedFile opened = OpenFile(name);
  if (!opened.ok()) {
    const absl::Status& status = opened.status();
    const bool passes = absl::IsDataLoss(status) || absl::IsNotFound(status) ||
                        absl::IsResourceExhausted(status);  // the program may have too many files open
    if (is_wanted && !passes) OnBadFile(name, status);
    return nullptr;
  }
  std::shared_ptr<CacheFile> file = *std::move(opened);
  open_.Add(name, file, is_wanted);
  return file;
}

std::shared_ptr<CacheFile> RangeCache::Find(const CacheIdentity& identity, const std::string& name) {
  std::shared_ptr<CacheFile> file = FileOf(name, /*is_wanted=*/true);
  // Two names may be hashed to the same.
  return file != nullptr && file->identity() == identity ? file : nullptr;
}

RangeCache::OpenedFile RangeCache::OpenFile(const std::string& /*name*/) {
  return absl::NotFoundError("all files are open");
}

void RangeCache::ForEachName(CacheFileVisitor each) {
  open_.ForEach([&](const std::string& name, const CacheFile& file) {
    each(name, file.is_slab() ? std::max<uint64_t>(file.spans(), 1) : 0);
  });
}

// Makes a file that was not there; `written` says whether `first` is in it. Returns null if it cannot be kept, or if
// there is no room (any more).
std::shared_ptr<CacheFile> RangeCache::Make(const Kept& kept, const CacheFile::First& first, bool* written,
                                            bool* no_room) {
  if (!writes_) return nullptr;
  const bool with_first = first.fits();
  const uint64_t disk_bytes = CacheFile::kEmptyDiskBytes + (with_first ? first.disk_bytes() : 0);
  const absl::StatusOr<bool> taken = parts_.usage.Take(disk_bytes, limit());
  if (!taken.ok()) OnError(taken.status(), /*reading=*/false);
  *no_room = taken.ok() && !*taken;
  if (!taken.ok() || !*taken) return nullptr;
  bool is_new = false;
  OpenedFile made = OpenOrMakeFile(kept, with_first ? &first : nullptr, &is_new);
  if (!is_new) GiveBack(disk_bytes);
  // Names that are too long are not kept, nor what comes while another process has the file.
  if (absl::IsInvalidArgument(made.status()) || absl::IsNotFound(made.status())) return nullptr;
  // Its folder may be a link, which says nothing of the other folders.
  if (absl::IsPermissionDenied(made.status())) {
    OnBadFile(kept.name, made.status());
    return nullptr;
  }
  if (!made.ok()) {
    OnError(made.status(), /*reading=*/false);
    return nullptr;
  }
  std::shared_ptr<CacheFile> shared = *std::move(made);
  if (shared->identity() != kept.identity) return nullptr;
  open_.Add(kept.name, shared, /*is_wanted=*/true);
  if (is_new) room_.Made(kept.name, shared->is_slab() ? 1 : 0);
  *written = is_new && with_first;
  return shared;
}

// ---- Reading

std::optional<uint64_t> RangeCache::Read(const CacheIdentity& identity, ByteRange range,
                                         std::span<const SpanChecksum> checksums, MutableByteSpan into,
                                         ReadBytes bytes) {
  if (!reads_.load(std::memory_order_relaxed)) return std::nullopt;
  if (range.end() <= cache_format::kSmallBytes) {
    if (const std::optional<uint64_t> bytes_of = ReadSmall(identity, range, checksums, into)) return bytes_of;
  }
  const std::string name = cache_format::FileName(identity);
  const std::shared_ptr<CacheFile> file = Find(identity, name);
  if (file == nullptr) return std::nullopt;
  uint64_t freed = 0;
  const absl::Status status = file->Read(range, checksums, into, &freed, bytes);
  if (status.ok()) return file->object_bytes();
  if (freed > 0) GiveBack(freed);
  if (absl::IsDataLoss(status)) {
    Log(LogLevel::kDebug, "cache", ToStd(status.message()));
  } else if (!absl::IsNotFound(status)) {
    open_.Forget(name, file);
    OnBadFile(name, status);
  }
  return std::nullopt;
}

UseHints RangeCache::ReadWithoutPlan(const UseHints& of, ByteRange /*there*/) {
  // A range that a plan knows of is its own, as long as it lives.
  if (of.job > UseHints::kUnplanned) return of;
  UnplannedUse use = UnplannedUse::Of(of);
  if (of.job == UseHints::kUnplanned) ++use.reads;
  return use.Pack();
}

UseHints RangeCache::ReadByPlan(const UseHints& of, const PlannedRead& plan, uint64_t next_use) {
  UseHints hints{plan.pinned || of.job == UseHints::kPinned ? UseHints::kPinned : plan.job, next_use};
  if (plan.shared && of.job == plan.job && of.next_use > plan.use)
    hints.next_use = std::min(hints.next_use, of.next_use);
  return hints;
}

void RangeCache::Touch(const CacheIdentity& identity, ByteRange range, const PlannedRead* plan) {
  if (range.end() <= cache_format::kSmallBytes && TouchSmall(identity, plan, range)) return;
  const std::shared_ptr<CacheFile> file = Find(identity, cache_format::FileName(identity));
  if (file == nullptr) return;
  if (plan == nullptr) return file->ChangeHints(range, ReadWithoutPlan);
  for (const PlannedRead::Span& span : plan->spans) {
    const uint64_t begin = std::max(span.range.offset, range.offset);
    const uint64_t end = std::min(span.range.end(), range.end());
    if (begin >= end) continue;
    file->ChangeHints({begin, end - begin}, [&](const UseHints& of, ByteRange there) {
      const bool within = there.offset >= span.range.offset && there.end() <= span.range.end();
      return ReadByPlan(of, *plan, within ? span.next_use : std::min(span.next_use, span.around_use));
    });
  }
}

// ---- Writing

void RangeCache::Keep(const CacheIdentity& identity, uint64_t object_bytes, uint64_t offset, ByteSpan bytes,
                      const PlannedRead* plan, std::shared_ptr<void> until) {
  if (!keeps() || bytes.empty()) return LetGo(std::move(until));
  const uint64_t within = std::min<uint64_t>(bytes.size(), queued_.limit());
  Reservation room = queued_.TryReserve(within);
  // In memory, what is longer than all that may wait is not in the cache's part of the budget.
  Reservation beyond;
  if (room && parts_.budget != nullptr && bytes.size() > within) {
    beyond = parts_.budget->TryReserve(bytes.size() - within);
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

void RangeCache::LetGo(std::shared_ptr<void> until) {
  if (until != nullptr) readers_->Submit([until = std::move(until)] {});
}

void RangeCache::WriteAll(const CacheIdentity& identity, uint64_t object_bytes, uint64_t offset, ByteSpan bytes,
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

void RangeCache::Write(const Kept& kept) {
  std::shared_ptr<CacheFile> file = Find(kept.identity, kept.name);
  if (file == nullptr && IsBad(kept.name)) {
    dropped_bytes_.fetch_add(kept.bytes.size(), std::memory_order_relaxed);
    return;
  }
  const bool whole = kept.offset == 0 && kept.bytes.size() == kept.object_bytes;
  if (file == nullptr && whole && kept.object_bytes < cache_format::kSmallBytes) {
    const std::optional<SmallObject> small = SmallObject::Of(kept.identity, parts_.slab_bits);
    if (small && WriteSmall(kept, *small)) return;
  }
  if (file != nullptr && file->object_bytes() != kept.object_bytes) return;
  const ByteRange all{kept.offset, kept.bytes.size()};
  for (const ByteRange& part : file == nullptr ? std::vector<ByteRange>{all} : file->Missing(all)) {
    if (!writes_) return;
    const absl::Status status = WritePart(kept, part, file);
    if (!status.ok()) return OnError(status, /*reading=*/false);
  }
}

// `file`: as Find has just found it; null if there is none. For the next part, it becomes the one that was written to.
absl::Status RangeCache::WritePart(const Kept& kept, ByteRange part, std::shared_ptr<CacheFile>& file) {
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
      ASSIGN_OR_RETURN(const bool taken, parts_.usage.Take(disk_bytes, limit()));
      no_room = !taken;
      return taken ? absl::OkStatus() : absl::ResourceExhaustedError("no room in the cache");
    };
    const auto give_back = [&](uint64_t disk_bytes) { GiveBack(disk_bytes); };
    absl::Status status = written ? absl::OkStatus() : file->Write(part.offset, bytes, hints, {take, give_back});
    if (status.ok()) {
      written_bytes_.fetch_add(part.length, std::memory_order_relaxed);
      return status;
    }
    if (absl::IsNotFound(status)) {
      open_.Forget(kept.name, file);
    } else if (!no_room) {
      dropped_bytes_.fetch_add(part.length, std::memory_order_relaxed);
      return status;
    }
  }
  not_admitted_bytes_.fetch_add(part.length, std::memory_order_relaxed);
  return absl::OkStatus();
}

void RangeCache::Flush() {
  const auto written = std::make_shared<std::promise<void>>();  // shared: set_value may still run when the wait is over
  writer_->Submit([written] { written->set_value(); });
  written->get_future().wait();
}

// ---- Room

// Returns the bytes that must go before `bytes` more may come, by the limit and by the space that is to stay free.
uint64_t RangeCache::Excess(uint64_t bytes) {
  const uint64_t lacking = Lacking(bytes);
  if (parts_.size_bytes == 0) return lacking;
  const absl::StatusOr<uint64_t> used = parts_.usage.bytes();
  return used.ok() && *used + bytes > limit() ? std::max(lacking, *used + bytes - limit()) : lacking;
}

std::vector<JobClock> RangeCache::Jobs(uint32_t own) {
  OpenAgainIfGone(parts_.jobs_path, &parts_.jobs);
  std::vector<JobClock> jobs = LiveJobs(parts_.jobs.get());
  const bool there = std::any_of(jobs.begin(), jobs.end(), [&](const JobClock& job) { return job.job == own; });
  if (!there && own != UseHints::kPinned) jobs.push_back({own, 0, UseHints::kNever});
  return jobs;
}

bool RangeCache::EnsureRoom(uint64_t bytes, RoomMaker::Incoming& incoming) {
  uint64_t excess = Excess(bytes);
  if (excess == 0) return true;
  if (excess > bytes) {  // too much is there, whatever comes
    Shrink();
    if ((excess = Excess(bytes)) == 0) return true;
  }
  const absl::StatusOr<uint64_t> used = parts_.usage.bytes();
  if (!used.ok()) {
    OnError(used.status(), /*reading=*/false);
    return false;
  }
  if (incoming.place_bytes > 0) {
    const uint64_t surely = excess - std::min(excess - 1, kRoomOfPlaces);
    return room_.MakeRoom(surely, incoming, *used, Jobs(incoming.hints.job));
  }
  const uint64_t more = std::min(kRoomAtOnce, *used / kRoomOfSize);
  room_.MakeRoom(excess + more, incoming, *used, Jobs(incoming.hints.job));
  return Excess(bytes) == 0;
}

void RangeCache::ShrinkSoon() {
  writer_->Submit([this] { Shrink(); });
}

void RangeCache::Shrink() {
  OpenAgainIfGone(parts_.jobs_path, &parts_.jobs);
  RoomMaker::Incoming nobody;
  nobody.forced = true;
  uint64_t before = UINT64_MAX;
  bool removed = true;  // in slabs, more than once before blocks of the disk are free
  for (uint64_t excess = Excess(0); excess > 0 && (excess < before || removed); excess = Excess(0)) {
    before = excess;
    removed = room_.MakeRoom(excess, nobody, excess, LiveJobs(parts_.jobs.get()));
  }
}

}  // namespace millrace
