#include "numpy_array.h"

namespace millrace::python {

namespace {

// Leaked, like all that the interpreter's end may touch. Set once, by ImportNumpy.
struct NumpyFunctions {
  nb::object ndarray;
  nb::object empty;
  nb::object dtype;
};
NumpyFunctions* numpy_functions = nullptr;

}  // namespace

void ImportNumpy() {
  const nb::module_ numpy = nb::module_::import_("numpy");
  numpy_functions = new NumpyFunctions{numpy.attr("ndarray"), numpy.attr("empty"), numpy.attr("dtype")};
}

nb::object Dtype(std::string_view name) {
  return numpy_functions->dtype(nb::str(name.data(), name.size()));
}

nb::object ArrayIn(void* data, size_t bytes, nb::handle owner, nb::handle dtype, const std::vector<Py_ssize_t>& dims) {
  nb::list shape;
  for (const Py_ssize_t each : dims) shape.append(each);
  // NumPy takes no memory for types of zero bytes, such as empty texts.
  if (bytes == 0) return numpy_functions->empty(nb::tuple(shape), dtype);
  const nb::object memory = nb::cast(nb::ndarray<nb::memview, uint8_t, nb::ndim<1>>(data, {bytes}, owner));
  return numpy_functions->ndarray(nb::tuple(shape), dtype, memory);
}

}  // namespace millrace::python
