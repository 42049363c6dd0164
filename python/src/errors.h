#pragma once

#include <pybind11/pybind11.h>

#include <string_view>

#include "base/status.h"

/// The border between absl::Status and Python exceptions. The table of classes is millrace/_errors.py.

namespace millrace::python {

namespace py = pybind11;

/// Raises the exception for an error, with its message. GIL held.
[[noreturn]] void Throw(const absl::Status& status);

/// Raises millrace.UsageError: an object was used where or when it cannot work. GIL held.
[[noreturn]] void ThrowUsage(std::string_view message);

inline void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) Throw(status);
}

template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  ThrowIfError(value.status());
  return *std::move(value);
}

/// Text that may be any bytes, such as keys of objects: what is not UTF-8 becomes lone surrogates, as in os.fsdecode.
py::str ToPyText(std::string_view text);

/// The names of all codes but OK, for the test of the table.
py::tuple StatusCodeNames();

}  // namespace millrace::python
