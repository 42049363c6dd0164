#include "dataset_handle.h"

#include <pybind11/stl.h>

#include <atomic>
#include <chrono>
#include <future>
#include <stop_token>
#include <string>

#include "gil_release.h"
#include "plan/plan.h"

namespace millrace::python {

namespace {

constexpr std::chrono::milliseconds kSlice{50};

using Opened = absl::StatusOr<std::unique_ptr<Dataset>>;

// Opening happens on a thread of its own, so that this one, which holds the interpreter, can report progress and see
// signals.
Opened OpenWithProgress(Process& process, const std::string& uri, const py::object& progress) {
  std::atomic<uint64_t> done{0};
  std::atomic<uint64_t> total{0};
  std::stop_source stop;
  OpenOptions options;
  options.stop = stop.get_token();
  options.progress = [&](uint64_t bytes, uint64_t all) {
    total.store(all, std::memory_order_relaxed);
    done.store(bytes, std::memory_order_relaxed);
  };
  std::future<Opened> opened =
      std::async(std::launch::async, [&] { return Dataset::Open(process.runtime, process.stores, uri, options); });
  bool ready = false;
  uint64_t shown = 0;
  try {
    while (!ready) {
      {
        GilRelease release;
        ready = opened.wait_for(kSlice) == std::future_status::ready;
      }
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (progress.is_none() || done == shown) continue;
      shown = done;
      progress(shown, total.load());
    }
  } catch (...) {
    stop.request_stop();
    GilRelease release;
    opened.wait();  // what was started ends before its owner does
    throw;
  }
  return opened.get();
}

py::list Texts(const std::vector<std::string>& texts) {
  py::list list;
  for (const std::string& text : texts) list.append(ToPyText(text));
  return list;
}

py::dict ClassCounts(const Index& index) {
  py::dict counts;
  for (const ClassCount& entry : index.class_counts()) counts[ToPyText(entry.name)] = entry.samples;
  return counts;
}

}  // namespace

DatasetHandle::DatasetHandle(const std::string& uri, const py::object& progress)
    : uri_(uri), process_(CurrentProcess()) {
  dataset_.reset(ValueOrThrow(OpenWithProgress(*process_, uri, progress)).release());
}

std::tuple<uint64_t, uint64_t, uint64_t> DatasetHandle::Policy(const std::string& shuffle) const {
  const OrderPolicy policy = OrderPolicy::ForSamples(ValueOrThrow(ParseShuffle(shuffle)), index().mean_span_bytes(),
                                                     index().kind() == DataKind::kRawObjects);
  return {policy.extent, policy.window, policy.lanes};
}

void BindDataset(py::module_& module) {
  using Handle = DatasetHandle;
  py::class_<Handle, std::shared_ptr<Handle>>(module, "Dataset")
      .def(py::init<const std::string&, const py::object&>(), py::arg("uri"), py::arg("progress"))
      .def("policy", &Handle::Policy, py::arg("shuffle"))
      .def("__len__", [](const Handle& self) { return self.index().size(); })
      .def_property_readonly("uri", [](const Handle& self) { return ToPyText(self.uri()); })
      .def_property_readonly("fields", [](const Handle& self) { return Texts(self.index().field_names()); })
      .def_property_readonly("classes", [](const Handle& self) { return Texts(self.index().class_names()); })
      .def_property_readonly("class_counts", [](const Handle& self) { return ClassCounts(self.index()); })
      .def_property_readonly("kind", [](const Handle& self) { return std::string(KindName(self.index().kind())); })
      .def_property_readonly("objects", [](const Handle& self) { return self.index().objects(); })
      .def_property_readonly("total_bytes", [](const Handle& self) { return self.index().total_bytes(); })
      .def_property_readonly("fingerprint", [](const Handle& self) { return self.index().fingerprint(); });
}

}  // namespace millrace::python
