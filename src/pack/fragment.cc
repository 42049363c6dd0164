#include "pack/fragment.h"

#include <utility>

#include "base/byte_reader.h"
#include "base/crypto.h"

namespace millrace {

namespace {

constexpr std::string_view kMagic{"MRPACK1\n", 8};

absl::Status Damaged() {
  return absl::DataLossError("the fragment of the index is damaged; delete it and run the same command again");
}

class Reader : public ByteReader {
 public:
  using ByteReader::ByteReader;

  std::string String() { return std::string(Text(Varint())); }
  // Counts things that take some bytes each, so that a wrong number costs no memory.
  uint64_t Count() {
    const uint64_t count = Varint();
    if (count > left()) Fail();
    return ok() ? count : 0;
  }
};

}  // namespace

void FragmentWriter::Add(const ShardSample& sample) {
  AppendText(samples_, sample.key);
  AppendVarint(samples_, sample.fields.size());
  for (const ShardField& field : sample.fields) {
    AppendText(samples_, field.name);
    AppendText(samples_, field.encoding);
    AppendVarint(samples_, field.offset);
    AppendVarint(samples_, field.length);
  }
  AppendLe(samples_, sample.crc32c);
  AppendText(samples_, sample.label);
  ++count_;
}

std::string FragmentWriter::Finish(const IndexedObject& shard, const std::vector<SkippedSample>& skipped) const {
  std::string out(kMagic);
  AppendText(out, shard.key);
  AppendVarint(out, shard.size);
  AppendText(out, shard.etag);
  AppendVarint(out, skipped.size());
  for (const SkippedSample& sample : skipped) {
    AppendText(out, sample.key);
    AppendText(out, sample.why);
  }
  AppendVarint(out, count_);
  out.append(samples_);
  AppendLe(out, Crc32c(AsBytes(out)));
  return out;
}

absl::StatusOr<Fragment> ReadFragment(ByteSpan bytes, ShardSink each) {
  constexpr size_t kCrc = sizeof(uint32_t);
  if (bytes.size() < kMagic.size() + kCrc || AsText(bytes.first(kMagic.size())) != kMagic) return Damaged();
  const ByteSpan body = bytes.first(bytes.size() - kCrc);
  if (Crc32c(body) != LoadLe<uint32_t>(bytes.data() + body.size())) return Damaged();
  Reader reader(body.subspan(kMagic.size()));
  Fragment fragment;
  fragment.shard.key = reader.String();
  fragment.shard.size = reader.Varint();
  fragment.shard.etag = reader.String();
  for (uint64_t left = reader.Count(); left > 0; --left) {
    SkippedSample& skipped = fragment.skipped.emplace_back();
    skipped.key = reader.String();
    skipped.why = reader.String();
  }
  fragment.samples = reader.Count();
  ShardSample sample;
  for (uint64_t i = 0; i < fragment.samples; ++i) {
    sample.key = reader.String();
    const uint64_t fields = reader.Count();
    if (fields > kMaxSampleFields) return Damaged();
    sample.fields.resize(fields);
    for (ShardField& field : sample.fields) {
      field.name = reader.String();
      field.encoding = reader.String();
      field.offset = reader.Varint();
      field.length = reader.Varint();
    }
    sample.crc32c = reader.U32();
    sample.label = reader.String();
    if (!reader.ok()) return Damaged();
    RETURN_IF_ERROR(each(sample));
  }
  if (!reader.ok() || !reader.at_end()) return Damaged();
  return fragment;
}

}  // namespace millrace
