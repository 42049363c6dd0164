#include "shard/tf_example.h"

#include <bit>
#include <unordered_map>

#include "base/byte_reader.h"
#include "shard/shard_sample.h"

namespace millrace {

namespace {

using Kind = TfValues::Kind;

// These are the wire types of protocol buffers that an Example uses.
constexpr uint32_t kVarint = 0;
constexpr uint32_t kDelimited = 2;
constexpr uint32_t kFixed32 = 5;

constexpr uint32_t Tag(uint32_t field, uint32_t wire_type) {
  return field << 3 | wire_type;
}

// Walks the fields of a message.
class WireReader : public ByteReader {
 public:
  using ByteReader::ByteReader;

  bool More() const { return ok() && !at_end(); }
  ByteSpan Delimited() { return Bytes(Varint()); }
  float Float() { return std::bit_cast<float>(U32()); }
};

bool AddBytes(ByteSpan list, TfFeature* feature, TfValues* values) {
  WireReader reader(list);
  while (reader.More()) {
    if (reader.Varint() != Tag(1, kDelimited)) return false;
    feature->only = AsText(reader.Delimited());
    if (!reader.ok()) return false;
    ++feature->count;
    if (values != nullptr) values->bytes.push_back(feature->only);
  }
  return reader.ok();
}

// Adds numbers, packed or one by one; `read_one` takes one from a reader.
template <typename ReadOne>
bool AddNumbers(ByteSpan list, uint32_t wire_type, ReadOne read_one, TfFeature* feature) {
  const auto add = [&](WireReader& from) {
    read_one(from);
    feature->count += from.ok() ? 1 : 0;
    return from.ok();
  };
  WireReader reader(list);
  while (reader.More()) {
    const uint64_t tag = reader.Varint();
    if (tag == Tag(1, kDelimited)) {
      WireReader packed(reader.Delimited());
      while (packed.More()) {
        if (!add(packed)) return false;
      }
    } else if (tag != Tag(1, wire_type) || !add(reader)) {
      return false;
    }
  }
  return reader.ok();
}

bool AddFloats(ByteSpan list, TfFeature* feature, TfValues* values) {
  const auto read_one = [values](WireReader& from) {
    const float value = from.Float();
    if (from.ok() && values != nullptr) values->floats.push_back(value);
  };
  return AddNumbers(list, kFixed32, read_one, feature);
}

bool AddInts(ByteSpan list, TfFeature* feature, TfValues* values) {
  const auto read_one = [values](WireReader& from) {
    const uint64_t value = from.Varint();
    if (from.ok() && values != nullptr) values->ints.push_back(static_cast<int64_t>(value));
  };
  return AddNumbers(list, kVarint, read_one, feature);
}

// A Feature holds one list. Where it says several, the last kind counts, and lists of one kind are joined.
bool AddFeature(ByteSpan message, TfFeature* feature, TfValues* values) {
  WireReader reader(message);
  while (reader.More()) {
    const uint64_t tag = reader.Varint();
    Kind kind = Kind::kNone;
    if (tag == Tag(1, kDelimited)) kind = Kind::kBytes;
    if (tag == Tag(2, kDelimited)) kind = Kind::kFloats;
    if (tag == Tag(3, kDelimited)) kind = Kind::kInts;
    if (kind == Kind::kNone) return false;
    if (kind != feature->kind) {
      feature->kind = kind;
      feature->count = 0;
      if (values != nullptr) *values = TfValues();
    }
    const ByteSpan list = reader.Delimited();
    if (!reader.ok()) return false;
    const bool added = kind == Kind::kBytes    ? AddBytes(list, feature, values)
                       : kind == Kind::kFloats ? AddFloats(list, feature, values)
                                               : AddInts(list, feature, values);
    if (!added) return false;
  }
  return reader.ok();
}

}  // namespace

bool ParseTfEntry(ByteSpan entry, TfFeature* feature, TfValues* values) {
  *feature = TfFeature{.entry = entry};
  if (values != nullptr) *values = TfValues();
  WireReader reader(entry);
  while (reader.More()) {
    const uint64_t tag = reader.Varint();
    const ByteSpan bytes = reader.Delimited();
    if (!reader.ok()) return false;
    if (tag == Tag(1, kDelimited)) {
      feature->name = AsText(bytes);
    } else if (tag != Tag(2, kDelimited) || !AddFeature(bytes, feature, values)) {
      return false;
    }
  }
  if (values != nullptr) {
    values->kind = feature->kind;
    values->count = feature->count;
  }
  return reader.ok();
}

TfParsed ParseTfExample(ByteSpan record, std::vector<TfFeature>* features) {
  features->clear();
  std::unordered_map<std::string_view, size_t> last;  // entry of that name, among all
  WireReader example(record);
  while (example.More()) {
    if (example.Varint() != Tag(1, kDelimited)) return TfParsed::kOther;
    WireReader map(example.Delimited());
    while (map.More()) {
      if (map.Varint() != Tag(1, kDelimited)) return TfParsed::kOther;
      TfFeature feature;
      const ByteSpan entry = map.Delimited();
      if (!map.ok() || !ParseTfEntry(entry, &feature, nullptr)) return TfParsed::kOther;
      if (features->size() == kMaxSampleFields) return TfParsed::kTooMany;
      last[feature.name] = features->size();
      features->push_back(feature);
    }
    if (!map.ok()) return TfParsed::kOther;
  }
  if (!example.ok()) return TfParsed::kOther;
  size_t kept = 0;
  for (size_t i = 0; i < features->size(); ++i) {
    const TfFeature& feature = (*features)[i];
    if (feature.kind == Kind::kNone || last[feature.name] != i) continue;
    (*features)[kept++] = feature;
  }
  features->resize(kept);
  return kept > 0 ? TfParsed::kExample : TfParsed::kOther;
}

}  // namespace millrace
