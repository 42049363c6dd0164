#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::python {

namespace nb = nanobind;

/// These are whole numbers that Python gives, in any array that NumPy can make int64 of.
using Numbers = nb::ndarray<const int64_t, nb::c_contig, nb::device::cpu>;
/// This is an array of Python that is to be filled. The argument is declared with `.noconvert()`, so that it is not a
/// copy.
template <typename T>
using FillableArray = nb::ndarray<T, nb::c_contig, nb::device::cpu>;

/// Imports NumPy, so that no later call does: an import is a place where handlers of signals run.
void ImportNumpy();

/// Returns numpy.dtype(name). GIL held, as for all functions here.
nb::object Dtype(std::string_view name);

/// Returns a NumPy array of that type and shape in `bytes` of memory at `data`, which `owner` keeps. The array can be
/// written to.
nb::object ArrayIn(void* data, size_t bytes, nb::handle owner, nb::handle dtype, const std::vector<Py_ssize_t>& dims);

/// Returns a NumPy array of the numbers, without a copy.
template <typename T>
nb::object ArrayOf(std::vector<T> numbers) {
  auto* const held = new std::vector<T>(std::move(numbers));
  const nb::capsule owner(held, [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(held->data(), {held->size()}, owner));
}

}  // namespace millrace::python
