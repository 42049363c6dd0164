#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "pipeline/batch_source.h"

namespace millrace {

/// Where the arrays of a batch of one shape lie in its slot of memory. Fixed for a loader.
class BatchLayout {
 public:
  /// `length` is that of rows of tokens, else 0.
  explicit BatchLayout(uint64_t batch, uint64_t length = 0) : batch_(batch), length_(length) {}

  /// Adds an array [batch, row ...], behind the others. Rows that hold nothing are filled with `padding`: an element of
  /// the array, or, where its elements are floats, the bits of one.
  void Add(std::string name, std::string_view dtype, const std::vector<uint64_t>& row = {}, int64_t padding = 0);

  uint64_t batch() const { return batch_; }
  uint64_t length() const { return length_; }
  uint64_t bytes() const { return bytes_; }  // of the slot
  const BatchShape& shape() const { return shape_; }

  /// The part of the array of that name that `row` of a slot has; empty if there is no such array.
  MutableByteSpan Row(std::byte* slot, std::string_view name, uint64_t row) const;
  /// Elements first .. last-1 of the array, counted through all rows, become padding, if there is such an array.
  void Pad(std::byte* slot, std::string_view name, uint64_t first, uint64_t last) const;
  /// That row of all arrays becomes padding.
  void PadRow(std::byte* slot, uint64_t row) const;
  /// All arrays of a slot, whose rows from `rows` on become padding.
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

/// The batch keeps its first `rows` rows, in the same memory.
void Shorten(Batch* batch, uint64_t rows);

/// Rows from `at` on of `to` become the first `rows` rows of `from`, whose arrays and values are those of `to`.
void CopyRows(Batch&& from, uint64_t rows, Batch* to, uint64_t at);

/// Whether the batch has one of the declared shapes: each of its arrays is as large as declared, and it has no others.
/// A batch may have fewer rows than declared; its arrays are that much smaller. Internal, naming the array, if it has
/// not: a program that was compiled for the shapes would be compiled once more, or read beyond the memory.
absl::Status CheckShape(const std::vector<BatchShape>& declared, const Batch& batch);

}  // namespace millrace
