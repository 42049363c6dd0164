#include "errors.h"

#include <string>

namespace millrace::python {

namespace {

py::str Decode(std::string_view text, const char* errors) {
  PyObject* decoded = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), errors);
  if (decoded == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(decoded);
}

[[noreturn]] void Raise(const py::object& type, std::string_view message) {
  // A message must always be printable, whatever bytes a key has.
  PyErr_SetObject(type.ptr(), Decode(message, "backslashreplace").ptr());
  throw py::error_already_set();
}

py::object Errors(const char* name) {
  return py::module_::import("millrace._errors").attr(name);
}

}  // namespace

void Throw(const absl::Status& status) {
  Raise(Errors("BY_CODE")[py::str(absl::StatusCodeToString(status.code()))], ToStd(status.message()));
}

void ThrowUsage(std::string_view message) {
  Raise(Errors("UsageError"), message);
}

py::str ToPyText(std::string_view text) {
  return Decode(text, "surrogateescape");
}

py::tuple StatusCodeNames() {
  py::list names;
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    names.append(absl::StatusCodeToString(static_cast<absl::StatusCode>(code)));
  }
  return py::tuple(names);
}

}  // namespace millrace::python
