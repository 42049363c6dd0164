#include "cache/cache_format.h"

#include <algorithm>
#include <string_view>

#include "base/byte_reader.h"
#include "base/crypto.h"

namespace millrace {

namespace cache_format {

namespace {

constexpr std::string_view kMagic = "MRCACHE\n";
constexpr uint64_t kMostObjectBytes = uint64_t{1} << 62;
constexpr size_t kNameDigits = 32;
constexpr size_t kFolderDigits = 2;

absl::Status DamagedHead() {
  return absl::DataLossError("the head of the file is damaged, of another version, or of another object");
}

}  // namespace

std::string FileName(const CacheIdentity& identity) {
  std::string text;
  for (const std::string* part : {&identity.store, &identity.key, &identity.etag}) AppendText(text, *part);
  Xxh3Stream stream;
  stream.Update(AsBytes(text));
  return stream.Digest().Hex().insert(kFolderDigits, "/");
}

bool IsFileName(std::string_view folder, std::string_view name) {
  const auto is_hex = [](std::string_view text) {
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  };
  return folder.size() == kFolderDigits && name.size() == kNameDigits - kFolderDigits && is_hex(folder) && is_hex(name);
}

absl::StatusOr<std::string> EncodeHead(const CacheIdentity& identity, uint64_t object_bytes) {
  std::string head(kMagic);
  AppendLe(head, kVersion);
  AppendLe(head, uint32_t{0});
  AppendLe(head, object_bytes);
  for (const std::string* part : {&identity.store, &identity.key, &identity.etag}) AppendText(head, *part);
  if (head.size() > kHeadBytes - sizeof(uint32_t) || object_bytes > kMostObjectBytes)
    return absl::InvalidArgumentError("its URI and ETag are too long for a file of the cache");
  head.resize(kHeadBytes - sizeof(uint32_t));
  AppendLe(head, Crc32c(AsBytes(head)));
  return head;
}

absl::StatusOr<uint64_t> DecodeHead(ByteSpan head, const CacheIdentity& identity) {
  if (head.size() != kHeadBytes) return DamagedHead();
  const uint64_t checked = kHeadBytes - sizeof(uint32_t);
  if (LoadLe<uint32_t>(head.data() + checked) != Crc32c(head.first(checked))) return DamagedHead();
  const auto object_bytes = LoadLe<uint64_t>(head.data() + kMagic.size() + 2 * sizeof(uint32_t));
  // All of it follows from the identity and the size.
  const absl::StatusOr<std::string> expected = EncodeHead(identity, object_bytes);
  if (!expected.ok() || *expected != AsText(head)) return DamagedHead();
  return object_bytes;
}

uint64_t RecordsAt(uint64_t object_bytes) {
  return kDataAt + (object_bytes + kHeadBytes - 1) / kHeadBytes * kHeadBytes;
}

std::string EncodeRecord(const CachedSpan& span) {
  std::string record;
  AppendLe(record, span.range.offset);
  AppendLe(record, span.range.length);
  AppendLe(record, span.crc32c);
  AppendLe(record, uint64_t{0});
  AppendLe(record, Crc32c(AsBytes(record)));
  return record;
}

std::optional<CachedSpan> DecodeRecord(ByteSpan record, uint64_t object_bytes) {
  if (record.size() != kRecordBytes) return std::nullopt;
  const uint64_t checked = kRecordBytes - sizeof(uint32_t);
  if (LoadLe<uint32_t>(record.data() + checked) != Crc32c(record.first(checked))) return std::nullopt;
  CachedSpan span;
  span.range.offset = LoadLe<uint64_t>(record.data());
  span.range.length = LoadLe<uint64_t>(record.data() + 8);
  span.crc32c = LoadLe<uint32_t>(record.data() + 16);
  const bool inside = span.range.offset <= object_bytes && span.range.length <= object_bytes - span.range.offset;
  if (!inside || span.range.length == 0) return std::nullopt;
  return span;
}

}  // namespace cache_format

// The first whose end lies behind the beginning of the range: it touches the range if any does.
size_t CachedSpans::FirstTouching(ByteRange range) const {
  const auto first = std::partition_point(spans_.begin(), spans_.end(),
                                          [&](const CachedSpan& span) { return span.range.end() <= range.offset; });
  return static_cast<size_t>(first - spans_.begin());
}

bool CachedSpans::Add(const CachedSpan& span) {
  const size_t at = FirstTouching(span.range);
  if (at < spans_.size() && spans_[at].range.offset < span.range.end()) {
    if (spans_[at].range != span.range) return false;
    spans_[at] = span;
    return true;
  }
  spans_.insert(spans_.begin() + static_cast<ptrdiff_t>(at), span);
  return true;
}

std::vector<ByteRange> CachedSpans::Missing(ByteRange range) const {
  std::vector<ByteRange> missing;
  uint64_t at = range.offset;
  for (size_t i = FirstTouching(range); i < spans_.size() && spans_[i].range.offset < range.end(); ++i) {
    if (spans_[i].range.offset > at) missing.push_back({at, spans_[i].range.offset - at});
    at = spans_[i].range.end();
  }
  if (at < range.end()) missing.push_back({at, range.end() - at});
  return missing;
}

bool CachedSpans::Covers(ByteRange range) const {
  uint64_t at = range.offset;
  for (size_t i = FirstTouching(range); i < spans_.size() && at < range.end(); ++i) {
    if (spans_[i].range.offset > at) return false;
    at = spans_[i].range.end();
  }
  return at >= range.end();
}

std::vector<CachedSpan> CachedSpans::Touching(ByteRange range) const {
  std::vector<CachedSpan> touching;
  for (size_t i = FirstTouching(range); i < spans_.size() && spans_[i].range.offset < range.end(); ++i)
    touching.push_back(spans_[i]);
  return touching;
}

void CachedSpans::RemoveTouching(ByteRange range) {
  const size_t first = FirstTouching(range);
  size_t end = first;
  while (end < spans_.size() && spans_[end].range.offset < range.end()) ++end;
  spans_.erase(spans_.begin() + static_cast<ptrdiff_t>(first), spans_.begin() + static_cast<ptrdiff_t>(end));
}

}  // namespace millrace
