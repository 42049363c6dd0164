#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decode/half_float.h"
#include "decode/pixel_scale.h"
#include "errors.h"
#include "pipeline/batch_field.h"
#include "pipeline/batch_source.h"
#include "process.h"

namespace millrace::python {

/// An image that lies in batches as bytes, or as floats that are to become halves, and that programs get as `element`s.
struct FloatImage {
  std::string name;
  size_t channels = 3;
  bool channels_first = false;
  PixelScale scale;
  std::optional<HalfType> half;     // none: floats
  std::optional<HalfScale> halves;  // if there is such a type
  py::dtype element = py::dtype("float32");
  py::object view = py::none();  // a type of torch: what `convert` makes of the array is viewed as that
};

/// The form in which programs get batches.
struct HandOver {
  py::object convert = py::none();    // makes of an array what the program gets, e.g. a tensor; None: the array
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
  py::dict ToDict(const BatchShape& shape, const std::shared_ptr<Process>& process, Batch batch) const;
  /// The same, or the tuple of its entries that is wanted. KeyError where there is no such entry.
  py::object Convert(const BatchShape& shape, const std::shared_ptr<Process>& process, Batch batch) const;

 private:
  /// Returns the floats of `array`, which lies in the batch, as the program gets them.
  py::object ToFloats(const Batch& batch, const ArrayShape& array, const FloatImage& image,
                      const std::vector<py::ssize_t>& dims) const;
  py::object Converted(const py::array& array) const;
  py::object ConvertedIfPossible(const py::array& array) const;
  py::object ToJson(const std::string& text) const;
  /// Writes what the program has chosen into the rows without a value.
  void Pad(const py::array& stacked, const BatchValues& values) const;
  py::object LoadArrays(const Batch& batch, const BatchValues& values) const;
  py::object ToArrays(const Batch& batch, const BatchValues& values) const;
  py::object ToBoxes(const Batch& batch, const BatchValues& values) const;
  py::object ToValues(const Batch& batch, const BatchValues& values) const;

  HandOver to_;
  py::object scan_json_;        // json's scanner, which is native
  py::object detect_encoding_;  // json's
};

}  // namespace millrace::python
