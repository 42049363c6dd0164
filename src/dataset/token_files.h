#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "base/memory_budget.h"
#include "base/status.h"
#include "dataset/index.h"
#include "shard/shard_scanner.h"
#include "shard/token_format.h"
#include "store/stores.h"

namespace millrace {

/// Makes the scanners of the objects of a token data set. Both objects of a pair are in the index: the .bin with the
/// samples, and the .idx, which does not have samples. So the data set does not match its index if either has changed.
/// Blocking; not thread-safe; the data and the budget must outlive it.
class TokenFiles {
 public:
  /// Takes `arrays` if plain arrays are to be cut; else the objects are pairs.
  TokenFiles(const Location& data, MemoryBudget& memory, const std::optional<TokenArrays>& arrays, std::stop_token stop)
      : data_(data), memory_(memory), stop_(std::move(stop)), arrays_(arrays) {}

  /// Returns the scanner of the next object, in the order of keys; for a .bin it reads the whole .idx first. The
  /// scanner of the object before is gone by then; this object outlives the scanners. Null for an .idx, whose bytes are
  /// not asked for again. Also null for the .bin of a damaged pair; `*damage` is then DataLoss or InvalidArgument for
  /// the contents of the .idx, or DataLoss if it does not fit the size of the .bin.
  ///
  /// Errors do not name the object, which the caller does: InvalidArgument (one of a pair is missing, an array whose
  /// type is not known), FailedPrecondition if an .idx was replaced meanwhile, ResourceExhausted.
  absl::StatusOr<std::unique_ptr<ShardScanner>> ScannerFor(const IndexedObject& object, absl::Status* damage);

  /// Takes the place of ScannerFor for an array whose samples are known already, and are of that type. InvalidArgument
  /// if arrays before it are of another type.
  absl::Status TakeKnown(NumberType type);

 private:
  absl::StatusOr<std::unique_ptr<ShardScanner>> ScannerOfBin(const IndexedObject& bin, absl::Status* damage);
  absl::Status CheckIdx(const IndexedObject& idx);
  absl::StatusOr<TokenSequences> ReadIdx(const ObjectInfo& idx, absl::Status* damage);
  std::string Uri(std::string_view key) const { return data_.store->Uri(data_.Key(key)); }

  const Location& data_;
  MemoryBudget& memory_;
  const std::stop_token stop_;
  std::optional<TokenArrays> arrays_;
  std::map<std::string, std::string> read_;  // ETags of those .idx that were read and have not come themselves yet
  Reservation sequences_memory_;             // of the scanner that was made last
};

/// Returns how the plain arrays of an indexed data set were cut, for building its index again; nullopt for pairs and
/// for data sets of another kind. The same arrays, cut by the result, give the same samples. If each array is only one
/// sample, the length is that of the longest; the length that was asked for may have been greater.
absl::StatusOr<std::optional<TokenArrays>> TokenArraysOf(const Index& index);

}  // namespace millrace
