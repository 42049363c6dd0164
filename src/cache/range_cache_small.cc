#include <algorithm>
#include <bit>
#include <memory>
#include <optional>

#include "base/log.h"
#include "cache/range_cache.h"

// These functions of RangeCache find the places of whole small objects, and put the objects there.

namespace millrace {

using namespace cache_format;

namespace {

// Each slab has files' heads and a place of its own for what is freed: small caches have few.
constexpr uint64_t kBytesOfSlab = uint64_t{64} << 20;
// One range goes after the other until there is a place: none goes in vain.
constexpr int kAddAttempts = 64;

}  // namespace

int RangeCache::SlabBitsFor(uint64_t capacity_bytes) {
  return std::clamp(static_cast<int>(std::bit_width(capacity_bytes / kBytesOfSlab)) - 1, 0, kMostSlabBits);
}

// Returns the slab of an object, or null if there is none; `small` tells where the object lies, or would.
std::shared_ptr<CacheFile> RangeCache::SlabOf(const CacheIdentity& identity, std::optional<SmallObject>* small) {
  *small = SmallObject::Of(identity, parts_.slab_bits);
  return *small ? Find((*small)->slab, (*small)->slab_name) : nullptr;
}

bool RangeCache::Has(const CacheIdentity& identity) {
  std::optional<SmallObject> small;
  const std::shared_ptr<CacheFile> slab = SlabOf(identity, &small);
  if (slab != nullptr && slab->FindSmall(*small)) return true;
  return Find(identity, FileName(identity)) != nullptr;
}

std::optional<uint64_t> RangeCache::ReadSmall(const CacheIdentity& identity, ByteRange range,
                                              std::span<const SpanChecksum> checksums, MutableByteSpan into) {
  std::optional<SmallObject> small;
  const std::shared_ptr<CacheFile> slab = SlabOf(identity, &small);
  if (slab == nullptr) return std::nullopt;
  uint64_t freed = 0;
  const absl::StatusOr<uint64_t> read = slab->ReadSmall(*small, range, checksums, into, &freed);
  if (freed > 0) GiveBack(freed);
  if (read.ok()) return *read;
  if (absl::IsDataLoss(read.status())) {
    Log(LogLevel::kDebug, "cache", ToStd(read.status().message()));
  } else if (!absl::IsNotFound(read.status())) {
    open_.Forget(small->slab_name, slab);
    OnBadFile(small->slab_name, read.status());
  }
  return std::nullopt;
}

// Returns false if the object is not in a slab.
bool RangeCache::TouchSmall(const CacheIdentity& identity, const PlannedRead* plan, ByteRange range) {
  std::optional<SmallObject> small;
  const std::shared_ptr<CacheFile> slab = SlabOf(identity, &small);
  const std::optional<CachedSpan> there = slab == nullptr ? std::nullopt : slab->FindSmall(*small);
  if (!there) return false;
  if (plan == nullptr) {
    slab->ChangeHints(there->range, ReadWithoutPlan);
    return true;
  }
  const uint64_t object_bytes = there->range.length - std::min(there->range.length, small->head.size());
  for (const PlannedRead::Span& span : plan->spans) {
    if (span.range.end() <= range.offset || span.range.offset >= range.end()) continue;
    const bool whole = span.range.offset == 0 && span.range.end() >= object_bytes;
    const uint64_t next_use = whole ? span.next_use : std::min(span.next_use, span.around_use);
    slab->ChangeHints(there->range, [&](const UseHints& of, ByteRange) { return ReadByPlan(of, *plan, next_use); });
  }
  return true;
}

// Tries once to add the object. `lacking`: so many bytes of the disk must be free before, if it is not 0. Unavailable
// if there is no slab.
absl::Status RangeCache::AddSmall(const Kept& kept, const SmallObject& small, uint64_t* lacking) {
  std::shared_ptr<CacheFile> slab = Find(small.slab, small.slab_name);
  if (slab == nullptr && IsBad(small.slab_name)) return absl::UnavailableError("a slab that is not used");
  if (slab == nullptr) {
    bool no_room = Excess(CacheFile::kEmptyDiskBytes) > 0;
    bool written = false;
    if (!no_room) slab = Make({small.slab, small.slab_name, kSlabBytes, 0, {}, {}}, {}, &written, &no_room);
    *lacking = no_room ? CacheFile::kEmptyDiskBytes : 0;
    if (slab == nullptr) return absl::UnavailableError("no slab");
  }
  const auto take = [&](uint64_t disk_bytes) -> absl::Status {
    if (disk_bytes == 0) return absl::OkStatus();
    bool taken = Excess(disk_bytes) == 0;
    if (taken) {
      ASSIGN_OR_RETURN(taken, parts_.usage.Take(disk_bytes, limit()));
    }
    if (taken) return absl::OkStatus();
    *lacking = disk_bytes;
    return absl::ResourceExhaustedError("no room in the cache");
  };
  const auto give_back = [&](uint64_t disk_bytes) { GiveBack(disk_bytes); };
  const absl::Status added = slab->AddSmall(small, kept.bytes, kept.hints, {take, give_back});
  if (absl::IsNotFound(added)) open_.Forget(small.slab_name, slab);
  return added;
}

// Returns false if its slab cannot take it: then it goes to a file of its own.
bool RangeCache::WriteSmall(const Kept& kept, const SmallObject& small) {
  const uint64_t length = kept.bytes.size();
  RoomMaker::Incoming incoming{small.slab_name, small.tag, kept.hints};
  incoming.place_bytes = small.head.size() + length;
  Kept now = kept;
  for (int attempt = 0; attempt < kAddAttempts && writes_; ++attempt) {
    uint64_t lacking = 0;
    const absl::Status added = AddSmall(now, small, &lacking);
    if (added.ok()) {
      written_bytes_.fetch_add(length, std::memory_order_relaxed);
      return true;
    }
    if (absl::IsAlreadyExists(added)) return true;
    if (lacking > 0) {
      if (!EnsureRoom(lacking, incoming)) break;
      if (incoming.proven) {
        UnplannedUse use = UnplannedUse::Of(now.hints);
        use.proven = true;
        now.hints = use.Pack();
      }
      continue;
    }
    if (absl::IsNotFound(added)) continue;
    const bool is_bad = IsBad(small.slab_name);
    if (!is_bad && (absl::IsOutOfRange(added) || absl::IsUnavailable(added))) return false;
    dropped_bytes_.fetch_add(length, std::memory_order_relaxed);
    if (!is_bad) OnError(added, /*reading=*/false);
    return true;
  }
  not_admitted_bytes_.fetch_add(length, std::memory_order_relaxed);
  return true;
}

}  // namespace millrace
