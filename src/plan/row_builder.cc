#include "plan/row_builder.h"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>
#include <utility>

#include "fmt/format.h"

namespace millrace {
namespace {

bool Before(const RowPiece& a, const RowPiece& b) {
  return std::tie(a.sample, a.offset) < std::tie(b.sample, b.offset);
}

/// Rows that are being filled.
class Bins {
 public:
  Bins(uint64_t length, size_t max_rows) : length_(length), max_rows_(max_rows) {}

  /// Into the fullest row that has room, of those that are equal the first; else into a new one. False where there is
  /// none left.
  bool Add(const RowPiece& piece) {
    const auto fits = room_.lower_bound({piece.length, 0});
    if (fits == room_.end() && rows_.size() == max_rows_) return false;
    uint64_t left = length_;
    size_t at = rows_.size();
    if (fits == room_.end()) {
      rows_.emplace_back();
    } else {
      std::tie(left, at) = *fits;
      room_.erase(fits);
    }
    rows_[at].push_back(piece);
    if (left > piece.length) room_.emplace(left - piece.length, at);
    return true;
  }

  /// Longest first; of those that are alike the first one. False where they do not fit.
  bool AddAll(std::vector<RowPiece> pieces) {
    std::sort(pieces.begin(), pieces.end(), [](const RowPiece& a, const RowPiece& b) {
      return a.length != b.length ? a.length > b.length : Before(a, b);
    });
    return std::all_of(pieces.begin(), pieces.end(), [this](const RowPiece& piece) { return Add(piece); });
  }

  /// Rows and what is in them in the order of the samples.
  std::vector<std::vector<RowPiece>> Take() {
    for (std::vector<RowPiece>& row : rows_) std::sort(row.begin(), row.end(), Before);
    std::sort(rows_.begin(), rows_.end(), [](const auto& a, const auto& b) { return Before(a.front(), b.front()); });
    return std::move(rows_);
  }

 private:
  uint64_t length_;
  size_t max_rows_;
  std::vector<std::vector<RowPiece>> rows_;
  std::set<std::pair<uint64_t, size_t>> room_;  // tokens that still fit, and the row
};

/// Rows that pieces need in any case: of those longer than a (k+1)th of a row, k fit into one. Spares the attempts that
/// must fail, of which there are hundreds where all pieces have 0.6 of a row.
class RowsNeeded {
 public:
  explicit RowsNeeded(uint64_t length) : length_(length) {}

  void Count(const RowPiece& piece, int64_t times) {
    const uint64_t per_row = length_ / piece.length;
    if (per_row <= of_size_.size()) of_size_[per_row - 1] += times;
  }
  uint64_t AtLeast() const {
    int64_t pieces = 0;
    int64_t rows = 0;
    for (size_t i = 0; i < of_size_.size(); ++i) {
      const auto per_row = static_cast<int64_t>(i) + 1;
      pieces += of_size_[i];
      rows = std::max(rows, (pieces + per_row - 1) / per_row);
    }
    return static_cast<uint64_t>(rows);
  }

