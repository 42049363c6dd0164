#pragma once

#include <fmt/format.h>
#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/size.h"
#include "errors.h"

/// These functions convert arguments, with messages that name the option. Messages of the bindings would list C++
/// signatures.

namespace millrace::python {

inline uint64_t ToNatural(std::string_view option, const nb::int_& number) {
  const uint64_t value = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() == nullptr) return value;
  PyErr_Clear();
  Throw(absl::InvalidArgumentError(
      fmt::format("{} is {}; it must be 0 to 18446744073709551615", option, TextOf(number))));
}

inline uint64_t ToBytes(std::string_view option, std::string_view size) {
  const absl::StatusOr<uint64_t> bytes = ParseSize(size);
  ThrowIfError(Annotate(bytes.status(), option));
  return *bytes;
}

template <typename T>
struct Choice {
  std::string_view name;
  T value;
};

template <typename T, size_t n>
T Choose(std::string_view option, std::string_view text, const Choice<T> (&choices)[n]) {
  std::string names;
  for (const Choice<T>& choice : choices) {
    if (choice.name == text) return choice.value;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", choice.name);
  }
  Throw(absl::InvalidArgumentError(fmt::format("{} is '{}'; choose one of {}", option, text, names)));
}

}  // namespace millrace::python
