#include "shard/mds_scanner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/crypto.h"
#include "shard/field_value.h"
#include "shard/sample_name.h"

namespace millrace {

namespace {

constexpr uint64_t kNumberBytes = sizeof(uint32_t);

absl::Status At(uint64_t offset, const absl::Status& status) {
  return Annotate(status, fmt::format("offset {}", offset));
}

}  // namespace

uint64_t MdsScanner::NextBytes() const {
  switch (state_) {
    case State::kCount:
      return kNumberBytes;
    case State::kOffsets:
      return (samples_ + 1) * kNumberBytes;
    case State::kColumns:
      return offsets_.front() - (samples_ + 2) * kNumberBytes;
    case State::kSamples:
      break;
  }
  return offsets_[next_ + 1] - offsets_[next_];
}

absl::Status MdsScanner::Feed(ByteSpan chunk, ShardSink sink) {
  bytes_.Begin(chunk);
  while (true) {
    const uint64_t offset = bytes_.position();
    if (state_ == State::kSamples && next_ == samples_) {
      if (!bytes_.Take(1)) return absl::OkStatus();
      return absl::DataLossError(fmt::format("offset {}: bytes follow the last sample of this MDS shard", offset));
    }
    const std::optional<ByteSpan> bytes = bytes_.Take(NextBytes());
    if (!bytes) return absl::OkStatus();
    RETURN_IF_ERROR(Read(offset, *bytes, sink));
  }
}

absl::Status MdsScanner::Read(uint64_t offset, ByteSpan bytes, ShardSink sink) {
  switch (state_) {
    case State::kCount:
      return ReadCount(bytes);
    case State::kOffsets:
      return ReadOffsets(bytes);
    case State::kColumns:
      return ReadColumns(offset, bytes);
    case State::kSamples:
      break;
  }
  return ReadSample(offset, bytes, sink);
}

absl::Status MdsScanner::ReadCount(ByteSpan bytes) {
  samples_ = LoadLe<uint32_t>(bytes.data());
  if (samples_ > kMaxMdsSamples) {
    return absl::InvalidArgumentError(
        fmt::format("offset 0: an MDS shard of {} samples (at most {} are read), or no MDS shard at all", samples_,
                    kMaxMdsSamples));
  }
  state_ = State::kOffsets;
  return absl::OkStatus();
}

absl::Status MdsScanner::ReadOffsets(ByteSpan bytes) {
  offsets_.resize(samples_ + 1);
  std::memcpy(offsets_.data(), bytes.data(), bytes.size());
  const uint64_t end = kNumberBytes + bytes.size();
  if (offsets_.front() < end || offsets_.front() - end > kMaxMdsColumnsBytes) {
    return absl::DataLossError(fmt::format("offset {}: the first sample cannot begin at {}; this is not an MDS shard",
                                           kNumberBytes, offsets_.front()));
  }
  for (uint64_t i = 0; i < samples_; ++i) {
    if (offsets_[i] > offsets_[i + 1]) {
      return absl::DataLossError(fmt::format("offset {}: sample {} would begin at {} and end at {}",
                                             (i + 1) * kNumberBytes, i, offsets_[i], offsets_[i + 1]));
    }
    if (offsets_[i + 1] - offsets_[i] > kMaxRecordBytes) {
      return absl::InvalidArgumentError(fmt::format("offset {}: a sample of {} bytes; at most {} are read", offsets_[i],
                                                    offsets_[i + 1] - offsets_[i], kMaxRecordBytes));
    }
  }
  state_ = State::kColumns;
  return absl::OkStatus();
}

absl::Status MdsScanner::ReadColumns(uint64_t offset, ByteSpan json) {
  absl::StatusOr<std::vector<MdsColumn>> columns = ParseMdsColumns(AsText(json));
  if (!columns.ok()) return At(offset, columns.status());
  for (MdsColumn& column : *columns) {
    absl::StatusOr<std::string> encoding = EncodingOfMds(column.encoding);
    if (!encoding.ok()) {
      return At(offset, Annotate(encoding.status(), fmt::format("the column '{}' has the encoding", column.name)));
    }
    if (column.fixed_size == 0) sizes_bytes_ += kNumberBytes;
    fixed_bytes_ += column.fixed_size;
    const bool text = *encoding == encoding::kText || *encoding == encoding::kBytes;
    const bool is_key = column.name == kKeyColumn && text && columns->size() > 1;
    columns_.push_back({.name = std::move(column.name),
                        .encoding = *std::move(encoding),
                        .fixed_size = column.fixed_size,
                        .is_key = is_key});
  }
  state_ = State::kSamples;
  return absl::OkStatus();
}

absl::Status MdsScanner::ReadSample(uint64_t offset, ByteSpan bytes, ShardSink sink) {
  const auto torn = [&] {
    return absl::DataLossError(fmt::format(
        "offset {}: the sizes of the columns do not add up to the {} bytes of sample {}", offset, bytes.size(), next_));
  };
  if (bytes.size() < sizes_bytes_) return torn();
  const std::byte* size_at = bytes.data();
  uint64_t begin = sizes_bytes_;  // of the column
  sample_.key.clear();
  sample_.label.clear();
  sample_.fields.clear();
  for (const Column& column : columns_) {
    uint64_t size = column.fixed_size;
    if (size == 0) {
      size = LoadLe<uint32_t>(size_at);
      size_at += kNumberBytes;
    }
    if (size > bytes.size() - begin) return torn();
    const ByteSpan stored = bytes.subspan(begin, size);
    if (column.is_key && size > 0 && size <= kMaxNameBytes) {
      sample_.key = AsText(stored);
    } else {
      sample_.fields.push_back(
          {.name = column.name, .offset = offset + begin, .length = size, .encoding = column.encoding});
      if (column.name == kClassField) sample_.label = ClassNumber(column.encoding, stored);
    }
    begin += size;
  }
  if (begin != bytes.size()) return torn();
  const ShardField& last = sample_.fields.back();
  sample_.span = {.offset = sample_.fields.front().offset, .length = 0};
  sample_.span.length = last.offset + last.length - sample_.span.offset;
  sample_.crc32c = Crc32c(bytes.subspan(sample_.span.offset - offset, sample_.span.length));
  ++next_;
  return sink(sample_);
}

absl::StatusOr<bool> MdsScanner::FeedHead(ByteSpan first_bytes) {
  bytes_.Begin(first_bytes);
  while (state_ != State::kSamples) {
    const uint64_t offset = bytes_.position();
    const std::optional<ByteSpan> bytes = bytes_.Take(NextBytes());
    if (!bytes) return false;
    RETURN_IF_ERROR(Read(offset, *bytes, [](const ShardSample&) { return absl::OkStatus(); }));
  }
  return true;
}

bool MdsScanner::has_class() const {
  return std::any_of(columns_.begin(), columns_.end(), [](const Column& column) { return column.name == kClassField; });
}

absl::Status MdsScanner::Outline(uint64_t shard_bytes, ShardSink sink) {
  if (sizes_bytes_ > kNumberBytes)
    return absl::InvalidArgumentError("several of its columns have no fixed size, so each sample must be looked into");
  if (std::any_of(columns_.begin(), columns_.end(), [](const Column& column) { return column.is_key; }))
    return absl::InvalidArgumentError("its samples hold their keys, so each of them must be looked into");
  if (offsets_.back() != shard_bytes) {
    return absl::DataLossError(
        fmt::format("its samples would end at {}, and it has {} bytes", offsets_.back(), shard_bytes));
  }
  for (uint64_t i = 0; i < samples_; ++i) RETURN_IF_ERROR(OutlineSample(i, sink));
  return absl::OkStatus();
}

// The one column without a fixed size has what the others leave.
absl::Status MdsScanner::OutlineSample(uint64_t number, ShardSink sink) {
  const uint64_t bytes = offsets_[number + 1] - offsets_[number];
  const uint64_t known = sizes_bytes_ + fixed_bytes_;
  if (bytes < known || (sizes_bytes_ == 0 && bytes != known)) {
    return absl::DataLossError(
        fmt::format("offset {}: the sizes of the columns do not add up to the {} bytes of sample {}", offsets_[number],
                    bytes, number));
  }
  sample_.key.clear();
  sample_.label.clear();
  sample_.fields.clear();
  uint64_t begin = offsets_[number] + sizes_bytes_;
  for (const Column& column : columns_) {
    const uint64_t size = column.fixed_size == 0 ? bytes - known : column.fixed_size;
    sample_.fields.push_back({.name = column.name, .offset = begin, .length = size, .encoding = column.encoding});
    begin += size;
  }
  const uint64_t first = sample_.fields.front().offset;
  sample_.span = {.offset = first, .length = begin - first};
  sample_.crc32c = 0;
  return sink(sample_);
}

absl::Status MdsScanner::Finish(ShardSink /*sink*/) {
  if (state_ == State::kSamples && next_ == samples_) return absl::OkStatus();
  return absl::DataLossError(fmt::format("offset {}: the MDS shard is truncated: {} of {} samples are there",
                                         bytes_.position(), next_, samples_));
}

}  // namespace millrace
