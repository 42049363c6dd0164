#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "shard/number_type.h"

/// Arrays of numbers as NumPy's .npy files. Pure.

namespace millrace {

/// Axes of an array, at most; NumPy's own limit.
inline constexpr size_t kMaxAxes = 64;

/// Appends the head of a file (version 1.0) of an array in C order, the same bytes that NumPy writes; the values
/// follow. At most kMaxAxes axes.
void AppendNpyHead(std::string& out, NumberType type, std::span<const uint64_t> shape);

struct NpyArray {
  NumberType type;
  std::vector<uint64_t> shape;
  ByteSpan values;  // in C order
};

/// Parses a file of version 1.0 as AppendNpyHead and NumPy write it. Nothing where it is another, of other types, in
/// Fortran order, or where the size of the values is not that of the shape.
std::optional<NpyArray> ParseNpy(ByteSpan file);

/// The number of values of an array of that shape; nothing when it exceeds 2^62.
std::optional<uint64_t> CountOf(std::span<const uint64_t> shape);

}  // namespace millrace
