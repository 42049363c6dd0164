#pragma once

#include <pybind11/pybind11.h>

namespace millrace::python {

/// _core.Plan: the plan of one epoch, over whole arrays.
void BindPlan(pybind11::module_& module);

}  // namespace millrace::python
