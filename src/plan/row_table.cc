#include "plan/row_table.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/crypto.h"
#include "fmt/format.h"

namespace millrace {
namespace {

constexpr std::string_view kMagic{"MRPACKS\0", 8};
constexpr std::string_view kEndMagic{"MRPACKS\x1a", 8};
constexpr uint32_t kTableVersion = 1;
constexpr uint64_t kHeadBytes = 16;
constexpr uint64_t kBlockHeadBytes = 8;
constexpr uint64_t kMaxBlockBytes = uint64_t{1} << 30;
constexpr size_t kFootNumbers = 11;
constexpr uint64_t kFootBytes = kFootNumbers * 8 + 4 + 8;
constexpr uint64_t kMaxSamples = uint64_t{1} << 48;
constexpr uint64_t kMaxTokens = uint64_t{1} << 60;

absl::Status Damaged(std::string_view what) {
  return absl::DataLossError(fmt::format("{} damaged", what));
}

/// Returns the checksum of a group. The number is part of it, so that a damaged table is noticed, too.
uint32_t BlockCrc(uint64_t group, ByteSpan payload) {
  std::array<std::byte, 8> number{};
  StoreLe(number.data(), group);
  return Crc32c(payload, Crc32c(number));
}

/// Reads numbers, each within a bound; after the first that is not, `ok` stays false.
struct NumberReader {
  ByteSpan bytes;
  size_t at = 0;
  bool ok = true;

