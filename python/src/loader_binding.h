#pragma once

#include <pybind11/pybind11.h>

namespace millrace::python {

/// _core.Loader, and _core.Batches, which its loops go through.
void BindLoader(pybind11::module_& module);

}  // namespace millrace::python
