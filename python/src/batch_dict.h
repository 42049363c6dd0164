#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "decode/half_float.h"
#include "decode/pixel_scale.h"
#include "errors.h"
#include "pipeline/batch_field.h"
#include "pipeline/batch_source.h"
#include "process.h"

namespace millrace::python {

/// Describes an image that is in batches as bytes, or as floats that are to become halves, and that programs get as
/// `element`s.
struct FloatImage {
  std::string name;
  size_t channels = 3;
  bool channels_first = false;
  PixelScale scale;
  std::optional<HalfType> half;     // none: floats
  std::optional<HalfScale> halves;  // if there is such a type
  nb::object element;               // the type of NumPy
  nb::object view = nb::none();     // a type of torch: what `convert` makes of the array is viewed as that
};

/// Describes the form in which programs get batches.
struct HandOver {
  nb::object convert = nb::none();    // makes of an array what the program gets, e.g. a tensor; None: the array
  std::vector<FieldPadding> padding;  // of arrays that are values; without an entry here, zeros
  std::vector<FloatImage> floats;
  std::vector<std::string> as_tuple;  // the entries that a batch has, as a tuple; empty: all of them, as a dict
};

/// Makes of batches what programs get. All of it is native: see Batches in loader_binding.cc. GIL held.
class BatchConverter {
 public:
  explicit BatchConverter(HandOver hand_over);

  /// The arrays of the batch, which keep its memory and `process` alive: only images that become floats are copied. Its
  /// values; its keys.
  nb::dict ToDict(const BatchShape& shape, const std::shared_ptr<Process>& process, Batch batch) const;
  /// Returns the same, or the tuple of its entries that is wanted. Throws KeyError if there is no such entry.
  nb::object Convert(const BatchShape& shape, const std::shared_ptr<Process>& process, Batch batch) const;

  /// Returns the CPU time that the floats of images took since the last call.
  std::chrono::nanoseconds TakeCpuTime() { return std::exchange(cpu_time_, {}); }

 private:
  /// Returns the floats of `array`, which is in the batch, as the program gets them.
  nb::object ToFloats(const Batch& batch, const ArrayShape& array, const FloatImage& image,
                      const std::vector<Py_ssize_t>& dims) const;
  nb::object Converted(const nb::object& array) const;
  nb::object ConvertedIfPossible(const nb::object& array) const;
  nb::object ToJson(const std::string& text) const;
  /// Writes what the program has chosen into the rows without a value.
  void Pad(const nb::object& stacked, const BatchValues& values) const;
  nb::object LoadArrays(const Batch& batch, const BatchValues& values) const;
  nb::object ToArrays(const Batch& batch, const BatchValues& values) const;
  nb::object ToBoxes(const Batch& batch, const BatchValues& values) const;
  nb::object ToValues(const Batch& batch, const BatchValues& values) const;

  HandOver to_;
  mutable std::chrono::nanoseconds cpu_time_{0};
  nb::object scan_json_;        // json's scanner, which is native
  nb::object detect_encoding_;  // json's
};

}  // namespace millrace::python
