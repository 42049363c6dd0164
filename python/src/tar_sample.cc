#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "buffer_view.h"
#include "errors.h"
#include "shard/tar_encoder.h"

namespace millrace::python {

namespace {

// The members of a sample.
py::bytes TarSample(const std::string& key, const std::vector<std::pair<std::string, py::buffer>>& fields) {
  TarEncoder encoder;
  SampleShape shape;
  shape.key = key;
  std::vector<BufferView> values;
  for (const auto& [name, value] : fields) {
    values.emplace_back(value, PyBUF_SIMPLE);
    FieldShape& field = shape.fields.emplace_back();
    field.name = name;
    field.length = values.back().span().size();
  }
  // Judges the names, too.
  const uint64_t total = ValueOrThrow(encoder.SampleBytes(shape));
  PyObject* const bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(total));
  if (bytes == nullptr) throw py::error_already_set();
  auto result = py::reinterpret_steal<py::bytes>(bytes);
  auto* next = reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes));
  const auto append = [&next](ByteSpan piece) {
    next = std::copy(piece.begin(), piece.end(), next);
    return absl::OkStatus();
  };
  ThrowIfError(encoder.Begin([](ByteSpan) { return absl::OkStatus(); }));  // TarBegin gives what it writes
  ThrowIfError(encoder.BeginSample(shape, append));
  for (const BufferView& value : values) ThrowIfError(encoder.Add(value.span(), append));
  return result;
}

py::bytes TarBegin() {
  std::string begin;
  ThrowIfError(TarEncoder().Begin([&begin](ByteSpan piece) {
    begin.append(AsText(piece));
    return absl::OkStatus();
  }));
  return begin;
}

py::bytes TarEnd() {
  std::string end;
  TarEncoder encoder;
  ThrowIfError(encoder.Begin([](ByteSpan) { return absl::OkStatus(); }));
  ThrowIfError(encoder.End([&end](ByteSpan piece) {
    end.append(AsText(piece));
    return absl::OkStatus();
  }));
  return end;
}

}  // namespace

void BindTarSample(py::module_& module) {
  module.def("tar_sample", &TarSample, py::arg("key"), py::arg("fields"));
  module.def("tar_begin", &TarBegin);
  module.def("tar_end", &TarEnd);
}

}  // namespace millrace::python
