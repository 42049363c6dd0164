#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "plan/row_spec.h"

/// Holds the rows that were made once, as they are kept (docs/formats/packs.md). Pure.

namespace millrace {

/// Writes a table front to back. Not thread-safe. Memory: a group, and eight bytes for each of those before.
class RowTableWriter {
 public:
  using Append = std::function<absl::Status(ByteSpan)>;

  /// `key` is spec.Key(fingerprint of the samples), of which there are `samples`. Errors are those of `append`.
  RowTableWriter(const RowSpec& spec, uint64_t key, uint64_t samples, Append append);

  absl::Status Add(std::span<const Segment> row);  // with one segment at least
  absl::Status Finish(const RowCounts& counts);

 private:
  absl::Status Write(std::string_view bytes);
  absl::Status CloseGroup();

  const RowSpec spec_;
  const uint64_t key_;
  const uint64_t samples_;
  const Append append_;
  std::string payload_;
  uint64_t rows_in_group_ = 0;
  uint64_t last_sample_ = 0;
  std::vector<uint64_t> groups_;  // where each begins
  uint64_t written_ = 0;
};

/// Holds rows that follow one another, and their contents.
struct RowGroup {
  uint64_t first_row = 0;
  std::vector<Segment> segments;  // row by row
  std::vector<uint32_t> begins;   // the first segment of each row, and the number of all

  /// Describes the segments as they are stored: by sample and offset.
  struct Stored {
    uint32_t segment = 0;  // which of `segments`
    uint32_t row = 0;      // from first_row on
  };
  std::vector<Stored> stored;
  std::vector<uint32_t> places;  // in `stored`, of each segment

  uint64_t rows() const { return begins.size() - 1; }
  std::span<const Segment> Row(uint64_t row) const {  // from first_row on
    return std::span(segments).subspan(begins[row], begins[row + 1] - begins[row]);
  }
};

/// Reads a table. Immutable and thread-safe; the bytes must outlive it.
class RowTable {
 public:
  /// Returns DataLoss when the bytes are damaged, cut short, or not such a table; FailedPrecondition when it is one of
  /// another key or version. It reads the foot only.
  static absl::StatusOr<RowTable> Open(ByteSpan bytes, uint64_t key);

  uint64_t key() const { return key_; }
  uint64_t size() const { return counts_.rows; }
  uint64_t length() const { return length_; }  // of a row, in tokens
  uint64_t group() const { return group_; }    // rows; the last one may have less
  uint64_t samples() const { return samples_; }
  const RowCounts& counts() const { return counts_; }

  /// Reads rows number * group() and on. number < size() / group(), rounded up. The result is within all bounds:
  /// samples below samples(), rows of one segment or more and at most length() tokens. Returns DataLoss when it is
  /// damaged.
  absl::StatusOr<RowGroup> ReadGroup(uint64_t number) const;
  /// Reads all groups. DataLoss also where their segments are not as many as the foot says.
  absl::Status Verify() const;

 private:
  RowTable() = default;
  ByteSpan bytes_;
  uint64_t key_ = 0;
  uint64_t samples_ = 0;
  uint64_t length_ = 0;
  uint64_t group_ = 1;
  uint64_t groups_ = 0;
  uint64_t table_ = 0;  // where it begins
  RowCounts counts_;
};

}  // namespace millrace
