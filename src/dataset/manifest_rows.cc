#include "dataset/manifest_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/byte_reader.h"
#include "base/size.h"

namespace millrace {

namespace {

constexpr size_t kFirstPiece = 16 << 10;
constexpr size_t kMaxPiece = 1 << 20;
constexpr size_t kRowsStep = 4096;

// Reads without bounds, since this file has written the bytes itself: the number ends where it has to.
uint64_t TakeNumber(const char* row, size_t* pos) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<uint8_t>(row[(*pos)++]);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

std::string_view TakeBytes(const char* row, size_t* pos, uint64_t length) {
  const std::string_view text(row + *pos, length);
  *pos += length;
  return text;
}

// Compares the keys PREFIX+REST.
int CompareKeys(std::string_view prefix_a, std::string_view a, std::string_view prefix_b, std::string_view b) {
  if (prefix_a == prefix_b) return a.compare(b);
  const bool swapped = prefix_a.empty();
  if (swapped) {
    std::swap(prefix_a, prefix_b);
    std::swap(a, b);
  }
  // One of the prefixes is empty.
  int order = prefix_a.compare(b.substr(0, prefix_a.size()));
  if (order == 0) order = a.compare(b.substr(prefix_a.size()));
  return swapped ? -order : order;
}

}  // namespace

absl::Status ManifestRows::Reserve(uint64_t bytes) {
  if (memory_.TryExtend(&reserved_, bytes)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("it takes more memory than there is: {} of {} are in use, of which its rows so far take {}",
                  FormatSize(memory_.used()), FormatSize(memory_.limit()), FormatSize(reserved_.bytes())));
}

absl::StatusOr<char*> ManifestRows::Room(size_t bytes) {
  if (pieces_.empty() || piece_bytes_ - used_ < bytes) {
    const size_t next = std::max(bytes, std::clamp(2 * piece_bytes_, kFirstPiece, kMaxPiece));
    RETURN_IF_ERROR(Reserve(next));
    pieces_.emplace_back(new char[next]);
    piece_bytes_ = next;
    used_ = 0;
  }
  return pieces_.back().get() + std::exchange(used_, used_ + bytes);
}

absl::Status ManifestRows::Add(std::string_view object_key, uint64_t name_at, const ManifestRow& row) {
  const bool in_folder = object_key.starts_with(folder_) && name_at >= folder_.size();
  const size_t before = in_folder ? folder_.size() : 0;
  scratch_.clear();
  AppendVarint(scratch_, (object_key.size() - before) << 1 | (in_folder ? 1 : 0));
  scratch_.append(object_key.substr(before));
  AppendVarint(scratch_, name_at - before);
  AppendVarint(scratch_, row.line);
  AppendText(scratch_, row.label);
  AppendVarint(scratch_, row.cells.size());
  for (const ManifestCell& cell : row.cells) {
    AppendVarint(scratch_, cell.column);
    AppendText(scratch_, cell.text);
  }
  if (rows_.size() % kRowsStep == 0) RETURN_IF_ERROR(Reserve(kRowsStep * sizeof(char*)));
  ASSIGN_OR_RETURN(char* const room, Room(scratch_.size()));
  std::memcpy(room, scratch_.data(), scratch_.size());
  rows_.push_back(room);
  return absl::OkStatus();
}

StoredRow ManifestRows::Head(const char* row, size_t* end) {
  StoredRow stored;
  size_t at = 0;
  size_t* const pos = &at;
  const uint64_t head = TakeNumber(row, pos);
  stored.in_folder = (head & 1) != 0;
  stored.rest = TakeBytes(row, pos, head >> 1);
  stored.name_at = TakeNumber(row, pos);
  stored.line = TakeNumber(row, pos);
  if (end != nullptr) *end = at;
  return stored;
}

void ManifestRows::Sort() {
  std::sort(rows_.begin(), rows_.end(), [this](const char* x, const char* y) {
    const StoredRow a = Head(x);
    const StoredRow b = Head(y);
    const int order = CompareKeys(FolderOf(a), a.rest, FolderOf(b), b.rest);
    return order != 0 ? order < 0 : a.line < b.line;
  });
}

StoredRow ManifestRows::At(size_t i) const {
  const char* const row = rows_[i];
  size_t pos = 0;
  StoredRow stored = Head(row, &pos);
  stored.label = TakeBytes(row, &pos, TakeNumber(row, &pos));
  stored.cells.resize(TakeNumber(row, &pos));
  for (ManifestCell& cell : stored.cells) {
    cell.column = static_cast<uint32_t>(TakeNumber(row, &pos));
    cell.text = TakeBytes(row, &pos, TakeNumber(row, &pos));
  }
  return stored;
}

std::string ManifestRows::KeyAt(size_t i) const {
  const StoredRow row = Head(rows_[i]);
  return std::string(FolderOf(row)).append(row.rest);
}

uint64_t ManifestRows::LineAt(size_t i) const {
  return Head(rows_[i]).line;
}

bool ManifestRows::SameObject(size_t a, size_t b) const {
  const StoredRow x = Head(rows_[a]);
  const StoredRow y = Head(rows_[b]);
  return CompareKeys(FolderOf(x), x.rest, FolderOf(y), y.rest) == 0;
}

std::optional<size_t> ManifestRows::Find(std::string_view object_key) const {
  const auto found =
      std::lower_bound(rows_.begin(), rows_.end(), object_key, [this](const char* row, std::string_view key) {
        const StoredRow head = Head(row);
        return CompareKeys(FolderOf(head), head.rest, {}, key) < 0;
      });
  const auto i = static_cast<size_t>(found - rows_.begin());
  if (i == rows_.size() || KeyAt(i) != object_key) return std::nullopt;
  return i;
}

}  // namespace millrace
