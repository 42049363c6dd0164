#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/loader.h"

namespace millrace {

/// Explains how a loader with these options would work in the epoch at which it starts. It is computed from the plan
/// and the index alone: nothing else is read.
struct LoaderExplanation {
  std::vector<std::string> left_out;  // sentences on samples that are no images (image_samples.h)
  OrderPolicy policy;                 // of a mix: of its first part, as what follows
  Position start;
  uint64_t samples = 0;  // of an epoch
  uint64_t extents = 0;
  uint64_t windows = 0;
  double extent_bytes = 0;  // of a full one, on average
  double window_bytes = 0;  // the same; no more than all samples

  /// Represents a part of a mix.
  struct Part {
    std::string uri;
    std::string class_name;  // Subset::class_name
    uint64_t samples = 0;
    double wanted = 0;   // share of the epoch, by the weights
    uint64_t drawn = 0;  // samples of the epoch; Draws::kIndependent: on average
    double passes() const { return samples > 0 ? static_cast<double>(drawn) / static_cast<double>(samples) : 0; }
  };
  std::vector<Part> parts;  // of a mix, else empty
  Draws draws = Draws::kExact;
  bool fresh_passes = false;

  /// Describes rows of tokens; if there are buckets, those of each bucket.
  struct Rows {
    uint64_t length = 0;
    uint64_t batch = 0;
    uint64_t steps = 0;  // of an epoch
    RowCounts counts;
    uint64_t documents = 0;  // of the data set or subset
    std::string uri;         // where the table is kept
  };
  std::vector<Rows> rows;
  /// This is the share of places in the rows of an epoch that hold no tokens, except for rows that are padded or
  /// dropped at its end.
  double padding = 0;

  uint64_t steps = 0;         // that are left in the epoch
  uint64_t rank_samples = 0;  // that this rank gets in them, repeats apart

  uint64_t slots = 0;  // batches in memory
  uint64_t slot_bytes = 0;
  uint64_t fetch_bytes = 0;      // for fetched samples
  uint64_t reserve_bytes = 0;    // for the largest sample, when all else is full
  uint64_t account_bytes = 0;    // the rest: keys and states of the rows of batches, and of tokens the tables of rows
  uint64_t unused_bytes = 0;     // of the budget, which an epoch of this rank does not need
  uint64_t reach_positions = 0;  // a sample is fetched with the neighbours whose turn comes within this
  bool reaches_window = false;   // so that each run of neighbours is one request

  /// Counts the fetches of this rank for these steps. If the fetcher's memory is full at the wrong time, it makes a few
  /// more requests.
  struct Fetches {
    uint64_t requests = 0;
    uint64_t bytes = 0;         // of these requests
    uint64_t sample_bytes = 0;  // of the samples that were asked for; the rest lay in the gaps between them
    double readers = 0;         // of an extent, on average, among all ranks
    bool estimated = false;     // from part of them
    double amplification() const { return sample_bytes > 0 ? double(bytes) / double(sample_bytes) : 1; }
  } fetches;

  struct Sample {
    uint64_t position = 0;
    size_t part = 0;
    uint64_t sample = 0;  // as its index numbers it; of a row of tokens, its first document
    std::string key;
    std::string object;  // key below the data set's URI
    ByteRange span;
    uint64_t pieces = 0;  // of documents, in a row
    uint64_t tokens = 0;  // of the row, without padding
  };
  std::vector<Sample> first;  // of this rank
};

/// Returns the rows of a source, as LoaderExplanation has them; empty if items are samples.
std::vector<LoaderExplanation::Rows> DescribeRows(const Source& source);
/// Returns the share of their places that holds no tokens.
double PaddingOf(const std::vector<LoaderExplanation::Rows>& rows);

struct ExplainLimits {
  uint64_t first_samples = 10;          // to list
  uint64_t walked_samples = 1'000'000;  // of the rank; beyond them, fetches are estimated. Takes about 1 us each
};

/// Explains a loader. The options are checked as Loader::Create does, with the same errors; memory need not be free.
absl::StatusOr<LoaderExplanation> Explain(const Source& source, LoaderOptions options,
                                          const ExplainLimits& limits = {});

}  // namespace millrace
