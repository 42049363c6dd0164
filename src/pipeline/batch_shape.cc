#include "pipeline/batch_shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

namespace millrace {

namespace {

constexpr std::array<std::string_view, 10> kArrays{"image", "tokens", "token_mask", "position_ids", "segment_ids",
                                                   "row",   "label",  "mask",       "sample",       "part"};

uint64_t BytesOf(std::string_view dtype) {
  if (dtype == "uint8" || dtype == "bool") return 1;
  return dtype == "int64" ? 8 : 4;
}

}  // namespace

ByteSpan ArrayOf(const Batch& batch, std::string_view name) {
  if (name == "image") return batch.images;
  if (name == "tokens") return batch.tokens;
  if (name == "token_mask") return std::as_bytes(batch.token_mask);
  if (name == "position_ids") return std::as_bytes(batch.position_ids);
  if (name == "segment_ids") return std::as_bytes(batch.segment_ids);
  if (name == "row") return std::as_bytes(batch.rows);
  if (name == "label") return std::as_bytes(batch.labels);
  if (name == "mask") return std::as_bytes(batch.mask);
  if (name == "sample") return std::as_bytes(batch.samples);
  if (name == "part") return std::as_bytes(batch.parts);
  return {};
}

absl::Status CheckShape(const std::vector<BatchShape>& declared, const Batch& batch) {
  if (batch.shape >= declared.size()) {
    return absl::InternalError(
        fmt::format("a batch of {} rows of {} tokens is of none of the {} shapes that the loader has declared",
                    batch.size, batch.length, declared.size()));
  }
  const BatchShape& shape = declared[batch.shape];
  for (const std::string_view name : kArrays) {
    const auto array = std::find_if(shape.begin(), shape.end(), [name](const ArrayShape& a) { return a.name == name; });
    const ByteSpan bytes = ArrayOf(batch, name);
    const uint64_t wanted = array == shape.end() ? 0
                                                 : std::accumulate(array->dims.begin(), array->dims.end(),
                                                                   BytesOf(array->dtype), std::multiplies<>());
    if (bytes.size() == wanted) continue;
    if (array == shape.end()) {
      return absl::InternalError(fmt::format("the loader has declared no array '{}', and a batch has one", name));
    }
    return absl::InternalError(
        fmt::format("'{}' of a batch has {} bytes, and the loader has declared {} of [{}]: {} bytes", name,
                    bytes.size(), array->dtype, fmt::join(array->dims, ", "), wanted));
  }
  return absl::OkStatus();
}

}  // namespace millrace
