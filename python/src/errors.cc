#include "errors.h"

#include <string>

namespace millrace::python {

namespace {

nb::str Decode(std::string_view text, const char* errors) {
  PyObject* const decoded = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), errors);
  if (decoded == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(decoded);
}

[[noreturn]] void Raise(const nb::object& type, std::string_view message) {
  // A message must always be printable, whatever bytes a key has.
  PyErr_SetObject(type.ptr(), Decode(message, "backslashreplace").ptr());
  throw nb::python_error();
}

nb::object Errors(const char* name) {
  return nb::module_::import_("millrace._errors").attr(name);
}

}  // namespace

void Throw(const absl::Status& status) {
  Raise(Errors("BY_CODE")[ToPyText(absl::StatusCodeToString(status.code()))], ToStd(status.message()));
}

void ThrowUsage(std::string_view message) {
  Raise(Errors("UsageError"), message);
}

nb::str ToPyText(std::string_view text) {
  return Decode(text, "surrogateescape");
}

nb::bytes ToPyBytes(std::string_view bytes) {
  return nb::bytes(bytes.data(), bytes.size());
}

std::string TextOf(nb::handle object) {
  const nb::str text(object);
  const auto bytes = nb::steal<nb::bytes>(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
  if (!bytes.is_valid()) throw nb::python_error();
  return {bytes.c_str(), bytes.size()};
}

std::string MessageOf(const nb::python_error& error) {
  try {
    return TextOf(error.value());
  } catch (const std::exception&) {
    return TextOf(error.type().attr("__name__"));
  }
}

std::string DescribeError(const nb::python_error& error) {
  return TextOf(error.type().attr("__name__")) + ": " + MessageOf(error);
}

nb::tuple StatusCodeNames() {
  nb::list names;
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    names.append(ToPyText(absl::StatusCodeToString(static_cast<absl::StatusCode>(code))));
  }
  return nb::tuple(names);
}

}  // namespace millrace::python
