#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "shard/number_type.h"

/// Reads and writes arrays of numbers as NumPy's .npy files. Pure.

namespace millrace {

/// An array has at most this many axes; it is NumPy's own limit.
inline constexpr size_t kMaxAxes = 64;

/// Appends the head of a file (version 1.0) of an array in C order, the same bytes that NumPy writes; the values
/// follow. At most kMaxAxes axes.
void AppendNpyHead(std::string& out, NumberType type, std::span<const uint64_t> shape);

/// A file begins with this, two bytes of version, and the length of the dictionary, which has two bytes in version 1
/// and four in versions 2 and 3. Then the dictionary follows, and the values.
inline constexpr std::string_view kNpyMagic = "\x93NUMPY";
inline constexpr uint32_t kMaxNpyDictBytes = 64 << 10;  // longer ones describe no plain array

struct NpyHead {
  NumberType type;
  std::vector<uint64_t> shape;
};

/// Parses the dictionary as NumPy writes it. InvalidArgument, with the reason, if it is another dictionary, of other
/// types (big-endian numbers, Python objects, records), or in Fortran order.
absl::StatusOr<NpyHead> ParseNpyDict(std::string_view dict);

struct NpyArray {
  NumberType type;
  std::vector<uint64_t> shape;
  ByteSpan values;  // in C order
};

/// Parses a file of version 1.0 as AppendNpyHead and NumPy write it. Nothing if it is another file, of other types, in
/// Fortran order, or if the size of the values does not match the shape.
std::optional<NpyArray> ParseNpy(ByteSpan file);

/// Returns DataLoss, with dtype and order in the message, unless numpy.load(allow_pickle=False) would read the file:
/// any version, type and order, but no Python objects.
absl::Status CheckNpy(ByteSpan file);

/// Returns the number of values of an array of that shape; nullopt if it exceeds 2^62.
std::optional<uint64_t> CountOf(std::span<const uint64_t> shape);

}  // namespace millrace
