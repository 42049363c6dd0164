#include "numpy_array.h"

#include <array>
#include <functional>
#include <map>
#include <string>

namespace millrace::python {

namespace {

// The object is leaked, like all that the interpreter's end may touch. It is set once, by ImportNumpy.
struct NumpyFunctions {
  nb::object ndarray;
  nb::object empty;
  nb::object dtype;
  nb::object memory;
  std::map<std::string, nb::object, std::less<>> dtypes;  // of Dtype()
};
NumpyFunctions* numpy_functions = nullptr;

// Holds memory as NumPy takes it, by the buffer protocol. It is a type of CPython's own: one of nanobind costs several
// objects for each array.
struct Memory {
  PyObject base;
  void* data;
  Py_ssize_t bytes;
  PyObject* owner;
};

int ExportMemory(PyObject* self, Py_buffer* view, int flags) {
  auto* const memory = reinterpret_cast<Memory*>(self);
  return PyBuffer_FillInfo(view, self, memory->data, memory->bytes, 0, flags);
}

void DestroyMemory(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  Py_DECREF(reinterpret_cast<Memory*>(self)->owner);
  PyObject_Free(self);
  Py_DECREF(type);
}

nb::object MakeMemoryType() {
  std::array<PyType_Slot, 3> slots{{{Py_tp_dealloc, reinterpret_cast<void*>(&DestroyMemory)},
                                    {Py_bf_getbuffer, reinterpret_cast<void*>(&ExportMemory)},
                                    {0, nullptr}}};
  PyType_Spec spec{.name = "millrace._core.Memory",
                   .basicsize = sizeof(Memory),
                   .itemsize = 0,
                   .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                   .slots = slots.data()};
  auto type = nb::steal<nb::object>(PyType_FromSpec(&spec));
  if (!type.is_valid()) throw nb::python_error();
  return type;
}

}  // namespace

void ImportNumpy() {
  const nb::module_ numpy = nb::module_::import_("numpy");
  numpy_functions =
      new NumpyFunctions{numpy.attr("ndarray"), numpy.attr("empty"), numpy.attr("dtype"), MakeMemoryType(), {}};
}

nb::object Dtype(std::string_view name) {
  constexpr size_t kMostKept = 256;  // names of types of texts have lengths in them
  auto& dtypes = numpy_functions->dtypes;
  const auto found = dtypes.find(name);
  if (found != dtypes.end()) return found->second;
  nb::object made = numpy_functions->dtype(nb::str(name.data(), name.size()));
  if (dtypes.size() < kMostKept) dtypes.emplace(name, made);
  return made;
}

nb::object ArrayIn(void* data, size_t bytes, nb::handle owner, nb::handle dtype, const std::vector<Py_ssize_t>& dims) {
  const auto shape = nb::steal<nb::tuple>(PyTuple_New(static_cast<Py_ssize_t>(dims.size())));
  if (!shape.is_valid()) throw nb::python_error();
  for (size_t i = 0; i < dims.size(); ++i) {
    PyTuple_SetItem(shape.ptr(), static_cast<Py_ssize_t>(i), nb::int_(dims[i]).release().ptr());
  }
  // NumPy takes no memory for types of zero bytes, such as empty texts.
  if (bytes == 0) return numpy_functions->empty(shape, dtype);
  auto* const memory = PyObject_New(Memory, reinterpret_cast<PyTypeObject*>(numpy_functions->memory.ptr()));
  if (memory == nullptr) throw nb::python_error();
  memory->data = data;
  memory->bytes = static_cast<Py_ssize_t>(bytes);
  memory->owner = nb::borrow(owner).release().ptr();
  return numpy_functions->ndarray(shape, dtype, nb::steal(&memory->base));
}

}  // namespace millrace::python
