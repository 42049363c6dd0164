#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "loader_handle.h"
#include "pipeline/cache_forecast.h"

namespace millrace::python {

namespace nb = nanobind;

/// Returns the result of Loader.report(), by the names that millrace.Report documents; `digest` is None without
/// `with_digest`. GIL held.
nb::dict ToDict(const LoaderCounts& report, const std::optional<CacheForecast>& forecast, bool with_digest);

}  // namespace millrace::python
