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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string input(reinterpret_cast<const char*>(data), size);
  CheckHead(input);
  // With a checksum that matches, so that the rest is looked at.
  std::string head = input;
  head.resize(kHeadBytes - sizeof(uint32_t));
  AppendLe(head, Crc32c(AsBytes(head)));
  CheckHead(head);

  const uint64_t object_bytes = size == 0 ? 0 : uint64_t{data[0]} * 64;
  CachedSpans spans;
  uint32_t number = 0;
  for (size_t at = 0; at + kRecordBytes <= size; at += kRecordBytes) {
    std::string record = input.substr(at, kRecordBytes - sizeof(uint32_t));
    AppendLe(record, Crc32c(AsBytes(record).first(kHintsAt)));
    const auto span = DecodeRecord(AsBytes(record), object_bytes);
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
    }
    Require(spans.FreeRecord() <= spans.records() && spans.size() <= spans.records());
  }
  return 0;
}
