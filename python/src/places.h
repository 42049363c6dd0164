#pragma once

#include <pybind11/pybind11.h>

namespace millrace::python {

/// What a file system on stores needs beside files: _core.list_place, stat_object, remove_objects and copy_object.
void BindPlaces(pybind11::module_& module);

}  // namespace millrace::python
