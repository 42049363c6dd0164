#include "pack/fragment.h"

#include <utility>

#include "base/crypto.h"

namespace millrace {

namespace {

constexpr std::string_view kMagic{"MRPACK1\n", 8};

void AppendText(std::string& out, std::string_view text) {
  AppendVarint(out, text.size());
  out.append(text);
}

absl::Status Damaged() {
  return absl::DataLossError("the fragment of the index is damaged; delete it and run the same command again");
}

// Reads on; after a mistake ok() is false and everything reads as nothing.
class Reader {
 public:
  explicit Reader(ByteSpan bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && at_ == bytes_.size(); }

  uint64_t Number() {
    uint64_t value = 0;
    ok_ = ok_ && ReadVarint(bytes_, &at_, &value);
    return ok_ ? value : 0;
  }
  std::string_view Raw(uint64_t length) {
    ok_ = ok_ && length <= bytes_.size() - at_;
    if (!ok_) return {};
    const std::string_view text = AsText(bytes_.subspan(at_, length));
    at_ += length;
    return text;
  }
  std::string Text() { return std::string(Raw(Number())); }
  /// Of things that take some bytes each, so that a wrong number costs no memory.
  uint64_t Count() {
    const uint64_t count = Number();
    ok_ = ok_ && count <= bytes_.size() - at_;
    return ok_ ? count : 0;
  }

 private:
  const ByteSpan bytes_;
  size_t at_ = 0;
  bool ok_ = true;
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
  fragment.shard.key = reader.Text();
  fragment.shard.size = reader.Number();
  fragment.shard.etag = reader.Text();
  for (uint64_t left = reader.Count(); left > 0; --left) {
    SkippedSample& skipped = fragment.skipped.emplace_back();
    skipped.key = reader.Text();
    skipped.why = reader.Text();
  }
  fragment.samples = reader.Count();
  ShardSample sample;
  for (uint64_t i = 0; i < fragment.samples; ++i) {
    sample.key = reader.Text();
    const uint64_t fields = reader.Count();
    if (fields > kMaxSampleFields) return Damaged();
    sample.fields.resize(fields);
    for (ShardField& field : sample.fields) {
      field.name = reader.Text();
      field.encoding = reader.Text();
      field.offset = reader.Number();
      field.length = reader.Number();
    }
    const std::string_view crc = reader.Raw(kCrc);
    sample.crc32c = reader.ok() ? LoadLe<uint32_t>(crc.data()) : 0;
    sample.label = reader.Text();
    if (!reader.ok()) return Damaged();
    RETURN_IF_ERROR(each(sample));
  }
  if (!reader.at_end()) return Damaged();
  return fragment;
}

}  // namespace millrace
