#pragma once

#include <pybind11/pybind11.h>

#include <optional>

#include "pipeline/cache_forecast.h"
#include "pipeline/loader.h"

namespace millrace::python {

namespace py = pybind11;

/// What Loader.report() gives, by the names that millrace.Report documents; `digest` is None without `with_digest`. GIL
/// held.
py::dict ToDict(const LoaderReport& report, const std::optional<CacheForecast>& forecast, bool with_digest);

}  // namespace millrace::python
