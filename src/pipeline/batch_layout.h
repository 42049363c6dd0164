#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "pipeline/batch_source.h"

namespace millrace {

/// Represents the places of the arrays of a batch of one shape in its slot of memory. Fixed for a loader.
class BatchLayout {
 public:
  /// Takes the `length` of rows of tokens, or 0 for other batches.
  explicit BatchLayout(uint64_t batch, uint64_t length = 0) : batch_(batch), length_(length) {}

  /// Adds an array [batch, row ...], behind the others. Rows that hold nothing are filled with `padding`: an element of
  /// the array, or, if its elements are floats, the bits of one.
  void Add(std::string name, std::string_view dtype, const std::vector<uint64_t>& row = {}, int64_t padding = 0);

  uint64_t batch() const { return batch_; }
  uint64_t length() const { return length_; }
  uint64_t bytes() const { return bytes_; }  // of the slot
  const BatchShape& shape() const { return shape_; }

  /// Returns the part of the array of that name that `row` of a slot has; empty if there is no such array.
  MutableByteSpan Row(std::byte* slot, std::string_view name, uint64_t row) const;
  /// Makes padding of elements first .. last-1 of the array, counted through all rows, if there is such an array.
  void Pad(std::byte* slot, std::string_view name, uint64_t first, uint64_t last) const;
  /// Makes padding of that row of all arrays.
  void PadRow(std::byte* slot, uint64_t row) const;
  /// Returns all arrays of a slot, and makes padding of the rows from `rows` on.
  std::vector<BatchArray> Deliver(std::byte* slot, uint64_t rows) const;

 private:
  struct Place {
    uint64_t offset = 0;
    uint64_t row_bytes = 0;
    int64_t padding = 0;
  };
  void Pad(std::byte* slot, size_t array, uint64_t first, uint64_t last) const;
  size_t Find(std::string_view name) const;  // places_.size(): there is none

  uint64_t batch_;
  uint64_t length_;
  BatchShape shape_;
  std::vector<Place> places_;  // of the same arrays
  uint64_t bytes_ = 0;
};

/// Shortens the batch to its first `rows` rows, in the same memory.
void Shorten(Batch* batch, uint64_t rows);

/// Copies the first `rows` rows of `from` to the rows of `to` from `at` on. Arrays and values of `from` are those of
/// `to`.
void CopyRows(Batch&& from, uint64_t rows, Batch* to, uint64_t at);

/// Checks that the batch has one of the declared shapes. Each of its arrays must be as large as declared, and it must
/// not have others. A batch may have fewer rows than declared; its arrays are that much smaller. Internal, naming the
/// array, if the shape is another. A program that was compiled for the shapes would then be compiled again, or read
/// beyond the memory.
absl::Status CheckShape(const std::vector<BatchShape>& declared, const Batch& batch);

}  // namespace millrace
