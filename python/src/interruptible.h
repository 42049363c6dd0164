#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <stop_token>

#include "dataset/dataset.h"

namespace millrace::python {

namespace py = pybind11;

/// Runs `work` on a thread of its own and waits for it, so that this one, which holds the interpreter, can report
/// progress (None, or a function of what is done and in total, called here about ten times a second) and see signals:
/// what their handlers raise comes out of here, after the work was asked to stop and has ended.
void RunInterruptibly(const py::object& progress,
                      const std::function<void(const std::stop_token&, const ProgressFn&)>& work);

}  // namespace millrace::python
