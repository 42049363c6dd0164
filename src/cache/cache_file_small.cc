#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/crypto.h"
#include "cache/cache_file.h"
#include "cache/records_lock.h"
#include "cache/span_reader.h"

// These functions of CacheFile keep whole small objects in a slab. A slab is a file of the cache whose ranges are such
// objects, each behind its key and its ETag.

namespace millrace {

using namespace cache_format;

namespace {

// A small object that is not found is looked for once more, after learning the changes of others.
constexpr int kLooks = 2;

bool AreRight(std::span<const SpanChecksum> checksums, ByteSpan object) {
  return std::all_of(checksums.begin(), checksums.end(), [&](const SpanChecksum& sum) {
    return sum.range.end() <= object.size() && Crc32c(object.subspan(sum.range.offset, sum.range.length)) == sum.crc32c;
  });
}

}  // namespace

// The record is the generation: a writer that gives the place to another object has zeroed it, or written another one
// over it, before.
bool CacheFile::IsStill(const CachedSpans::Entry& entry) {
  if (in_memory()) {
    const std::lock_guard lock(mutex_);
    const std::optional<CachedSpans::Entry> now = spans_.Find(entry.span.range);
    return now && now->span.crc32c == entry.span.crc32c && now->span.tag == entry.span.tag;
  }
  const std::optional<CachedSpan> now = Reread(entry);
  return now && now->crc32c == entry.span.crc32c && now->tag == entry.span.tag;
}

std::optional<CachedSpan> CacheFile::FindSmall(const SmallObject& small) {
  const std::lock_guard lock(mutex_);
  for (int look = 0; look < kLooks; ++look) {
    const std::vector<CachedSpans::Entry> tagged = spans_.Tagged(small.tag);
    if (!tagged.empty()) return tagged.front().span;
    if (look == 0 && !LearnRecords(/*locked=*/false).ok()) break;
  }
  return std::nullopt;
}

absl::StatusOr<uint64_t> CacheFile::ReadSmall(const SmallObject& small, ByteRange range,
                                              std::span<const SpanChecksum> checksums, MutableByteSpan into,
                                              uint64_t* freed) {
  for (int look = 0; look < kLooks; ++look) {
    std::vector<CachedSpans::Entry> tagged;
    {
      const std::lock_guard lock(mutex_);
      if (look > 0) RETURN_IF_ERROR(LearnRecords(/*locked=*/false));
      tagged = spans_.Tagged(small.tag);
    }
    for (const CachedSpans::Entry& entry : tagged) {
      const CachedSpan& span = entry.span;
      Buffer buffer(span.range.length);
      absl::Status read = ReadAt(data_fd_, data_at_ + span.range.offset, buffer.span(), path_);
      if (!read.ok() && !absl::IsDataLoss(read)) return read;
      const ByteSpan bytes = buffer.span();
      const bool sound = read.ok() && Crc32c(bytes) == span.crc32c;
      if (!IsStill(entry)) continue;
      const bool own = sound && AsText(bytes).starts_with(small.head);
      if (sound && !own) continue;  // another object with this tag
      const ByteSpan object = own ? bytes.subspan(small.head.size()) : ByteSpan();
      if (own && AreRight(checksums, object)) {
        if (range.end() > object.size()) return absl::NotFoundError(fmt::format("{}: the object is shorter", path_));
        std::memcpy(into.data(), object.data() + range.offset, range.length);
        return object.size();
      }
      const absl::StatusOr<uint64_t> removed = Remove(span.range, span.crc32c);
      if (removed.ok() && freed != nullptr) *freed += *removed;
      return absl::DataLossError(
          fmt::format("{}: a small object at {}+{} is damaged here", path_, span.range.offset, span.range.length));
    }
  }
  return absl::NotFoundError(fmt::format("{}: does not have this object", path_));
}

absl::Status CacheFile::CheckSmall(const CachedSpan& span, MutableByteSpan into, uint64_t* freed) {
  const absl::Status read = ReadAt(data_fd_, data_at_ + span.range.offset, into, path_);
  if (!read.ok() && !absl::IsDataLoss(read)) return read;
  if (read.ok() && Crc32c(into) == span.crc32c && SmallObject::Decode(into, head_.identity)) return absl::OkStatus();
  const absl::Status gone = absl::NotFoundError(fmt::format("{}: this place is another object's by now", path_));
  const std::optional<CachedSpan> now = Current(span.range);
  if (!now || now->crc32c != span.crc32c || now->tag != span.tag) return gone;
  // Another process may be about to remove it: its bytes go before its record.
  const absl::StatusOr<uint64_t> removed = Remove(span.range, span.crc32c);
  if (removed.ok() && *removed == 0) return gone;
  if (removed.ok() && freed != nullptr) *freed += *removed;
  return absl::DataLossError(
      fmt::format("{}: a small object at {}+{} is damaged", path_, span.range.offset, span.range.length));
}

absl::Status CacheFile::AddSmall(const SmallObject& small, ByteSpan bytes, const UseHints& hints, const Room& room) {
  std::string entry = small.head;
  entry += AsText(bytes);
  const uint32_t crc32c = Crc32c(AsBytes(entry));
  const std::lock_guard writing(write_mutex_);
  ASSIGN_OR_RETURN(const RecordsLock lock, RecordsLock::Take(fd_.get(), path_, patience_));
  unlinked_ = unlinked_ || IsRemoved();
  if (unlinked_) return absl::NotFoundError(fmt::format("{}: was removed", path_));
  std::optional<ByteRange> place;
  {
    const std::lock_guard held(mutex_);
    RETURN_IF_ERROR(LearnRecords(/*locked=*/true));
    for (const CachedSpans::Entry& there : spans_.Tagged(small.tag)) {
      if (there.span.crc32c == crc32c && there.span.range.length == entry.size())
        return absl::AlreadyExistsError(fmt::format("{}: has this object", path_));
    }
    if (!CanChange(spans_.FreeRecord())) return TooLong();
    place = spans_.PlaceFor(entry.size());
  }
  if (!place) return absl::OutOfRangeError(fmt::format("{}: has no place", path_));
  return WritePart(*place, AsBytes(entry), hints, room, small.tag);
}

std::optional<int64_t> CacheFile::WasteOfRemoving(ByteRange range, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  if (bytes == 0) {
    const auto [first, end] = spans_.OwnBlocks(range);
    return static_cast<int64_t>(range.length) - static_cast<int64_t>((end - first) * kHeadBytes);
  }
  const std::optional<uint64_t> left = spans_.LeftBeside(bytes, range);
  if (!left) return std::nullopt;
  return static_cast<int64_t>(*left);
}

std::optional<CacheIdentity> CacheFile::OwnerOf(const CachedSpan& span, uint64_t* object_bytes) const {
  if (object_bytes != nullptr) *object_bytes = head_.object_bytes;
  if (!is_slab()) return head_.identity;
  std::string head(std::min(span.range.length, kHeadBytes), '\0');
  if (!ReadAt(data_fd_, data_at_ + span.range.offset, AsWritableBytes(head), path_).ok()) return std::nullopt;
  std::optional<std::pair<CacheIdentity, ByteSpan>> found = SmallObject::Decode(AsBytes(head), head_.identity);
  if (!found) return std::nullopt;
  if (object_bytes != nullptr) *object_bytes = span.range.length - (head.size() - found->second.size());
  return std::move(found->first);
}

}  // namespace millrace
