#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

#include "base/status.h"

/// This is the border between absl::Status and Python exceptions. The table of classes is millrace/_errors.py.

namespace millrace::python {

namespace nb = nanobind;

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
nb::str ToPyText(std::string_view text);

/// Makes bytes of Python.
nb::bytes ToPyBytes(std::string_view bytes);

/// str(object) in UTF-8; what has no such form becomes escapes.
std::string TextOf(nb::handle object);

/// Returns the message of an exception alone. An exception may raise another one when it is asked for its text.
std::string MessageOf(const nb::python_error& error);

/// Returns "ValueError: message".
std::string DescribeError(const nb::python_error& error);

/// Returns the names of all codes except OK, for the test of the table.
nb::tuple StatusCodeNames();

}  // namespace millrace::python
