#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "base/status.h"

/// Reads JSON as it is written by programs that know tables: arrays of records, and texts that are not lists of
/// records.

namespace millrace {

/// Returns true if the first entry of the array is an object, and not the head of SageMaker's manifest, which has a
/// "prefix".
bool HoldsRecords(std::string_view array);

/// Hands out the text of each entry of an array, with its number from 1. InvalidArgument for what is no array.
absl::Status ForEachEntry(std::string_view array,
                          absl::FunctionRef<absl::Status(std::string_view entry, uint64_t number)> each);

/// Replaces texts that Python's json reads and the parser refuses: NaN, Infinity and numbers that no float holds by
/// null, and halves of surrogate pairs by U+FFFD. All else stays as it is.
std::string WithoutNan(std::string_view json);

/// Returns a sentence for the user if the text is one object that holds all of a table, as pandas writes it, or an
/// object over several lines; "" otherwise.
std::string AdviceOnTable(std::string_view json);

}  // namespace millrace
