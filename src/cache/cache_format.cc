#include "cache/cache_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/byte_reader.h"
#include "base/crypto.h"
#include "base/number.h"

namespace millrace {

namespace cache_format {

namespace {

constexpr std::string_view kMagic = "MRCACHE\n";
constexpr uint64_t kMostObjectBytes = uint64_t{1} << 62;
constexpr size_t kNameDigits = 32;
constexpr size_t kFolderDigits = 2;

// Returns the texts of an identity, in the order that the files have.
template <typename Identity>
auto TextsOf(Identity& identity) {
  return std::array{&identity.tenant, &identity.store, &identity.key, &identity.etag};
}

absl::Status DamagedHead() {
  return absl::DataLossError("the head of the file is damaged, or of another version");
}

}  // namespace

std::string FileName(const CacheIdentity& identity) {
  std::string text;
  for (const std::string* part : TextsOf(identity)) AppendText(text, *part);
  Xxh3Stream stream;
  stream.Update(AsBytes(text));
  return stream.Digest().Hex().insert(kFolderDigits, "/");
}

bool IsFileName(std::string_view folder, std::string_view name) {
  return folder.size() == kFolderDigits && name.size() == kNameDigits - kFolderDigits && IsLowerHex(folder) &&
         IsLowerHex(name);
}

absl::StatusOr<std::string> EncodeHead(const CacheIdentity& identity, uint64_t object_bytes) {
  std::string head(kMagic);
  AppendLe(head, kVersion);
  AppendLe(head, uint32_t{0});
  AppendLe(head, object_bytes);
  for (const std::string* part : TextsOf(identity)) AppendText(head, *part);
  if (head.size() > kHeadBytes - sizeof(uint32_t) || object_bytes > kMostObjectBytes)
    return absl::InvalidArgumentError("its URI and ETag are too long for a file of the cache");
  head.resize(kHeadBytes - sizeof(uint32_t));
  AppendLe(head, Crc32c(AsBytes(head)));
  return head;
}

absl::StatusOr<CacheHead> DecodeHead(ByteSpan head) {
  if (head.size() != kHeadBytes) return DamagedHead();
  const uint64_t checked = kHeadBytes - sizeof(uint32_t);
  if (LoadLe<uint32_t>(head.data() + checked) != Crc32c(head.first(checked))) return DamagedHead();
  CacheHead found;
  constexpr size_t kSizeAt = kMagic.size() + 2 * sizeof(uint32_t);
  found.object_bytes = LoadLe<uint64_t>(head.data() + kSizeAt);
  ByteReader reader(head.subspan(kSizeAt + sizeof(uint64_t), checked - kSizeAt - sizeof(uint64_t)));
  for (std::string* part : TextsOf(found.identity)) *part = reader.Text(reader.Varint());
  if (!reader.ok()) return DamagedHead();
  if (IsSlab(found.identity) && found.object_bytes != kSlabBytes) return DamagedHead();
  // All of it follows from the identity and the size.
  const absl::StatusOr<std::string> expected = EncodeHead(found.identity, found.object_bytes);
  if (!expected.ok() || *expected != AsText(head)) return DamagedHead();
  return found;
}

uint64_t ChangesAt(uint64_t object_bytes) {
  return kDataAt + (object_bytes + kHeadBytes - 1) / kHeadBytes * kHeadBytes;
}

uint64_t RecordsAt(uint64_t object_bytes) {
  return ChangesAt(object_bytes) + kChangesBytes;
}

namespace {

// Returns the checksum of what does not change: offset, length and the checksum of the bytes.
uint32_t RecordCheck(ByteSpan record) {
  return Crc32c(record.first(kHintsAt));
}

}  // namespace

std::string EncodeHints(const UseHints& hints) {
  std::string text;
  AppendLe(text, hints.next_use);
  AppendLe(text, hints.job);
  return text;
}

std::string EncodeRecord(const CachedSpan& span) {
  std::string record;
  AppendLe(record, span.range.offset | uint64_t{span.tag} << kSlabBits);
  AppendLe(record, static_cast<uint32_t>(span.range.length));
  AppendLe(record, span.crc32c);
  record += EncodeHints(span.hints);
  AppendLe(record, RecordCheck(AsBytes(record)));
  return record;
}

std::optional<CachedSpan> DecodeRecord(ByteSpan record, uint64_t object_bytes, bool in_slab) {
  if (record.size() != kRecordBytes) return std::nullopt;
  if (LoadLe<uint32_t>(record.data() + kRecordBytes - sizeof(uint32_t)) != RecordCheck(record)) return std::nullopt;
  CachedSpan span;
  span.range.offset = LoadLe<uint64_t>(record.data());
  if (in_slab) {
    span.tag = static_cast<uint32_t>(span.range.offset >> kSlabBits);
    span.range.offset &= kSlabBytes - 1;
  }
  span.range.length = LoadLe<uint32_t>(record.data() + 8);
  span.crc32c = LoadLe<uint32_t>(record.data() + 12);
  span.hints.next_use = LoadLe<uint64_t>(record.data() + kHintsAt);
  span.hints.job = LoadLe<uint32_t>(record.data() + kHintsAt + 8);
  const bool inside = span.range.offset <= object_bytes && span.range.length <= object_bytes - span.range.offset;
  const uint64_t most = in_slab ? kMaxSlabSpanBytes : kMaxSpanBytes;
  if (!inside || span.range.length == 0 || span.range.length > most) return std::nullopt;
  return span;
}

namespace {
constexpr std::string_view kSlabEtag = "slab ";
}  // namespace

bool IsSlab(const CacheIdentity& identity) {
  return identity.key.empty() && identity.etag.starts_with(kSlabEtag);
}

}  // namespace cache_format

std::optional<SmallObject> SmallObject::Of(const CacheIdentity& identity, int slab_bits) {
  using namespace cache_format;
  SmallObject small;
  AppendText(small.head, identity.key);
  AppendText(small.head, identity.etag);
  if (small.head.size() > kHeadBytes || identity.key.empty()) return std::nullopt;
  const uint64_t hash = Xxh3(AsBytes(small.head));
  const uint64_t number = slab_bits == 0 ? 0 : hash >> (64 - slab_bits);
  const std::string etag = fmt::format("{}{}/{}", kSlabEtag, number, uint64_t{1} << slab_bits);
  small.slab = {identity.store, "", etag, identity.tenant};
  small.slab_name = FileName(small.slab);
  small.tag = static_cast<uint32_t>(hash) & ((uint32_t{1} << (64 - kSlabBits)) - 1);
  return small;
}

std::optional<std::pair<CacheIdentity, ByteSpan>> SmallObject::Decode(ByteSpan entry, CacheIdentity slab) {
  CacheIdentity identity = std::move(slab);
  ByteReader reader(entry);
  identity.key = reader.Text(reader.Varint());
  identity.etag = reader.Text(reader.Varint());
  if (!reader.ok()) return std::nullopt;
  return std::pair(std::move(identity), reader.Bytes(reader.left()));
}

// The first whose end lies behind the beginning of the range: it touches the range if any does.
CachedSpans::Map::const_iterator CachedSpans::FirstTouching(ByteRange range) const {
  auto at = by_offset_.upper_bound(range.offset);
  if (at != by_offset_.begin()) {
    const auto before = std::prev(at);
    if (before->second.span.range.end() > range.offset) return before;
  }
  return at;
}

void CachedSpans::Set(uint32_t record, const std::optional<CachedSpan>& span) {
  while (offsets_.size() <= record) {
    free_.insert(records());
    offsets_.push_back(kFree);
  }
  if (offsets_[record] != kFree) Erase(offsets_[record]);
  offsets_[record] = kFree;
  free_.insert(record);
  if (!span) return;
  const auto at = FirstTouching(span->range);
  if (at != by_offset_.end() && at->second.span.range.offset < span->range.end()) {
    if (at->second.span.range != span->range) return;
    offsets_[at->second.record] = kFree;
    free_.insert(at->second.record);
    Erase(at->first);
  }
  Insert(record, *span);
  offsets_[record] = span->range.offset;
  free_.erase(record);
}

void CachedSpans::Clear() {
  by_offset_.clear();
  offsets_.clear();
  free_.clear();
  tags_.clear();
  gaps_.clear();
  if (slab_bytes_ > 0) SetGap(0, slab_bytes_, true);
}

ByteRange CachedSpans::GapAround(ByteRange range) const {
  const auto behind = by_offset_.lower_bound(range.offset);
  const uint64_t end = behind == by_offset_.end() ? slab_bytes_ : behind->first;
  const uint64_t begin = behind == by_offset_.begin() ? 0 : std::prev(behind)->second.span.range.end();
  return {begin, end - begin};
}

void CachedSpans::SetGap(uint64_t begin, uint64_t end, bool there) {
  if (begin >= end) return;
  if (there) {
    gaps_.emplace(end - begin, begin);
  } else {
    gaps_.erase({end - begin, begin});
  }
}

void CachedSpans::Insert(uint32_t record, const CachedSpan& span) {
  if (slab_bytes_ > 0) {
    const ByteRange gap = GapAround(span.range);
    SetGap(gap.offset, gap.end(), false);
    SetGap(gap.offset, span.range.offset, true);
    SetGap(span.range.end(), gap.end(), true);
    tags_.emplace(span.tag, span.range.offset);
  }
  by_offset_[span.range.offset] = {record, span};
}

void CachedSpans::Erase(uint64_t offset) {
  const auto found = by_offset_.find(offset);
  const CachedSpan span = found->second.span;
  by_offset_.erase(found);
  if (slab_bytes_ == 0) return;
  const ByteRange gap = GapAround(span.range);
  SetGap(gap.offset, offset, false);
  SetGap(span.range.end(), gap.end(), false);
  SetGap(gap.offset, gap.end(), true);
  tags_.erase({span.tag, offset});
}

std::vector<CachedSpans::Entry> CachedSpans::Tagged(uint32_t tag) const {
  std::vector<Entry> tagged;
  for (auto i = tags_.lower_bound({tag, 0}); i != tags_.end() && i->first == tag; ++i)
    tagged.push_back(by_offset_.find(i->second)->second);
  return tagged;
}

std::optional<ByteRange> CachedSpans::PlaceFor(uint64_t bytes) const {
  const auto gap = gaps_.lower_bound({bytes, 0});
  if (gap == gaps_.end()) return std::nullopt;
  return ByteRange{gap->second, bytes};
}

std::optional<uint64_t> CachedSpans::LeftBeside(uint64_t bytes, ByteRange range) const {
  const auto behind = by_offset_.lower_bound(range.end());
  const auto own = by_offset_.lower_bound(range.offset);
  const uint64_t end = behind == by_offset_.end() ? slab_bytes_ : behind->first;
  const uint64_t begin = own == by_offset_.begin() ? 0 : std::prev(own)->second.span.range.end();
  if (end - begin < bytes) return std::nullopt;
  return end - begin - bytes;
}

std::vector<ByteRange> CachedSpans::Missing(ByteRange range) const {
  std::vector<ByteRange> missing;
  uint64_t at = range.offset;
  for (auto i = FirstTouching(range); i != by_offset_.end() && i->first < range.end(); ++i) {
    const ByteRange there = i->second.span.range;
    if (there.offset > at) missing.push_back({at, there.offset - at});
    at = there.end();
  }
  if (at < range.end()) missing.push_back({at, range.end() - at});
  return missing;
}

bool CachedSpans::Covers(ByteRange range) const {
  uint64_t at = range.offset;
  for (auto i = FirstTouching(range); i != by_offset_.end() && at < range.end(); ++i) {
    if (i->first > at) return false;
    at = i->second.span.range.end();
  }
  return at >= range.end();
}

std::vector<CachedSpans::Entry> CachedSpans::Touching(ByteRange range) const {
  std::vector<Entry> touching;
  for (auto i = FirstTouching(range); i != by_offset_.end() && i->first < range.end(); ++i)
    touching.push_back(i->second);
  return touching;
}

std::optional<CachedSpans::Entry> CachedSpans::Find(ByteRange range) const {
  const auto at = by_offset_.find(range.offset);
  if (at == by_offset_.end() || at->second.span.range != range) return std::nullopt;
  return at->second;
}

std::optional<CachedSpans::Entry> CachedSpans::Any(Rng& rng) const {
  constexpr int kAttempts = 16;  // then nearly all are free
  for (int i = 0; i < kAttempts && !by_offset_.empty(); ++i) {
    const uint64_t offset = offsets_[rng.Below(offsets_.size())];
    if (offset != kFree) return by_offset_.find(offset)->second;
  }
  if (by_offset_.empty()) return std::nullopt;
  return by_offset_.begin()->second;
}

void CachedSpans::SetHints(uint32_t record, const UseHints& hints) {
  if (record >= offsets_.size() || offsets_[record] == kFree) return;
  by_offset_.find(offsets_[record])->second.span.hints = hints;
}

std::pair<uint64_t, uint64_t> CachedSpans::OwnBlocks(ByteRange range) const {
  constexpr uint64_t kBlock = cache_format::kHeadBytes;
  uint64_t first = range.offset / kBlock;
  uint64_t end = (range.end() + kBlock - 1) / kBlock;
  // The neighbours before and behind, each of which may have bytes in the block at its side.
  const auto behind = by_offset_.lower_bound(range.end());
  if (behind != by_offset_.end() && behind->first / kBlock < end) end = behind->first / kBlock;
  auto before = by_offset_.lower_bound(range.offset);
  if (before != by_offset_.begin()) {
    const uint64_t taken = (std::prev(before)->second.span.range.end() + kBlock - 1) / kBlock;
    first = std::max(first, taken);
  }
  return {first, std::max(first, end)};
}

std::vector<CachedSpan> CachedSpans::All() const {
  std::vector<CachedSpan> all;
  for (const auto& [offset, entry] : by_offset_) all.push_back(entry.span);
  return all;
}

}  // namespace millrace
