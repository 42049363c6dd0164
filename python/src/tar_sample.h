#pragma once

#include <pybind11/pybind11.h>

namespace millrace::python {

/// _core.tar_begin, tar_sample and tar_end: the bytes of WebDataset shards.
void BindTarSample(pybind11::module_& module);

}  // namespace millrace::python
