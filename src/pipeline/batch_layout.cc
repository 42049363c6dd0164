#include "pipeline/batch_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "shard/token_values.h"

namespace millrace {

namespace {

constexpr uint64_t kArrayAlignment = 64;

uint64_t ElementBytes(std::string_view dtype) {
  if (dtype == "uint8" || dtype == "bool") return 1;
  return dtype == "int64" ? 8 : 4;
}

uint64_t BytesOfArray(const ArrayShape& array) {
  return std::accumulate(array.dims.begin(), array.dims.end(), ElementBytes(array.dtype), std::multiplies<>());
}

}  // namespace

void BatchLayout::Add(std::string name, std::string_view dtype, const std::vector<uint64_t>& row, int64_t padding) {
  ArrayShape& array = shape_.emplace_back(ArrayShape{std::move(name), std::string(dtype), {batch_}});
  array.dims.insert(array.dims.end(), row.begin(), row.end());
  const uint64_t bytes = BytesOfArray(array);
  places_.push_back({bytes_, bytes / std::max<uint64_t>(batch_, 1), padding});
  bytes_ += (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
}

size_t BatchLayout::Find(std::string_view name) const {
  const auto found =
      std::find_if(shape_.begin(), shape_.end(), [name](const auto& array) { return array.name == name; });
  return static_cast<size_t>(found - shape_.begin());
}

MutableByteSpan BatchLayout::Row(std::byte* slot, std::string_view name, uint64_t row) const {
  const size_t array = Find(name);
  if (array == places_.size()) return {};
  const Place& place = places_[array];
  return {slot + place.offset + row * place.row_bytes, place.row_bytes};
}

void BatchLayout::Pad(std::byte* slot, size_t array, uint64_t first, uint64_t last) const {
  const Place& place = places_[array];
  const uint64_t element = ElementBytes(shape_[array].dtype);
  std::byte* const from = slot + place.offset + first * element;
  if (place.padding == 0 || element == 1) {
    std::memset(from, static_cast<int>(place.padding), (last - first) * element);
  } else {
    FillTokens(element == 8 ? TokenType::kInt64 : TokenType::kInt32, place.padding, from, last - first);
  }
}

void BatchLayout::Pad(std::byte* slot, std::string_view name, uint64_t first, uint64_t last) const {
  const size_t array = Find(name);
  if (array < places_.size()) Pad(slot, array, first, last);
}

void BatchLayout::PadRow(std::byte* slot, uint64_t row) const {
  for (size_t i = 0; i < places_.size(); ++i) {
    const uint64_t elements = places_[i].row_bytes / ElementBytes(shape_[i].dtype);
    Pad(slot, i, row * elements, (row + 1) * elements);
  }
}

std::vector<BatchArray> BatchLayout::Deliver(std::byte* slot, uint64_t rows) const {
  std::vector<BatchArray> arrays;
  for (size_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    const uint64_t elements = place.row_bytes / ElementBytes(shape_[i].dtype);
    Pad(slot, i, rows * elements, batch_ * elements);
    arrays.push_back({shape_[i].name, {slot + place.offset, batch_ * place.row_bytes}});
  }
  return arrays;
}

void Shorten(Batch* batch, uint64_t rows) {
  if (rows >= batch->size) return;
  for (BatchArray& array : batch->arrays) array.bytes = array.bytes.first(array.bytes.size() / batch->size * rows);
  for (BatchValues& values : batch->values) values.rows.resize(rows);
  batch->keys.resize(rows);
  batch->size = rows;
}

void CopyRows(Batch&& from, uint64_t rows, Batch* to, uint64_t at) {
  if (rows == 0) return;
  for (size_t i = 0; i < to->arrays.size(); ++i) {
    const uint64_t row_bytes = to->arrays[i].bytes.size() / to->size;
    std::memcpy(to->arrays[i].bytes.data() + at * row_bytes, from.arrays[i].bytes.data(), rows * row_bytes);
  }
  const auto move = [&](std::vector<std::string>& texts, std::vector<std::string>* into) {
    std::move(texts.begin(), texts.begin() + static_cast<std::ptrdiff_t>(rows),
              into->begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (size_t i = 0; i < to->values.size(); ++i) move(from.values[i].rows, &to->values[i].rows);
  move(from.keys, &to->keys);
}

absl::Status CheckShape(const std::vector<BatchShape>& declared, const Batch& batch) {
  if (batch.shape >= declared.size()) {
    return absl::InternalError(
        fmt::format("a batch of {} rows of {} tokens is of none of the {} shapes that the loader has declared",
                    batch.size, batch.length, declared.size()));
  }
  const BatchShape& shape = declared[batch.shape];
  for (const ArrayShape& array : shape) {
    const uint64_t bytes = batch.Bytes(array.name).size();
    const uint64_t row_bytes = BytesOfArray(array) / std::max<uint64_t>(array.dims.front(), 1);
    if (bytes == batch.size * row_bytes && batch.size <= array.dims.front()) continue;
    return absl::InternalError(
        fmt::format("'{}' of a batch has {} bytes, and the loader has declared {} of [{}]: {} bytes", array.name, bytes,
                    array.dtype, fmt::join(array.dims, ", "), BytesOfArray(array)));
  }
  for (const BatchArray& array : batch.arrays) {
    const auto same = [&](const ArrayShape& each) { return each.name == array.name; };
    if (std::any_of(shape.begin(), shape.end(), same)) continue;
    return absl::InternalError(fmt::format("the loader has declared no array '{}', and a batch has one", array.name));
  }
  return absl::OkStatus();
}

}  // namespace millrace
