#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "base/errno_status.h"
#include "cache/cache_file.h"
#include "cache/span_reader.h"

// The records of a cache's file: what others have changed, changes of its own, and hints.

namespace millrace {

using namespace cache_format;

namespace {

constexpr size_t kRecordsAtOnce = 2048;

}  // namespace

uint64_t CacheFile::PlaceOf(uint32_t record) const {
  return RecordsAt(object_bytes()) + record * kRecordBytes;
}

// ---- What other processes have changed

absl::Status CacheFile::LearnAll() {
  struct stat info {};
  if (fstat(fd_.get(), &info) != 0) return ErrnoStatus(errno, path_, "looking it up");
  const auto size = static_cast<uint64_t>(info.st_size);
  const uint64_t all = size > PlaceOf(0) ? std::min<uint64_t>((size - PlaceOf(0)) / kRecordBytes, UINT32_MAX) : 0;
  spans_.Clear();
  std::string records;
  for (uint64_t first = 0; first < all; first += kRecordsAtOnce) {
    const uint64_t count = std::min<uint64_t>(all - first, kRecordsAtOnce);
    records.resize(count * kRecordBytes);
    const auto number = static_cast<uint32_t>(first);
    RETURN_IF_ERROR(ReadAt(fd_.get(), PlaceOf(number), AsWritableBytes(records), path_));
    for (uint32_t i = 0; i < count; ++i) {
      const ByteSpan record = AsBytes(records).subspan(i * kRecordBytes, kRecordBytes);
      spans_.Set(number + i, DecodeRecord(record, object_bytes(), is_slab()));
    }
  }
  return absl::OkStatus();
}

absl::Status CacheFile::LearnRecord(uint32_t record) {
  std::string bytes(kRecordBytes, '\0');
  absl::Status status = ReadAt(fd_.get(), PlaceOf(record), AsWritableBytes(bytes), path_);
  if (!status.ok() && !absl::IsDataLoss(status)) return status;
  // A record that is announced and not there yet is read again, or was lost.
  if (status.ok()) spans_.Set(record, DecodeRecord(AsBytes(bytes), object_bytes(), is_slab()));
  return absl::OkStatus();
}

// Changes come one after the other, and each is announced before its record is written. Without the lock, the record
// of the last one may be still on its way, and it is read again by the next call.
absl::Status CacheFile::LearnRecords(bool locked) {
  if (in_memory()) return absl::OkStatus();
  std::array<std::byte, kChangesBytes> page{};
  const auto count_of_page = [&] { return LoadLe<uint64_t>(page.data()); };
  absl::Status read =
      ReadAt(fd_.get(), ChangesAt(object_bytes()), MutableByteSpan(page).first(sizeof(uint64_t)), path_);
  if (absl::IsDataLoss(read)) read = absl::OkStatus();  // there are none
  RETURN_IF_ERROR(read);
  const uint64_t count = count_of_page();
  if (learned_ && count == changes_) return absl::OkStatus();
  bool all = !learned_ || count < changes_ || count - changes_ > kChangesKept / 2;
  if (!all) {
    read = ReadAt(fd_.get(), ChangesAt(object_bytes()), page, path_);
    all = absl::IsDataLoss(read);  // the first record is announced, and not there yet
    if (!all) RETURN_IF_ERROR(read);
  }
  if (all) {
    RETURN_IF_ERROR(LearnAll());
  } else {
    for (uint64_t change = changes_; change < count; ++change) {
      const auto record = LoadLe<uint32_t>(page.data() + ChangeAt(change));
      if (record <= spans_.records() + kChangesKept) RETURN_IF_ERROR(LearnRecord(record));
    }
  }
  learned_ = true;
  announced_ = count;
  changes_ = locked || count == 0 ? count : count - 1;
  return absl::OkStatus();
}

// Before the record is changed: a process that is killed in between leaves one that others read in vain, and not one
// that they do not know.
absl::Status CacheFile::Announce(uint32_t record) {
  std::string number;
  AppendLe(number, record);
  std::string count;
  AppendLe(count, announced_ + 1);
  const uint64_t page = ChangesAt(object_bytes());
  RETURN_IF_ERROR(WriteAt(fd_.get(), page + ChangeAt(announced_), AsBytes(number), path_));
  RETURN_IF_ERROR(WriteAt(fd_.get(), page, AsBytes(count), path_));
  changes_ = ++announced_;  // all before were learned with the lock, and this one is our own
  return absl::OkStatus();
}

// The caller holds mutex_ and the lock of records.
absl::Status CacheFile::SetRecord(uint32_t record, const std::optional<CachedSpan>& span) {
  if (!in_memory()) {
    RETURN_IF_ERROR(Announce(record));
    const std::string bytes = span ? EncodeRecord(*span) : std::string(kRecordBytes, '\0');
    RETURN_IF_ERROR(WriteAt(fd_.get(), PlaceOf(record), AsBytes(bytes), path_));
  }
  spans_.Set(record, span);
  return absl::OkStatus();
}

// ---- Hints

void CacheFile::ChangeHints(ByteRange range, absl::FunctionRef<UseHints(const UseHints&, ByteRange)> change) {
  std::vector<std::pair<uint32_t, UseHints>> changed;
  {
    const std::lock_guard lock(mutex_);
    for (const CachedSpans::Entry& entry : spans_.Touching(range)) {
      const UseHints hints = change(entry.span.hints, entry.span.range);
      if (hints == entry.span.hints) continue;
      spans_.SetHints(entry.record, hints);
      if (!in_memory()) changed.emplace_back(entry.record, hints);
    }
  }
  // Without a lock: if the record is another's by now, it gets hints that are wrong, and not wrong bytes.
  for (const auto& [record, hints] : changed) {
    if (!CanChange(record)) continue;
    WriteAt(fd_.get(), PlaceOf(record) + kHintsAt, AsBytes(EncodeHints(hints)), path_).IgnoreError();
  }
}

// Other processes change hints without telling.
std::optional<CachedSpan> CacheFile::Reread(const CachedSpans::Entry& entry) {
  if (in_memory()) return entry.span;
  std::string bytes(kRecordBytes, '\0');
  if (!ReadAt(fd_.get(), PlaceOf(entry.record), AsWritableBytes(bytes), path_).ok()) return std::nullopt;
  const std::optional<CachedSpan> now = DecodeRecord(AsBytes(bytes), object_bytes(), is_slab());
  if (!now || now->range != entry.span.range) return std::nullopt;
  return now;
}

std::optional<CachedSpan> CacheFile::Any(Rng& rng) {
  std::optional<CachedSpans::Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    if (!LearnRecords(/*locked=*/false).ok()) return std::nullopt;
    entry = spans_.Any(rng);
  }
  return entry ? Reread(*entry) : std::nullopt;
}

std::optional<CachedSpan> CacheFile::Current(ByteRange range) {
  std::optional<CachedSpans::Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    if (!LearnRecords(/*locked=*/false).ok()) return std::nullopt;
    entry = spans_.Find(range);
  }
  return entry ? Reread(*entry) : std::nullopt;
}

}  // namespace millrace
