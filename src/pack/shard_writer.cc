#include "pack/shard_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "shard/tar_writer.h"

namespace millrace {

namespace {

constexpr size_t kFlushBytes = 1 << 20;
constexpr uint64_t kMaxShards = 1'000'000;  // six digits: beyond, names would not sort in order

std::string MemberName(std::string_view key, std::string_view field) {
  return fmt::format("{}.{}", key, field);
}

}  // namespace

ShardWriter::ShardWriter(const Location& destination, uint64_t shard_bytes, std::unique_ptr<ObjectWriter> index,
                         std::stop_token stop)
    : destination_(destination),
      shard_limit_(shard_bytes),
      index_(DataKind::kTar, std::move(index)),
      stop_(std::move(stop)) {}

std::string ShardWriter::ShardName(uint64_t number) {
  return fmt::format("shard-{:06}.tar", number);
}

absl::StatusOr<uint64_t> ShardWriter::PackedBytes(const IndexedSample& sample) const {
  uint64_t bytes = 0;
  for (const IndexedField& field : sample.fields) {
    ASSIGN_OR_RETURN(const uint64_t header, TarHeaderBytes(MemberName(sample.key, field.name), field.length));
    bytes += header + TarPadded(field.length);
  }
  return bytes;
}

absl::Status ShardWriter::BeginSample(const IndexedSample& sample) {
  if (samples_ > 0 && sample.key == key_) {
    return absl::InvalidArgumentError(
        fmt::format("two samples in a row have the key '{}', which in a tar shard would make them one: "
                    "files that differ only behind the first dot of their names cannot be packed apart",
                    sample.key));
  }
  ASSIGN_OR_RETURN(const uint64_t bytes, PackedBytes(sample));
  if (out_ != nullptr &&
      (shard_offset_ + bytes > shard_limit_ || shard_limit_ - shard_offset_ - bytes < kTarEndBytes)) {
    RETURN_IF_ERROR(EndShard());
  }
  if (out_ == nullptr) RETURN_IF_ERROR(OpenShard());
  key_ = sample.key;
  ++samples_;
  fields_.clear();
  next_field_ = 0;
  field_begun_ = false;
  for (const IndexedField& field : sample.fields) {
    if (!field.is_inline) {
      fields_.push_back(field);
      continue;
    }
    RETURN_IF_ERROR(BeginField(field));
    RETURN_IF_ERROR(Append(AsBytes(field.inline_text)));
    std::string padding;
    AppendTarPadding(padding, field.length);
    RETURN_IF_ERROR(Append(AsBytes(padding)));
  }
  std::sort(fields_.begin(), fields_.end(), [](const IndexedField& a, const IndexedField& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.length < b.length;
  });
  return absl::OkStatus();
}

absl::Status ShardWriter::BeginField(const IndexedField& field) {
  std::string header;
  RETURN_IF_ERROR(AppendTarHeader(header, MemberName(key_, field.name), field.length));
  return Append(AsBytes(header));
}

absl::Status ShardWriter::Add(const IndexedSample& sample, uint64_t offset, ByteSpan bytes, bool last) {
  if (offset == 0) RETURN_IF_ERROR(BeginSample(sample));
  const uint64_t end = offset + bytes.size();
  for (; next_field_ < fields_.size(); ++next_field_) {
    const IndexedField& field = fields_[next_field_];
    if (!field_begun_) RETURN_IF_ERROR(BeginField(field));
    field_begun_ = true;
    const uint64_t from = std::max(offset, field.offset);
    const uint64_t to = std::min(end, field.offset + field.length);
    if (from < to) RETURN_IF_ERROR(Append(bytes.subspan(from - offset, to - from)));
    if (field.offset + field.length > end) break;  // its rest comes with the next part
    std::string padding;
    AppendTarPadding(padding, field.length);
    RETURN_IF_ERROR(Append(AsBytes(padding)));
    field_begun_ = false;
  }
  if (last && next_field_ < fields_.size())
    return absl::InternalError(fmt::format("sample '{}' ended before its fields did", key_));
  return absl::OkStatus();
}

absl::Status ShardWriter::OpenShard() {
  if (shards_ == kMaxShards) {
    return absl::InvalidArgumentError(fmt::format("more than {} shards: raise --shard-size", kMaxShards));
  }
  PutOptions options;
  options.content_type = "application/x-tar";
  options.stop = stop_;
  ASSIGN_OR_RETURN(out_, destination_.store->Write(destination_.Key(ShardName(shards_)), std::move(options)));
  shard_offset_ = 0;
  return absl::OkStatus();
}

absl::Status ShardWriter::EndShard() {
  std::string end;
  AppendTarEnd(end);
  RETURN_IF_ERROR(Append(AsBytes(end)));
  RETURN_IF_ERROR(Flush());
  RETURN_IF_ERROR(scanner_.Finish([this](const ShardSample& sample) { return AddToIndex(sample); }));
  scanner_ = {};
  ASSIGN_OR_RETURN(const ObjectInfo info, out_->Commit());
  out_.reset();
  RETURN_IF_ERROR(index_.AddObject({.key = ShardName(shards_), .size = shard_offset_, .etag = info.etag}));
  ++shards_;
  total_bytes_ += shard_offset_;
  return absl::OkStatus();
}

absl::Status ShardWriter::Append(ByteSpan bytes) {
  buffer_.append(AsText(bytes));
  shard_offset_ += bytes.size();
  return buffer_.size() >= kFlushBytes ? Flush() : absl::OkStatus();
}

absl::Status ShardWriter::Flush() {
  RETURN_IF_ERROR(scanner_.Feed(AsBytes(buffer_), [this](const ShardSample& sample) { return AddToIndex(sample); }));
  RETURN_IF_ERROR(out_->Append(AsBytes(buffer_)));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status ShardWriter::AddToIndex(const ShardSample& sample) {
  index_fields_.clear();
  for (const ShardField& field : sample.fields) {
    index_fields_.push_back({.name = field.name, .offset = field.offset, .length = field.length});
  }
  return index_.AddSample({.key = sample.key, .fields = index_fields_, .crc32c = sample.crc32c, .label = sample.label});
}

absl::StatusOr<IndexSummary> ShardWriter::Finish() {
  if (out_ != nullptr) RETURN_IF_ERROR(EndShard());
  return index_.Finish();
}

}  // namespace millrace
