#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "arguments.h"
#include "base/size.h"
#include "bindings.h"
#include "errors.h"
#include "gil_release.h"
#include "loader_handle.h"
#include "numpy_array.h"
#include "process.h"
#include "worker_handle.h"

namespace millrace::python {

namespace {

void ConfigureFromPython(int io_threads, int cpu_threads, int cpu_nice, const std::string& memory, double outage_limit,
                         const std::string& metrics) {
  if (io_threads < 1 || io_threads > 64 || cpu_threads < 0 || cpu_threads > 1024) {
    Throw(absl::InvalidArgumentError("io_threads must be 1 to 64, cpu_threads 1 to 1024 or None for all CPUs"));
  }
  if (cpu_nice < 0 || cpu_nice > 19) Throw(absl::InvalidArgumentError("cpu_nice must be 0 to 19"));
  RuntimeOptions options{.io_threads = io_threads, .cpu_threads = cpu_threads};
  if (!memory.empty()) {
    options.memory_bytes = ToBytes("memory", memory);
    if (options.memory_bytes < Loader::kLeastMemoryBytes) {
      Throw(absl::InvalidArgumentError(fmt::format("memory is {}; no loader works with less than {}",
                                                   FormatSize(options.memory_bytes),
                                                   FormatSize(Loader::kLeastMemoryBytes))));
    }
  }
  constexpr double kMaxOutageSeconds = 7 * 24 * 3600;
  if (!(outage_limit >= 0 && outage_limit <= kMaxOutageSeconds)) {
    Throw(absl::InvalidArgumentError(fmt::format("outage_limit must be 0 to {} seconds", kMaxOutageSeconds)));
  }
  const std::chrono::duration<double> seconds(outage_limit);
  std::optional<MetricsAddress> address;
  if (!metrics.empty()) {
    absl::StatusOr<MetricsAddress> parsed = ParseMetricsAddress(metrics);
    if (!parsed.ok()) Throw(Annotate(parsed.status(), "metrics_port"));
    address = *std::move(parsed);
  }
  Configure(options, cpu_nice, std::chrono::duration_cast<std::chrono::nanoseconds>(seconds), address);
}

// Runs by atexit, while the interpreter is whole: work ends here, so that no thread of ours is busy while the process
// is torn down.
void Shutdown() {
  WorkerHandle::CloseAll();  // their functions need the GIL to end
  KeepGilFromOtherThreads();
  LoaderHandle::CloseAll();
  ReleaseProcess();
}

}  // namespace

}  // namespace millrace::python

NB_MODULE(_core, module) {
  namespace nb = nanobind;
  using namespace millrace::python;  // NOLINT: only inside this function
  // A daemon thread that ends with the process keeps its objects, which is no fault of the program.
  nb::set_leak_warnings(false);
  module.doc() = "The native part of millrace. Use the package; this module has no stable interface.";
  module.attr("__version__") = MILLRACE_VERSION;
  module.attr("STATUS_CODES") = StatusCodeNames();
  module.def("configure", &ConfigureFromPython, nb::arg("io_threads"), nb::arg("cpu_threads"), nb::arg("cpu_nice"),
             nb::arg("memory"), nb::arg("outage_limit"), nb::arg("metrics"));
  module.def("metrics_url", &MetricsUrl);
  module.def("to_bytes", &ToBytes, nb::arg("name"), nb::arg("size"));
  ImportNumpy();
  BindDataset(module);
  BindFiles(module);
  BindStagedDataset(module);
  BindLoader(module);
  BindObjectList(module);
  BindPlaces(module);
  BindPlan(module);
  BindCheckpoints(module);
  BindTarSample(module);
  BindWorker(module);
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&Shutdown));
}
