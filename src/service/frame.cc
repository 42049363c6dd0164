#include "service/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/buffer.h"
#include "base/byte_reader.h"
#include "base/crc_combine.h"
#include "base/crypto.h"

namespace millrace {

namespace {

constexpr std::string_view kFrameMagic = "MRF2";

std::string EncodeFacts(uint64_t sequence, const Batch& batch) {
  std::string out;
  for (const uint64_t number : {sequence, batch.size, batch.valid, batch.epoch, uint64_t{batch.last_of_epoch}}) {
    AppendVarint(out, number);
  }
  AppendText(out, batch.position.ToString());
  AppendLe(out, batch.digest.high);
  AppendLe(out, batch.digest.low);
  AppendVarint(out, batch.token_count);
  AppendVarint(out, batch.value_bytes);
  AppendVarint(out, batch.odd_images);
  AppendVarint(out, batch.keys.size());
  for (const std::string& key : batch.keys) AppendText(out, key);
  AppendVarint(out, batch.values.size());
  for (const BatchValues& values : batch.values) {
    AppendText(out, values.name);
    AppendVarint(out, static_cast<uint64_t>(values.kind));
    AppendVarint(out, values.rows.size());
    for (const std::string& row : values.rows) AppendVarint(out, row.size());
  }
  AppendVarint(out, batch.quarantined.size());
  for (const QuarantinedSample& sample : batch.quarantined) {
    for (const std::string* text : {&sample.uri, &sample.reason, &sample.replacement}) AppendText(out, *text);
    AppendVarint(out, sample.epoch);
  }
  AppendVarint(out, batch.arrays.size());
  for (const BatchArray& array : batch.arrays) AppendVarint(out, array.bytes.size());
  return out;
}

// Reads how many entries follow. Each entry takes at least one byte.
uint64_t ReadCount(ByteReader& reader) {
  const uint64_t count = reader.Varint();
  if (count > reader.left()) reader.Fail();
  return reader.ok() ? count : 0;
}

std::string ReadText(ByteReader& reader) {
  return std::string(reader.Text(reader.Varint()));
}

std::vector<std::string> ReadTexts(ByteReader& reader) {
  std::vector<std::string> texts;
  const uint64_t count = ReadCount(reader);
  for (uint64_t i = 0; i < count && reader.ok(); ++i) texts.push_back(ReadText(reader));
  return texts;
}

uint64_t ReadLe64(ByteReader& reader) {
  const ByteSpan bytes = reader.Bytes(sizeof(uint64_t));
  return reader.ok() ? LoadLe<uint64_t>(bytes.data()) : 0;
}

// `sizes` receives the sizes of the values, in their order.
bool ReadFacts(ByteSpan bytes, FrameFacts* facts, std::vector<uint64_t>* sizes) {
  ByteReader reader(bytes);
  facts->sequence = reader.Varint();
  facts->size = reader.Varint();
  facts->valid = reader.Varint();
  facts->epoch = reader.Varint();
  facts->last_of_epoch = reader.Varint() != 0;
  const absl::StatusOr<Position> position = Position::Parse(ReadText(reader));
  if (!position.ok()) return false;
  facts->position = *position;
  facts->digest.high = ReadLe64(reader);
  facts->digest.low = ReadLe64(reader);
  facts->token_count = reader.Varint();
  facts->value_bytes = reader.Varint();
  facts->odd_images = reader.Varint();
  facts->keys = ReadTexts(reader);
  const uint64_t values = ReadCount(reader);
  for (uint64_t i = 0; i < values && reader.ok(); ++i) {
    BatchValues& entry = facts->values.emplace_back();
    entry.name = ReadText(reader);
    const uint64_t kind = reader.Varint();
    if (kind > static_cast<uint64_t>(BatchField::Kind::kBoxes)) return false;
    entry.kind = static_cast<BatchField::Kind>(kind);
    entry.rows.resize(ReadCount(reader));
    for (size_t row = 0; row < entry.rows.size() && reader.ok(); ++row) sizes->push_back(reader.Varint());
  }
  const uint64_t quarantined = ReadCount(reader);
  for (uint64_t i = 0; i < quarantined && reader.ok(); ++i) {
    QuarantinedSample& sample = facts->quarantined.emplace_back();
    for (std::string* text : {&sample.uri, &sample.reason, &sample.replacement}) *text = ReadText(reader);
    sample.epoch = reader.Varint();
  }
  const uint64_t arrays = ReadCount(reader);
  for (uint64_t i = 0; i < arrays && reader.ok(); ++i) facts->array_bytes.push_back(reader.Varint());
  return reader.ok() && reader.at_end();
}

absl::Status DamagedFrame(std::string_view what) {
  return absl::DataLossError(fmt::format("a batch arrived damaged ({})", what));
}

/// Holds the fields of the head.
struct FrameHead {
  uint64_t facts_bytes = 0;
  uint64_t content_bytes = 0;  // values and arrays
  uint32_t crc = 0;            // of all
};

absl::StatusOr<FrameHead> ParseHead(ByteSpan bytes) {
  if (bytes.size() < kFrameHeadBytes) return DamagedFrame("it ends within its head");
  if (AsText(bytes.first(kFrameMagic.size())) != kFrameMagic) return DamagedFrame("it does not begin as batches do");
  if (LoadLe<uint32_t>(&bytes[20]) != Crc32c(bytes.first(20))) return DamagedFrame("the checksum of its head differs");
  return FrameHead{LoadLe<uint32_t>(&bytes[4]), LoadLe<uint64_t>(&bytes[8]), LoadLe<uint32_t>(&bytes[16])};
}

// Facts and values, from the beginning of what follows the head and has this checksum. Returns the arrays after them.
absl::StatusOr<ByteSpan> TakeFacts(const FrameHead& head, ByteSpan rest, uint32_t crc, FrameFacts* facts) {
  if (head.crc != crc) return DamagedFrame("its checksum differs");
  std::vector<uint64_t> sizes;
  if (!ReadFacts(rest.first(head.facts_bytes), facts, &sizes)) {
    return DamagedFrame("its facts make no sense");
  }
  ByteSpan left = rest.subspan(head.facts_bytes);
  auto size = sizes.begin();
  for (BatchValues& values : facts->values) {
    for (std::string& row : values.rows) {
      if (*size > left.size()) return DamagedFrame("its values are longer than it is");
      row = AsText(left.first(*size));
      left = left.subspan(*size++);
    }
  }
  return left;
}

}  // namespace

uint64_t ValueBytesOf(const std::vector<BatchValues>& columns) {
  uint64_t bytes = 0;
  for (const BatchValues& values : columns) {
    for (const std::string& row : values.rows) bytes += row.size();
  }
  return bytes;
}

uint32_t ContentsCrc(const Batch& batch) {
  uint32_t crc = 0;
  for (const BatchValues& values : batch.values) {
    for (const std::string& row : values.rows) crc = Crc32c(AsBytes(row), crc);
  }
  for (const BatchArray& array : batch.arrays) crc = Crc32c(array.bytes, crc);
  return crc;
}

std::string EncodeFrame(uint64_t sequence, const Batch& batch, uint32_t crc) {
  const std::string facts = EncodeFacts(sequence, batch);
  uint64_t content_bytes = ValueBytesOf(batch.values);
  for (const BatchArray& array : batch.arrays) content_bytes += array.bytes.size();
  std::string out(kFrameMagic);
  AppendLe(out, static_cast<uint32_t>(facts.size()));
  AppendLe(out, content_bytes);
  AppendLe(out, Crc32cCombine(Crc32c(AsBytes(facts)), crc, content_bytes));
  AppendLe(out, Crc32c(AsBytes(out)));
  return out + facts;
}

absl::StatusOr<WireBatch> ParseFrame(ByteSpan bytes, std::optional<uint32_t> crc) {
  ASSIGN_OR_RETURN(const FrameHead head, ParseHead(bytes));
  const ByteSpan rest = bytes.subspan(kFrameHeadBytes);
  if (head.facts_bytes > rest.size() || head.content_bytes != rest.size() - head.facts_bytes) {
    return DamagedFrame("its length differs");
  }
  WireBatch frame;
  ASSIGN_OR_RETURN(ByteSpan left, TakeFacts(head, rest, crc ? *crc : Crc32c(rest), &frame.facts));
  for (const uint64_t size : frame.facts.array_bytes) {
    if (size > left.size()) return DamagedFrame("its arrays are longer than it is");
    frame.arrays.push_back(left.first(size));
    left = left.subspan(size);
  }
  if (!left.empty()) return DamagedFrame("its arrays are shorter than it is");
  return frame;
}

absl::StatusOr<WireBatch> ParsePlacedFrame(ByteSpan bytes, std::shared_ptr<RowsPlace> rows, uint32_t crc) {
  ASSIGN_OR_RETURN(const FrameHead head, ParseHead(bytes));
  const ByteSpan rest = bytes.subspan(kFrameHeadBytes);
  if (head.facts_bytes > rest.size()) return DamagedFrame("its length differs");
  WireBatch frame;
  ASSIGN_OR_RETURN(ByteSpan left, TakeFacts(head, rest, crc, &frame.facts));
  uint64_t content_bytes = rest.size() - head.facts_bytes - left.size();
  for (const RowsPlace::Array& array : rows->arrays()) {
    content_bytes += array.bytes;
    ByteSpan& here = frame.arrays.emplace_back();
    if (!array.rows.empty()) continue;
    if (array.bytes > left.size()) return DamagedFrame("its length differs");
    here = left.first(array.bytes);
    left = left.subspan(array.bytes);
  }
  const auto has_bytes = [](uint64_t size, const RowsPlace::Array& array) { return size == array.bytes; };
  if (!left.empty() || head.content_bytes != content_bytes ||
      !std::equal(frame.facts.array_bytes.begin(), frame.facts.array_bytes.end(), rows->arrays().begin(),
                  rows->arrays().end(), has_bytes)) {
    return DamagedFrame("its arrays are not those that were asked for");
  }
  frame.rows = std::move(rows);
  return frame;
}

void KeepArrays(WireBatch* frame, std::shared_ptr<void>* memory) {
  uint64_t bytes = 0;
  for (const ByteSpan array : frame->arrays) bytes += array.size();
  const uint64_t values = ValueBytesOf(frame->facts.values);
  if (values == 0 || bytes > values) return;
  const auto kept = std::make_shared<Buffer>(bytes);
  MutableByteSpan left = kept->span();
  for (ByteSpan& array : frame->arrays) {
    const size_t size = array.size();
    if (size > 0) std::memcpy(left.data(), array.data(), size);
    array = left.first(size);
    left = left.subspan(size);
  }
  *memory = kept;
}

}  // namespace millrace
