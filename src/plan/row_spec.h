#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace millrace {

/// Says how samples of tokens become rows of one length (docs/tokens.md).
enum class RowLayout : uint8_t {
  kPad,     // a row holds tokens of one sample
  kStream,  // rows are cut from the samples as they follow one another
  kPack,    // whole samples, and what is left of long ones, are fitted together
};
std::string_view RowLayoutName(RowLayout layout);  // "pad", "stream", "pack"

/// Says what becomes of a sample with more tokens than a row. Streams are cut in any case.
enum class LongSamples : uint8_t {
  kSplit,     // it takes several rows
  kTruncate,  // what does not fit is left out
  kRefuse,    // it is an error
};
absl::StatusOr<LongSamples> ParseLongSamples(std::string_view text);  // "split", "truncate", "refuse"
std::string_view LongSamplesName(LongSamples longer);

/// This is a stretch of the tokens of one sample.
struct Segment {
  uint64_t sample = 0;
  uint64_t offset = 0;  // tokens
  uint64_t length = 0;  // tokens
  friend bool operator==(const Segment&, const Segment&) = default;
};

/// Holds all that decides which rows samples of given lengths make. Lengths are in tokens.
struct RowSpec {
  static constexpr uint64_t kMaxLength = uint64_t{1} << 24;
  static constexpr uint64_t kMaxGroup = uint64_t{1} << 16;

  RowLayout layout = RowLayout::kPack;
  uint64_t length = 0;  // of a row
  LongSamples longer = LongSamples::kSplit;
  uint64_t group = 1;  // rows that are packed, stored and fetched together

  // These are for a bucket (kPad): samples are cut to `longest`, and those segments are taken that are longer than
  // `above`.
  uint64_t above = 0;
  uint64_t longest = 0;  // 0: `length`

  /// Returns InvalidArgument with the reason; users of a spec presuppose that it is ok.
  absl::Status Check() const;
  uint64_t cut() const { return longest != 0 ? longest : length; }
  /// Identifies the rows that samples with this fingerprint make. Changes with the version of the construction.
  uint64_t Key(uint64_t samples_fingerprint) const;
};

/// Counts what became of the samples. The counts of a bucket are of all samples unless a field says something else.
struct RowCounts {
  uint64_t rows = 0;       // of this table
  uint64_t tokens = 0;     // in these rows
  uint64_t segments = 0;   // in these rows
  uint64_t samples = 0;    // of which some tokens are in these rows
  uint64_t truncated = 0;  // tokens that were left out
  uint64_t empty = 0;      // samples without tokens: they are in no row
  friend bool operator==(const RowCounts&, const RowCounts&) = default;

  /// Returns the part of the places in the rows that holds tokens; 1 without rows.
  double Fill(uint64_t length) const;
};

}  // namespace millrace
