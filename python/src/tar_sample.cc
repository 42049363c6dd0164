#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "buffer_view.h"
#include "errors.h"
#include "shard/tar_encoder.h"

namespace millrace::python {

namespace {

// Returns the members of a sample.
nb::bytes TarSample(const std::string& key, const std::vector<std::pair<std::string, nb::object>>& fields) {
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
  if (bytes == nullptr) throw nb::python_error();
  auto result = nb::steal<nb::bytes>(bytes);
  auto* next = reinterpret_cast<std::byte*>(PyBytes_AsString(bytes));
  const auto append = [&next](ByteSpan piece) {
    next = std::copy(piece.begin(), piece.end(), next);
    return absl::OkStatus();
  };
  ThrowIfError(encoder.Begin([](ByteSpan) { return absl::OkStatus(); }));  // TarBegin gives what it writes
  ThrowIfError(encoder.BeginSample(shape, append));
  for (const BufferView& value : values) ThrowIfError(encoder.Add(value.span(), append));
  return result;
}

nb::bytes TarBegin() {
  std::string begin;
  ThrowIfError(TarEncoder().Begin([&begin](ByteSpan piece) {
    begin.append(AsText(piece));
    return absl::OkStatus();
  }));
  return ToPyBytes(begin);
}

nb::bytes TarEnd() {
  std::string end;
  TarEncoder encoder;
  ThrowIfError(encoder.Begin([](ByteSpan) { return absl::OkStatus(); }));
  ThrowIfError(encoder.End([&end](ByteSpan piece) {
    end.append(AsText(piece));
    return absl::OkStatus();
  }));
  return ToPyBytes(end);
}

}  // namespace

void BindTarSample(nb::module_& module) {
  module.def("tar_sample", &TarSample, nb::arg("key"), nb::arg("fields"));
  module.def("tar_begin", &TarBegin);
  module.def("tar_end", &TarEnd);
}

}  // namespace millrace::python
