#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/subset.h"
#include "pipeline/token_rows.h"

namespace millrace {

struct ImageSamples;
struct WantedFields;

/// The input of a loader: one or several subsets of data sets. Its items are their samples, or rows of their tokens,
/// numbered 0 .. size()-1, those of one part after those of the other. For example, if two data sets have 10 and 5
/// samples, items 10 .. 14 are samples 0 .. 4 of the second one. Immutable, cheap to copy; the data sets must outlive
/// it.
class Source {
 public:
  Source(const Dataset& dataset) : Source(std::vector<Subset>{dataset}) {}   // NOLINT(google-explicit-constructor)
  Source(Subset subset) : Source(std::vector<Subset>{std::move(subset)}) {}  // NOLINT(google-explicit-constructor)
  /// Takes at least one part.
  explicit Source(std::vector<Subset> parts);

  /// Makes a source of the rows that the samples of `samples` make; each bucket is a part. Blocking; errors are those
  /// of FindRows, and InvalidArgument for buckets of several parts.
  static absl::StatusOr<Source> OfRows(Stores& stores, const Source& samples, const TokenOptions& options,
                                       const LongTask& task = {});

  const std::vector<Subset>& parts() const { return parts_; }
  /// The rows of each part, and how they were made; empty and null if items are samples.
  const std::vector<std::shared_ptr<const TokenRows>>& rows() const { return rows_; }
  const TokenOptions* tokens() const { return tokens_ ? &*tokens_ : nullptr; }

  uint64_t size() const { return first_.back(); }
  /// Returns the first item of a part, and how many it has.
  uint64_t FirstOf(size_t part) const { return first_[part]; }
  uint64_t SizeOf(size_t part) const { return first_[part + 1] - first_[part]; }
  /// Returns the fingerprint of the items of a part and their order.
  uint64_t FingerprintOf(size_t part) const;

  struct Place {
    size_t part = 0;
    uint64_t rank = 0;  // in the part
  };
  Place Find(uint64_t item) const;  // item < size()
  // These are for items that are samples:
  uint64_t SampleOf(uint64_t item) const;  // as its index numbers it
  absl::Status Lookup(uint64_t item, IndexedSample* out) const;

  uint64_t total_bytes() const;  // of the samples
  /// Returns the stored bytes of a sample's span, or of a row, at most and on average.
  uint64_t max_item_bytes() const;
  double mean_item_bytes() const;
  double MeanItemBytesOf(size_t part) const;
  /// Returns the URI of the data set, or those of the mixed ones, with " + " between them.
  std::string uri() const;

 private:
  struct Found;
  friend absl::StatusOr<ImageSamples> OnlyImageSamples(const Source& source, const WantedFields& wanted);
  static std::shared_ptr<Found> NothingFound();
  void Number();

  std::vector<Subset> parts_;
  std::vector<std::shared_ptr<const TokenRows>> rows_;
  std::optional<TokenOptions> tokens_;
  std::vector<uint64_t> first_;                    // and one more
  std::shared_ptr<Found> found_ = NothingFound();  // the results of OnlyImageSamples; copies share them
};

}  // namespace millrace
