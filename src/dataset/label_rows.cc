#include "dataset/label_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/byte_reader.h"
#include "base/crypto.h"
#include "base/size.h"
#include "dataset/index_format.h"

namespace millrace {

namespace {

constexpr size_t kLabelPiece = 1 << 20;
constexpr uint64_t kMostLabelRows = UINT32_MAX;
constexpr uint64_t kRowsOfBucket = 4;

// Reads without bounds, since this file has written the bytes itself.
uint64_t NumberAt(const char** at) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<uint8_t>(*(*at)++);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

std::string_view TextAt(const char** at) {
  const uint64_t length = NumberAt(at);
  return {std::exchange(*at, *at + length), length};
}

}  // namespace

absl::StatusOr<LabelRows> LabelRows::Create(uint64_t most_rows, MemoryBudget& memory) {
  if (most_rows > kMostLabelRows)
    return absl::InvalidArgumentError(fmt::format("{} lines (at most {} are read)", most_rows, kMostLabelRows));
  LabelRows rows(memory);
  RETURN_IF_ERROR(rows.Reserve(most_rows * sizeof(Entry) + most_rows));  // a quarter of a number for each row
  rows.entries_.reserve(most_rows);
  return rows;
}

absl::Status LabelRows::Reserve(uint64_t bytes) {
  if (memory_->TryExtend(&reserved_, bytes)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("it takes more memory than there is: {} of {} are in use, of which its rows so far take {}",
                  FormatSize(memory_->used()), FormatSize(memory_->limit()), FormatSize(reserved_.bytes())));
}

LabelRows::Entry LabelRows::EntryOf(std::string_view key) {
  constexpr uint64_t kOtherSeed = 0x4d522d6c6162656c;  // "MR-label"
  return {.hash = Xxh3(AsBytes(key)), .rest = Xxh3(AsBytes(key), kOtherSeed) & ~kPlaceMask};
}

absl::Status LabelRows::Add(std::string_view key, const ManifestRow& row) {
  scratch_.clear();
  AppendVarint(scratch_, row.line);
  AppendText(scratch_, row.label);
  AppendVarint(scratch_, row.cells.size());
  for (const ManifestCell& cell : row.cells) {
    AppendVarint(scratch_, cell.column);
    AppendText(scratch_, cell.text);
  }
  if (scratch_.size() > kLabelPiece) {
    return absl::InvalidArgumentError(fmt::format("values of {} bytes (the index holds at most {} for a sample)",
                                                  scratch_.size(), index_format::kMaxValueBytes));
  }
  if (pieces_.empty() || kLabelPiece - used_ < scratch_.size()) {
    RETURN_IF_ERROR(Reserve(kLabelPiece));
    pieces_.emplace_back(new char[kLabelPiece]);
    used_ = 0;
  }
  std::memcpy(pieces_.back().get() + used_, scratch_.data(), scratch_.size());
  Entry entry = EntryOf(key);
  entry.rest |= (pieces_.size() - 1) * kLabelPiece + used_;
  entries_.push_back(entry);
  used_ += scratch_.size();
  return absl::OkStatus();
}

const char* LabelRows::RowAt(uint64_t place) const {
  return pieces_[place / kLabelPiece].get() + place % kLabelPiece;
}

uint64_t LabelRows::LineAt(size_t place) const {
  const char* at = RowAt(entries_[place].rest & kPlaceMask);
  return NumberAt(&at);
}

std::optional<LabelRows::Twice> LabelRows::Sort() {
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.hash != b.hash ? a.hash < b.hash : a.rest < b.rest;  // of equal keys the one that came first
  });
  const uint64_t buckets = std::bit_ceil(std::max<uint64_t>(entries_.size() / kRowsOfBucket, 2)) / 2;
  shift_ = 64 - std::countr_zero(buckets);
  first_.assign(buckets + 1, static_cast<uint32_t>(entries_.size()));
  for (size_t i = entries_.size(); i-- > 0;) {
    first_[buckets > 1 ? entries_[i].hash >> shift_ : 0] = static_cast<uint32_t>(i);
  }
  for (uint64_t bucket = buckets; bucket-- > 0;) first_[bucket] = std::min(first_[bucket], first_[bucket + 1]);
  std::optional<Twice> first;
  for (size_t i = 1; i < entries_.size(); ++i) {
    const Entry& a = entries_[i - 1];
    const Entry& b = entries_[i];
    if (a.hash != b.hash || a.rest >> kPlaceBits != b.rest >> kPlaceBits) continue;
    const Twice twice{.line = LineAt(i - 1), .other_line = LineAt(i)};
    if (!first || twice.other_line < first->other_line) first = twice;  // the first of the file, whatever the hashes
  }
  return first;
}

bool LabelRows::Find(std::string_view key, Row* row, size_t* place) const {
  if (entries_.empty()) return false;
  const Entry wanted = EntryOf(key);
  const uint64_t bucket = first_.size() > 2 ? wanted.hash >> shift_ : 0;
  for (size_t i = first_[bucket]; i < first_[bucket + 1]; ++i) {
    const Entry& entry = entries_[i];
    if (entry.hash != wanted.hash || entry.rest >> kPlaceBits != wanted.rest >> kPlaceBits) continue;
    const char* at = RowAt(entry.rest & kPlaceMask);
    *place = i;
    row->line = NumberAt(&at);
    row->label = TextAt(&at);
    row->cells.resize(NumberAt(&at));
    for (ManifestCell& cell : row->cells) {
      cell.column = static_cast<uint32_t>(NumberAt(&at));
      cell.text = TextAt(&at);
    }
    return true;
  }
  return false;
}

}  // namespace millrace
