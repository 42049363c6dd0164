#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>

#include "errors.h"
#include "pipeline/batch_source.h"
#include "process.h"

namespace millrace::python {

/// Makes of batches what programs get. All of it is native: see Batches in loader_binding.cc. GIL held.
class BatchConverter {
 public:
  /// `convert` makes of an array what the program gets, e.g. a tensor; None: the array.
  explicit BatchConverter(py::object convert);

  /// The arrays of the batch, without a copy, which keep its memory and `process` alive; its values; its keys.
  py::dict ToDict(const BatchShape& shape, const std::shared_ptr<Process>& process, Batch batch) const;

 private:
  py::object Converted(const py::array& array) const;
  py::object ConvertedIfPossible(const py::array& array) const;
  py::object ToJson(const std::string& text) const;
  py::object LoadArrays(const Batch& batch, const BatchValues& values) const;
  py::object ToArrays(const Batch& batch, const BatchValues& values) const;
  py::object ToBoxes(const Batch& batch, const BatchValues& values) const;
  py::object ToValues(const Batch& batch, const BatchValues& values) const;

  py::object convert_;
  py::object scan_json_;  // json's scanner, which is native
};

}  // namespace millrace::python