  uint64_t Next(uint64_t least, uint64_t most) {
    uint64_t number = 0;
    ok = ok && ReadVarint(bytes, &at, &number) && number >= least && number <= most;
    return ok ? number : 0;
  }
};

uint64_t ZigZag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
int64_t UnZigZag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

// Returns false when segments of a sample overlap: they are read in this order, each from where the one before has
// ended.
bool AddStoredOrder(RowGroup* group) {
  group->stored.resize(group->segments.size());
  for (uint32_t row = 0; row < group->rows(); ++row) {
    for (uint32_t segment = group->begins[row]; segment < group->begins[row + 1]; ++segment)
      group->stored[segment] = {segment, row};
  }
  const std::vector<Segment>& segments = group->segments;
  std::sort(group->stored.begin(), group->stored.end(), [&segments](const auto& a, const auto& b) {
    return std::tie(segments[a.segment].sample, segments[a.segment].offset, a.segment) <
           std::tie(segments[b.segment].sample, segments[b.segment].offset, b.segment);
  });
  group->places.resize(segments.size());
  const Segment* before = nullptr;
  for (uint32_t place = 0; place < group->stored.size(); ++place) {
    const Segment& segment = segments[group->stored[place].segment];
    if (before != nullptr && before->sample == segment.sample && segment.offset < before->offset + before->length)
      return false;
    before = &segment;
    group->places[group->stored[place].segment] = place;
  }
  return true;
}

}  // namespace

RowTableWriter::RowTableWriter(const RowSpec& spec, uint64_t key, uint64_t samples, Append append)
    : spec_(spec), key_(key), samples_(samples), append_(std::move(append)) {}

absl::Status RowTableWriter::Write(std::string_view bytes) {
  written_ += bytes.size();
  return append_(AsBytes(bytes));
}

absl::Status RowTableWriter::Add(std::span<const Segment> row) {
  if (payload_.size() > kMaxBlockBytes) {
    return absl::ResourceExhaustedError(
        fmt::format("{} rows of {} tokens hold too many samples; choose shorter rows", spec_.group, spec_.length));
  }
  AppendVarint(payload_, row.size());
  for (const Segment& segment : row) {
    const uint64_t step = ZigZag(static_cast<int64_t>(segment.sample - last_sample_));
    AppendVarint(payload_, step * 2 + (segment.offset != 0 ? 1 : 0));
    if (segment.offset != 0) AppendVarint(payload_, segment.offset);
    AppendVarint(payload_, segment.length);
    last_sample_ = segment.sample;
  }
  return ++rows_in_group_ == spec_.group ? CloseGroup() : absl::OkStatus();
}

absl::Status RowTableWriter::CloseGroup() {
  if (rows_in_group_ == 0) return absl::OkStatus();
  std::string head;
  if (groups_.empty()) {
    head.append(kMagic);
    AppendLe(head, kTableVersion);
    AppendLe(head, Crc32c(AsBytes(head)));
  }
  groups_.push_back(written_ + head.size());
  AppendLe(head, BlockCrc(groups_.size() - 1, AsBytes(payload_)));
  AppendLe(head, static_cast<uint32_t>(payload_.size()));
  RETURN_IF_ERROR(Write(head));
  RETURN_IF_ERROR(Write(payload_));
  payload_.clear();
  rows_in_group_ = 0;
  last_sample_ = 0;
  return absl::OkStatus();
}

absl::Status RowTableWriter::Finish(const RowCounts& counts) {
  RETURN_IF_ERROR(CloseGroup());
  std::string tail;
  if (groups_.empty()) {
    tail.append(kMagic);
    AppendLe(tail, kTableVersion);
    AppendLe(tail, Crc32c(AsBytes(tail)));
  }
  const uint64_t table = written_ + tail.size();
  for (const uint64_t group : groups_) AppendLe(tail, group);
  std::string foot;
  for (const uint64_t number : {key_, samples_, spec_.length, spec_.group, counts.rows, counts.tokens, counts.segments,
                                counts.samples, counts.truncated, counts.empty, table}) {
    AppendLe(foot, number);
  }
  AppendLe(foot, Crc32c(AsBytes(foot)));
  foot.append(kEndMagic);
  return Write(tail + foot);
}

absl::StatusOr<RowTable> RowTable::Open(ByteSpan bytes, uint64_t key) {
  if (bytes.size() < kHeadBytes + kFootBytes || AsText(bytes.first(kMagic.size())) != kMagic) {
    return absl::DataLossError("not a table of rows");
  }
  if (LoadLe<uint32_t>(bytes.data() + 12) != Crc32c(bytes.first(12))) return Damaged("its head is");
  if (const auto version = LoadLe<uint32_t>(bytes.data() + 8); version != kTableVersion) {
    return absl::FailedPreconditionError(
        fmt::format("a table of rows of version {}; this Millrace reads version {}", version, kTableVersion));
  }
  const ByteSpan foot = bytes.last(kFootBytes);
  if (AsText(foot.last(kEndMagic.size())) != kEndMagic) return Damaged("it is cut short or");
  if (LoadLe<uint32_t>(foot.data() + kFootNumbers * 8) != Crc32c(foot.first(kFootNumbers * 8))) {
    return Damaged("its foot is");
  }
  std::array<uint64_t, kFootNumbers> numbers{};
  for (size_t i = 0; i < kFootNumbers; ++i) numbers[i] = LoadLe<uint64_t>(foot.data() + i * 8);
  RowTable table;
  RowCounts& counts = table.counts_;
  table.bytes_ = bytes;
  std::tie(table.key_, table.samples_, table.length_, table.group_, counts.rows, counts.tokens, counts.segments,
           counts.samples, counts.truncated, counts.empty, table.table_) = std::tuple_cat(numbers);
  if (table.key_ != key) return absl::FailedPreconditionError("a table of other rows");
  // A segment takes two bytes at least, so the size bounds all counts.
  const bool sound = table.samples_ <= kMaxSamples && table.length_ >= 1 && table.length_ <= RowSpec::kMaxLength &&
                     table.group_ >= 1 && table.group_ <= RowSpec::kMaxGroup && counts.rows <= counts.segments &&
                     counts.segments <= bytes.size() && counts.tokens <= counts.rows * table.length_ &&
                     counts.samples <= table.samples_ && counts.empty <= table.samples_ &&
                     counts.truncated <= kMaxTokens;
  if (!sound) return Damaged("its foot is");
  table.groups_ = (counts.rows + table.group_ - 1) / table.group_;
  const uint64_t end = bytes.size() - kFootBytes;
  if (table.table_ < kHeadBytes || table.table_ > end || (end - table.table_) != table.groups_ * 8) {
    return Damaged("its foot is");
  }
  return table;
}

absl::StatusOr<RowGroup> RowTable::ReadGroup(uint64_t number) const {
  const absl::Status damaged = Damaged(fmt::format("group {} is", number));
  const auto at = LoadLe<uint64_t>(bytes_.data() + table_ + number * 8);
  if (at < kHeadBytes || at > table_ || table_ - at < kBlockHeadBytes) return damaged;
  const auto length = LoadLe<uint32_t>(bytes_.data() + at + 4);
  if (length > table_ - at - kBlockHeadBytes) return damaged;
  NumberReader reader{bytes_.subspan(at + kBlockHeadBytes, length)};
  if (LoadLe<uint32_t>(bytes_.data() + at) != BlockCrc(number, reader.bytes)) return damaged;

  RowGroup group;
  group.first_row = number * group_;
  const uint64_t rows = std::min(group_, size() - group.first_row);
  group.begins.reserve(rows + 1);
  group.segments.reserve(length / 3);
  group.begins.push_back(0);
  uint64_t sample = 0;
  for (uint64_t row = 0; row < rows && reader.ok; ++row) {
    uint64_t left = length_;
    for (uint64_t segments = reader.Next(1, length_); segments > 0 && reader.ok; --segments) {
      const uint64_t step = reader.Next(0, UINT64_MAX);
      sample += static_cast<uint64_t>(UnZigZag(step / 2));
      const uint64_t offset = step % 2 != 0 ? reader.Next(1, kMaxTokens) : 0;
      const uint64_t tokens = reader.Next(1, left);
      reader.ok = reader.ok && sample < samples_;
      left -= tokens;
      group.segments.push_back({sample, offset, tokens});
    }
    group.begins.push_back(static_cast<uint32_t>(group.segments.size()));
  }
  if (!reader.ok || reader.at != length || !AddStoredOrder(&group)) return damaged;
  return group;
}

absl::Status RowTable::Verify() const {
  uint64_t segments = 0;
  uint64_t tokens = 0;
  for (uint64_t number = 0; number < groups_; ++number) {
    ASSIGN_OR_RETURN(const RowGroup group, ReadGroup(number));
    segments += group.segments.size();
    for (const Segment& segment : group.segments) tokens += segment.length;
  }
  return segments == counts_.segments && tokens == counts_.tokens ? absl::OkStatus() : Damaged("its foot is");
}

}  // namespace millrace
