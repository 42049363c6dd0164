#include "service/frame.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/byte_reader.h"
#include "base/crypto.h"

namespace millrace {

namespace {

constexpr std::string_view kFrameMagic = "MRF1";

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
  AppendVarint(out, batch.keys.size());
  for (const std::string& key : batch.keys) AppendText(out, key);
  AppendVarint(out, batch.values.size());
  for (const BatchValues& values : batch.values) {
    AppendText(out, values.name);
    AppendVarint(out, static_cast<uint64_t>(values.kind));
    AppendVarint(out, values.rows.size());
    for (const std::string& row : values.rows) AppendText(out, row);
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

// How many entries follow; each takes a byte at least.
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

bool ReadFacts(ByteSpan bytes, FrameFacts* facts) {
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
  facts->keys = ReadTexts(reader);
  const uint64_t values = ReadCount(reader);
  for (uint64_t i = 0; i < values && reader.ok(); ++i) {
    BatchValues& entry = facts->values.emplace_back();
    entry.name = ReadText(reader);
    const uint64_t kind = reader.Varint();
    if (kind > static_cast<uint64_t>(BatchField::Kind::kBoxes)) return false;
    entry.kind = static_cast<BatchField::Kind>(kind);
    entry.rows = ReadTexts(reader);
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

}  // namespace

std::string EncodeFrame(uint64_t sequence, const Batch& batch) {
  const std::string facts = EncodeFacts(sequence, batch);
  uint64_t array_bytes = 0;
  uint32_t crc = Crc32c(AsBytes(facts));
  for (const BatchArray& array : batch.arrays) {
    array_bytes += array.bytes.size();
    crc = Crc32c(array.bytes, crc);
  }
  std::string out(kFrameMagic);
  AppendLe(out, static_cast<uint32_t>(facts.size()));
  AppendLe(out, array_bytes);
  AppendLe(out, crc);
  AppendLe(out, Crc32c(AsBytes(out)));
  return out + facts;
}

absl::StatusOr<WireBatch> ParseFrame(ByteSpan bytes) {
  const auto damaged = [](std::string_view what) {
    return absl::DataLossError(fmt::format("a batch arrived damaged ({})", what));
  };
  if (bytes.size() < kFrameHeadBytes) return damaged("it ends within its head");
  if (AsText(bytes.first(kFrameMagic.size())) != kFrameMagic) return damaged("it does not begin as batches do");
  if (LoadLe<uint32_t>(&bytes[20]) != Crc32c(bytes.first(20))) return damaged("the checksum of its head differs");
  const uint64_t facts_bytes = LoadLe<uint32_t>(&bytes[4]);
  const uint64_t array_bytes = LoadLe<uint64_t>(&bytes[8]);
  const ByteSpan rest = bytes.subspan(kFrameHeadBytes);
  if (facts_bytes > rest.size() || array_bytes != rest.size() - facts_bytes) return damaged("its length differs");
  if (LoadLe<uint32_t>(&bytes[16]) != Crc32c(rest)) return damaged("its checksum differs");
  WireBatch frame;
  if (!ReadFacts(rest.first(facts_bytes), &frame.facts)) return damaged("what it says of itself makes no sense");
  ByteSpan left = rest.subspan(facts_bytes);
  for (const uint64_t size : frame.facts.array_bytes) {
    if (size > left.size()) return damaged("its arrays are longer than it is");
    frame.arrays.push_back(left.first(size));
    left = left.subspan(size);
  }
  if (!left.empty()) return damaged("its arrays are shorter than it is");
  return frame;
}

}  // namespace millrace