 private:
  uint64_t length_;
  std::array<int64_t, 64> of_size_{};  // pieces of which 1, 2, ... fit into a row
};

}  // namespace

RowBuilder::RowBuilder(const RowSpec& spec, Sink sink) : spec_(spec), sink_(std::move(sink)) {}
RowBuilder::~RowBuilder() = default;

absl::Status RowBuilder::Add(uint64_t sample, uint64_t tokens) {
  if (tokens == 0) {
    ++counts_.empty;
    return absl::OkStatus();
  }
  if (spec_.layout == RowLayout::kStream) return AddToStream({sample, 0, tokens});
  const uint64_t cut = spec_.cut();
  uint64_t end = tokens;
  if (tokens > cut && spec_.longer == LongSamples::kRefuse) {
    return absl::OutOfRangeError(
        fmt::format("it has {} tokens, and the longest row that was declared has {}", tokens, cut));
  }
  if (tokens > cut && spec_.longer == LongSamples::kTruncate) {
    counts_.truncated += tokens - cut;
    end = cut;
  }
  for (uint64_t offset = 0; offset < end; offset += cut) {
    const RowPiece piece{sample, offset, std::min(cut, end - offset)};
    if (piece.length > spec_.above && piece.length <= spec_.length) RETURN_IF_ERROR(AddPiece(piece));
  }
  return absl::OkStatus();
}

absl::Status RowBuilder::AddPiece(const RowPiece& piece) {
  counts_.tokens += piece.length;
  ++counts_.pieces;
  if (piece.sample != last_counted_) ++counts_.samples;
  last_counted_ = piece.sample;
  if (spec_.layout == RowLayout::kPad) {
    row_.assign(1, piece);
    return Emit(row_);
  }
  waiting_.push_back(piece);
  waiting_tokens_ += piece.length;
  const uint64_t enough = (spec_.group + spec_.group / 8 + 2) * spec_.length;
  while (waiting_tokens_ >= enough) RETURN_IF_ERROR(PackGroup());
  return absl::OkStatus();
}

absl::Status RowBuilder::AddToStream(RowPiece piece) {
  counts_.tokens += piece.length;
  ++counts_.samples;
  while (piece.length > 0) {
    const uint64_t taken = std::min(piece.length, spec_.length - row_tokens_);
    row_.push_back({piece.sample, piece.offset, taken});
    ++counts_.pieces;
    row_tokens_ += taken;
    piece.offset += taken;
    piece.length -= taken;
    if (row_tokens_ == spec_.length) RETURN_IF_ERROR(Emit(row_));
  }
  return absl::OkStatus();
}

absl::Status RowBuilder::Emit(std::vector<RowPiece>& row) {
  ++counts_.rows;
  absl::Status status = sink_(row);
  row.clear();
  row_tokens_ = 0;
  return status;
}

absl::Status RowBuilder::PackGroup() {
  // The first pieces that fit: as many as have room by their number of tokens, or fewer where they do not fit together.
  Bins bins(spec_.length, spec_.group);
  uint64_t most = spec_.group * spec_.length;
  RowsNeeded needed(spec_.length);
  uint64_t tokens = 0;
  size_t taken = 0;
  for (; taken < waiting_.size() && tokens + waiting_[taken].length <= most; ++taken) {
    tokens += waiting_[taken].length;
    needed.Count(waiting_[taken], 1);
  }
  for (;;) {
    if (needed.AtLeast() <= spec_.group) {
      bins = Bins(spec_.length, spec_.group);
      if (bins.AddAll({waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(taken)})) break;
    }
    most -= std::max<uint64_t>(1, most / spec_.group);
    for (; tokens > most; --taken) {
      tokens -= waiting_[taken - 1].length;
      needed.Count(waiting_[taken - 1], -1);
    }
  }
  std::vector<RowPiece> left;
  for (size_t i = taken; i < waiting_.size(); ++i) {
    if (i >= taken + kLookAhead || !bins.Add(waiting_[i])) left.push_back(waiting_[i]);
  }
  waiting_ = std::move(left);
  for (std::vector<RowPiece>& row : bins.Take()) {
    for (const RowPiece& piece : row) waiting_tokens_ -= piece.length;
    RETURN_IF_ERROR(Emit(row));
  }
  return absl::OkStatus();
}

absl::Status RowBuilder::Finish() {
  if (!row_.empty()) RETURN_IF_ERROR(Emit(row_));  // the end of a stream
  Bins bins(spec_.length, SIZE_MAX);
  bins.AddAll(std::move(waiting_));
  for (std::vector<RowPiece>& row : bins.Take()) RETURN_IF_ERROR(Emit(row));
  return absl::OkStatus();
}

}  // namespace millrace
