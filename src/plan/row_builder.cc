#include "plan/row_builder.h"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>
#include <utility>

#include "fmt/format.h"

namespace millrace {
namespace {

bool Before(const Segment& a, const Segment& b) {
  return std::tie(a.sample, a.offset) < std::tie(b.sample, b.offset);
}

/// Holds rows that are being filled.
class Bins {
 public:
  Bins(uint64_t length, size_t max_rows) : length_(length), max_rows_(max_rows) {}

  /// Adds the segment to the fullest row that has room, to the first of those that are equal; else to a new one.
  /// Returns false if there is none left.
  bool Add(const Segment& segment) {
    const auto fits = room_.lower_bound({segment.length, 0});
    if (fits == room_.end() && rows_.size() == max_rows_) return false;
    uint64_t left = length_;
    size_t at = rows_.size();
    if (fits == room_.end()) {
      rows_.emplace_back();
    } else {
      std::tie(left, at) = *fits;
      room_.erase(fits);
    }
    rows_[at].push_back(segment);
    if (left > segment.length) room_.emplace(left - segment.length, at);
    return true;
  }

  /// Adds the longest first, and the first one of those that are alike. Returns false if they do not fit.
  bool AddAll(std::vector<Segment> segments) {
    std::sort(segments.begin(), segments.end(), [](const Segment& a, const Segment& b) {
      return a.length != b.length ? a.length > b.length : Before(a, b);
    });
    return std::all_of(segments.begin(), segments.end(), [this](const Segment& segment) { return Add(segment); });
  }

  /// Returns the rows, and their segments, in the order of the samples.
  std::vector<std::vector<Segment>> Take() {
    for (std::vector<Segment>& row : rows_) std::sort(row.begin(), row.end(), Before);
    std::sort(rows_.begin(), rows_.end(), [](const auto& a, const auto& b) { return Before(a.front(), b.front()); });
    return std::move(rows_);
  }

 private:
  uint64_t length_;
  size_t max_rows_;
  std::vector<std::vector<Segment>> rows_;
  std::set<std::pair<uint64_t, size_t>> room_;  // tokens that still fit, and the row
};

/// Rows that segments need in any case: of those longer than a (k+1)th of a row, k fit into one. Spares the attempts
/// that must fail, of which there are hundreds where all segments have 0.6 of a row.
class RowsNeeded {
 public:
  explicit RowsNeeded(uint64_t length) : length_(length) {}

  void Count(const Segment& segment, int64_t times) {
    const uint64_t per_row = length_ / segment.length;
    if (per_row <= of_size_.size()) of_size_[per_row - 1] += times;
  }
  uint64_t AtLeast() const {
    int64_t segments = 0;
    int64_t rows = 0;
    for (size_t i = 0; i < of_size_.size(); ++i) {
      const auto per_row = static_cast<int64_t>(i) + 1;
      segments += of_size_[i];
      rows = std::max(rows, (segments + per_row - 1) / per_row);
    }
    return static_cast<uint64_t>(rows);
  }

 private:
  uint64_t length_;
  std::array<int64_t, 64> of_size_{};  // segments of which 1, 2, ... fit into a row
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
    const Segment segment{sample, offset, std::min(cut, end - offset)};
    if (segment.length > spec_.above && segment.length <= spec_.length) RETURN_IF_ERROR(AddSegment(segment));
  }
  return absl::OkStatus();
}

absl::Status RowBuilder::AddSegment(const Segment& segment) {
  counts_.tokens += segment.length;
  ++counts_.segments;
  if (segment.sample != last_counted_) ++counts_.samples;
  last_counted_ = segment.sample;
  if (spec_.layout == RowLayout::kPad) {
    row_.assign(1, segment);
    return Emit(row_);
  }
  waiting_.push_back(segment);
  waiting_tokens_ += segment.length;
  const uint64_t enough = (spec_.group + spec_.group / 8 + 2) * spec_.length;
  while (waiting_tokens_ >= enough) RETURN_IF_ERROR(PackGroup());
  return absl::OkStatus();
}

absl::Status RowBuilder::AddToStream(Segment segment) {
  counts_.tokens += segment.length;
  ++counts_.samples;
  while (segment.length > 0) {
    const uint64_t taken = std::min(segment.length, spec_.length - row_tokens_);
    row_.push_back({segment.sample, segment.offset, taken});
    ++counts_.segments;
    row_tokens_ += taken;
    segment.offset += taken;
    segment.length -= taken;
    if (row_tokens_ == spec_.length) RETURN_IF_ERROR(Emit(row_));
  }
  return absl::OkStatus();
}

absl::Status RowBuilder::Emit(std::vector<Segment>& row) {
  ++counts_.rows;
  absl::Status status = sink_(row);
  row.clear();
  row_tokens_ = 0;
  return status;
}

absl::Status RowBuilder::PackGroup() {
  // The first segments that fit are taken: as many as have room by their number of tokens, or fewer if they do not fit
  // together.
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
  std::vector<Segment> left;
  for (size_t i = taken; i < waiting_.size(); ++i) {
    if (i >= taken + kLookAhead || !bins.Add(waiting_[i])) left.push_back(waiting_[i]);
  }
  waiting_ = std::move(left);
  for (std::vector<Segment>& row : bins.Take()) {
    for (const Segment& segment : row) waiting_tokens_ -= segment.length;
    RETURN_IF_ERROR(Emit(row));
  }
  return absl::OkStatus();
}

absl::Status RowBuilder::Finish() {
  if (!row_.empty()) RETURN_IF_ERROR(Emit(row_));  // the end of a stream
  Bins bins(spec_.length, SIZE_MAX);
  bins.AddAll(std::move(waiting_));
  for (std::vector<Segment>& row : bins.Take()) RETURN_IF_ERROR(Emit(row));
  return absl::OkStatus();
}

}  // namespace millrace
