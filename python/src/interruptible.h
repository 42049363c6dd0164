#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <stop_token>
#include <type_traits>
#include <utility>

#include "dataset/dataset.h"
#include "errors.h"

namespace millrace::python {

namespace nb = nanobind;

/// Runs `work` on a thread of its own and waits for it. The calling thread, which holds the interpreter, can thereby
/// report progress and see signals. `progress` is None, or a function of what is done and in total, called here about
/// ten times a second. Exceptions of signal handlers leave this function, after the work was asked to stop and has
/// ended.
void RunInterruptibly(const nb::object& progress,
                      const std::function<void(const std::stop_token&, const ProgressFn&)>& work);

/// Does the same without progress, for work that returns an absl::Status or StatusOr. Returns its value, or throws its
/// error.
template <typename Work>
auto RunInterruptibly(Work work) {
  std::invoke_result_t<Work&, const std::stop_token&> result;
  RunInterruptibly(nb::none(), [&](const std::stop_token& stop, const ProgressFn&) { result = work(stop); });
  if constexpr (std::is_same_v<decltype(result), absl::Status>) {
    ThrowIfError(result);
  } else {
    return ValueOrThrow(std::move(result));
  }
}

}  // namespace millrace::python
