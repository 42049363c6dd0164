#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "dataset/dataset.h"
#include "net/runtime.h"
#include "plan/selection.h"
#include "plan/split.h"

namespace millrace {

/// A data set, or some of its samples. Cheap to copy. The data set must outlive it.
struct Subset {
  Subset(const Dataset& whole);  // NOLINT(google-explicit-constructor): a data set is a subset of itself
  /// Takes all samples that `selection` has; its universe is the index.
  Subset(const Dataset& of, Selection selection, uint64_t bytes);

  const Dataset* dataset;
  std::shared_ptr<const Selection> selection;  // null: all samples
  uint64_t total_bytes;                        // of all spans
  std::string class_name;                      // of its class, if it is one, made by ByClass; else empty

  const Index& index() const { return dataset->index(); }
  uint64_t size() const { return selection ? selection->size() : index().size(); }
  /// Returns number `rank` of the subset, as the index numbers it. rank < size().
  uint64_t SampleAt(uint64_t rank) const { return selection ? selection->At(rank) : rank; }
  /// Returns a fingerprint, which is the index's if all samples are taken.
  uint64_t fingerprint() const;
};

/// Represents conditions, all of which a sample has to meet.
struct Filter {
  std::optional<KeyRange> keys;                     // of its key's hash
  bool key_groups = false;                          // it is intended that many keys are equal (CheckKeysDiffer)
  std::optional<std::vector<std::string>> classes;  // its class is one of these (Index::class_counts())
  uint64_t min_bytes = 0;                           // of its span
  uint64_t max_bytes = UINT64_MAX;                  // of its span
  std::vector<std::string> has;                     // fields, all of them
  std::vector<std::string> has_any;                 // fields, one of them at least; empty: any sample
  std::shared_ptr<const Selection> samples;         // its number in the index is one of these; null: any
};

/// Selects the samples of `of` that meet the filter; there may be none. Walks the index once, on the CPU pool. Errors:
/// - InvalidArgument: no such class or field in the data set, a selection of another universe, or a range of keys many
///   of which are equal;
/// - FailedPrecondition: the filter has classes, and the index holds none (Index::has_labels());
/// - DataLoss: the index.
absl::StatusOr<Subset> Where(Runtime& runtime, const Subset& of, const Filter& filter);

/// Represents the fate of samples that the data set's file of labels does not name (IndexedSample::in_labels_file).
enum class MissingLabels : uint8_t { kRefuse, kDrop };

/// Selects the samples of `of` that are in the file of labels. InvalidArgument if there are others and these are
/// refused, with their number and the first of them, or if none is in the file. Two kinds of raw objects are not
/// refused: the file of labels itself, which is left out, and objects beside images that hold none, which stay. The
/// reader decides (image_samples.h).
absl::StatusOr<Subset> InLabelsFile(Runtime& runtime, const Subset& of, MissingLabels missing);

/// Returns InvalidArgument: so many of so many samples have no label in the data set's file. The first of them have
/// these keys.
absl::Status NoLabels(const Dataset& dataset, uint64_t lacking, uint64_t samples,
                      const std::vector<std::string>& first_keys);

/// Returns the group of a sample: below the number of groups, or no group at all. `rank` is its number in the subset.
/// It is called on several threads at once, and maybe twice for a sample: it has to return the same.
using GroupOf = absl::FunctionRef<std::optional<uint32_t>(uint64_t rank, const IndexedSample& entry)>;

/// Divides `of` into groups, which may be empty, too. Memory: up to 6 bytes a sample, if there are many groups, until
/// it is done. FailedPrecondition if `group_of` returned different groups for a sample.
absl::StatusOr<std::vector<Subset>> GroupBy(Runtime& runtime, const Subset& of, uint32_t groups, GroupOf group_of);

/// Returns FailedPrecondition, with the remedy, if classes lie in files that have not been read
/// (Index::classes_unread()).
absl::Status CheckClassesRead(const Subset& of);

/// Returns a subset for each class, in the order of Index::class_counts(). FailedPrecondition without
/// Index::has_labels().
absl::StatusOr<std::vector<Subset>> ByClass(Runtime& runtime, const Subset& of);

}  // namespace millrace
