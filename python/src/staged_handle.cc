#include "staged_handle.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <utility>

#include "arguments.h"
#include "bindings.h"
#include "dataset_handle.h"
#include "interruptible.h"

namespace millrace::python {

StagedHandle::StagedHandle(const std::string& uri, nb::object progress, OpenOptions options, const AwsChoice& choice)
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

void BindStagedDataset(nb::module_& module) {
  using Handle = StagedHandle;
  nb::class_<Handle>(module, "StagedDataset")
      .def(
          "__init__",
          [](Handle* self, const std::string& uri, const nb::object& progress, std::string endpoint,
             std::string profile, std::string region, const std::string& index, uint64_t part, uint64_t parts) {
            OpenOptions options;
            options.index = ToIndexUse(index);
            options.share = {.part = part, .parts = parts};
            const AwsChoice choice{std::move(endpoint), std::move(profile), std::move(region)};
            new (self) Handle(uri, progress, std::move(options), choice);
          },
          nb::arg("uri"), nb::arg("progress").none(), nb::kw_only(), nb::arg("endpoint"), nb::arg("profile"),
          nb::arg("region"), nb::arg("index"), nb::arg("part"), nb::arg("parts"))
      .def_prop_ro("uri", [](const Handle& self) { return ToPyText(self.uri()); });
}

}  // namespace millrace::python
