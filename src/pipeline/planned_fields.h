#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/batch_field.h"
#include "pipeline/batch_layout.h"
#include "pipeline/loader.h"

namespace millrace {

/// An entry of the batches of samples, after the data set was looked at.
struct PlannedField {
  BatchField wanted;
  std::vector<std::string> fields;  // each sample has one of them; several of images that were not named
  size_t leader = kNone;            // of an image: the one that it follows, by its place in the list
  size_t column = kNone;            // of a value: its place in Batch::values
  /// These are, for labels that are classes by number, the numbers here of the classes of each part of the source.
  /// Empty: the same numbers.
  std::vector<std::vector<int64_t>> class_numbers;

  static constexpr size_t kNone = static_cast<size_t>(-1);
};

/// Plans the contents of batches of samples: `options.fields`, or "image" and "label" as the options say. An image that
/// others follow comes before them. InvalidArgument, FailedPrecondition: options that are invalid, or that the data set
/// does not fit.
absl::StatusOr<std::vector<PlannedField>> PlanFields(const Source& source, const LoaderOptions& options);

/// Adds the arrays of these fields. InvalidArgument if an array cannot hold the number that options.padding says.
absl::Status AddArrays(const std::vector<PlannedField>& fields, const LoaderOptions& options, BatchLayout* layout);

size_t CountValues(const std::vector<PlannedField>& fields);

/// Returns an upper bound of the bytes of an item's values. `entry` is scratch memory.
absl::StatusOr<uint64_t> ValueBytesOf(const std::vector<PlannedField>& fields, const Source& source, uint64_t item,
                                      IndexedSample* entry);

}  // namespace millrace
