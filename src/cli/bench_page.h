#pragma once

#include <stop_token>
#include <string>

#include "base/status.h"

/// Makes the page of `millrace bench`, which a program in Python draws (python/millrace/bench, a part of this program).

namespace millrace::cli {

/// Returns a Python that can draw the page. FailedPrecondition if there is none.
absl::StatusOr<std::string> FindPagePython(const std::stop_token& stop);

/// Draws the page of `figures`, which are BenchPageJson.
absl::Status WriteBenchPage(const std::string& python, const std::string& figures, const std::string& path);

}  // namespace millrace::cli
