#pragma once

#include <pybind11/pybind11.h>

namespace millrace::python {

/// _core.list_objects and read_objects: whole objects, each as (URI, bytes, ETag); of -1 bytes: not known yet.
void BindObjectList(pybind11::module_& module);

}  // namespace millrace::python
