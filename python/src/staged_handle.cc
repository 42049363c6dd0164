#include "staged_handle.h"

#include <pybind11/stl.h>

#include <utility>

#include "arguments.h"
#include "bindings.h"
#include "dataset_handle.h"
#include "interruptible.h"

namespace millrace::python {

StagedHandle::StagedHandle(const std::string& uri, py::object progress, OpenOptions options, const AwsChoice& choice)
    : uri_(uri), process_(CurrentProcess()), progress_(std::move(progress)) {
  Stores& stores = process_->stores.With(choice);
  data_.reset(RunInterruptibly([&](const std::stop_token& stop) {
                options.stop = stop;
                return StagedDataset::Open(process_->runtime, stores, uri, options);
              }).release());
}

StagedFacts StagedHandle::Describe(const LoaderOptions& options) {
  CheckOwnProcess();
  absl::StatusOr<StagedFacts> facts;
  RunInterruptibly(progress_, [&](const std::stop_token& stop, const ProgressFn& report) {
    data_->Continue(stop, report);
    facts = DescribeStaged(*data_, options);
  });
  data_->Continue({});
  ThrowIfError(facts.status());
  auto* const kept = new std::shared_ptr<const Dataset>(std::move(facts->dataset));
  facts->dataset = {kept->get(), [kept, owner = getpid()](const Dataset*) {
                      if (getpid() == owner) delete kept;
                    }};
  return *std::move(facts);
}

void BindStagedDataset(py::module_& module) {
  using Handle = StagedHandle;
  module.attr("STAGED_FROM_BYTES") = Stages::kUsualFromBytes;
  py::class_<Handle, std::shared_ptr<Handle>>(module, "StagedDataset")
      .def(py::init([](const std::string& uri, const py::object& progress, std::string endpoint, std::string profile,
                       std::string region, const std::string& index, uint64_t part, uint64_t parts) {
             OpenOptions options;
             options.index = ToIndexUse(index);
             options.share = {.part = part, .parts = parts};
             const AwsChoice choice{std::move(endpoint), std::move(profile), std::move(region)};
             return std::make_shared<Handle>(uri, progress, std::move(options), choice);
           }),
           py::arg("uri"), py::arg("progress"), py::kw_only(), py::arg("endpoint"), py::arg("profile"),
           py::arg("region"), py::arg("index"), py::arg("part"), py::arg("parts"))
      .def_property_readonly("is_usual",
                             [](const Handle& self) { return self.total_bytes() > Stages::kUsualFromBytes; })
      .def_property_readonly("uri", [](const Handle& self) { return ToPyText(self.uri()); });
}

}  // namespace millrace::python
