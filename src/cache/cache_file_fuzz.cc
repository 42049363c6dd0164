// Any bytes as the head of a file of the cache and as its records: no crash, and what is accepted is encoded the same.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/crypto.h"
#include "cache/cache_format.h"

namespace {

using namespace millrace;
using namespace millrace::cache_format;

void Require(bool condition) {
  if (!condition) std::abort();
}

void CheckHead(const std::string& head) {
  const auto decoded = DecodeHead(AsBytes(head));
  Require(decoded.ok() || absl::IsDataLoss(decoded.status()));
  if (!decoded.ok()) return;
  const auto again = EncodeHead(decoded->identity, decoded->object_bytes);
  Require(again.ok() && *again == head);
}

// In a slab: what is there is found by its tag, and what is free is free.
void CheckPlaces(const CachedSpans& spans, const CachedSpan& one) {
  const auto tagged = spans.Tagged(one.tag);
  Require(std::any_of(tagged.begin(), tagged.end(), [&](const auto& entry) { return entry.span == one; }));
  Require(spans.LeftBeside(one.range.length, one.range).has_value());
  if (const auto place = spans.PlaceFor(one.range.length))
    Require(place->length == one.range.length && spans.Touching(*place).empty() && place->end() <= kSlabBytes);
}

void CheckRecords(const std::string& input, bool in_slab) {
  const uint64_t small_bytes = input.empty() ? 0 : uint64_t{static_cast<uint8_t>(input[0])} * 64;
  const uint64_t object_bytes = in_slab ? kSlabBytes : small_bytes;
  CachedSpans spans = in_slab ? CachedSpans(kSlabBytes) : CachedSpans();
  uint32_t number = 0;
  for (size_t at = 0; at + kRecordBytes <= input.size(); at += kRecordBytes) {
    std::string record = input.substr(at, kRecordBytes - sizeof(uint32_t));
    AppendLe(record, Crc32c(AsBytes(record).first(kHintsAt)));
    const auto span = DecodeRecord(AsBytes(record), object_bytes, in_slab);
    if (span) {
      Require(span->range.length > 0 && span->range.end() <= object_bytes);
      Require(EncodeRecord(*span) == record);
    }
    spans.Set(number, span);
    number = (number + 1) % 7;  // some take the place of others
    uint64_t end = 0;
    for (const CachedSpan& one : spans.All()) {
      Require(one.range.offset >= end);
      end = one.range.end();
      Require(spans.Covers(one.range) && spans.Find(one.range).has_value());
      const auto [first, last] = spans.OwnBlocks(one.range);
      Require(first <= last);
      if (in_slab) CheckPlaces(spans, one);
    }
    Require(spans.FreeRecord() <= spans.records() && spans.size() <= spans.records());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string input(reinterpret_cast<const char*>(data), size);
  CheckHead(input);
  // This head has a checksum that matches, so that the rest is looked at.
  std::string head = input;
  head.resize(kHeadBytes - sizeof(uint32_t));
  AppendLe(head, Crc32c(AsBytes(head)));
  CheckHead(head);

  for (const bool in_slab : {false, true}) CheckRecords(input, in_slab);
  const auto small = SmallObject::Decode(AsBytes(input), {"store", "", "slab 0/1", ""});
  if (small) {
    const auto again = SmallObject::Of(small->first, 0);
    Require(small->second.size() <= size && (!again || again->slab_name == FileName(again->slab)));
  }
  return 0;
}
