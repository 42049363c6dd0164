#include "plan_array.h"

#include <fmt/format.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "errors.h"
#include "gil_release.h"
#include "loader_handle.h"
#include "plan/plan.h"

namespace millrace::python {

namespace {

using Numbers = py::array_t<int64_t, py::array::c_style>;
using Handles = std::vector<std::shared_ptr<DatasetHandle>>;

// _core.Plan: a plan, and what its items are: samples of data sets, or just numbers.
class PlanHandle {
 public:
  PlanHandle(Plan plan, Handles datasets) : plan_(std::move(plan)), datasets_(std::move(datasets)) {
    if (!datasets_.empty()) source_.emplace(SourceOf(datasets_));
  }

  uint64_t size() const { return plan_.size(); }
  uint64_t SampleAt(uint64_t position) const {
    const uint64_t item = plan_.At(position);
    return source_ ? source_->SampleOf(item) : item;
  }
  uint64_t PartAt(uint64_t position) const { return source_ ? source_->Find(plan_.At(position)).part : 0; }

  // The item of a sample of a part; of the first part that has it where `part` is less than 0.
  std::optional<uint64_t> ItemOf(int64_t sample, int64_t part) const {
    if (sample < 0) return std::nullopt;
    const auto number = static_cast<uint64_t>(sample);
    if (!source_) return number < plan_.items() ? std::optional(number) : std::nullopt;
    for (size_t i = 0; i < source_->parts().size(); ++i) {
      const Subset& subset = source_->parts()[i];
      if ((part >= 0 && i != static_cast<uint64_t>(part)) || number >= subset.index().size()) continue;
      if (!subset.selection) return source_->FirstOf(i) + number;
      if (subset.selection->Contains(number)) return source_->FirstOf(i) + subset.selection->Where(number);
    }
    return std::nullopt;
  }
  uint64_t CheckedItemOf(int64_t sample, int64_t part) const {
    if (const std::optional<uint64_t> item = ItemOf(sample, part)) return *item;
    throw py::index_error(fmt::format("sample {} is not one of the plan's {} samples", sample, plan_.items()));
  }
  const Plan& plan() const { return plan_; }

 private:
  Plan plan_;
  Handles datasets_;
  std::optional<Source> source_;
};

OrderPolicy ToPolicy(const std::string& shuffle, const py::int_& extent, const py::int_& window,
                     const py::int_& lanes) {
  OrderPolicy policy;
  policy.shuffle = ValueOrThrow(ParseShuffle(shuffle));
  policy.extent = ToNatural("extent", extent);
  policy.window = ToNatural("window", window);
  policy.lanes = ToNatural("lanes", lanes);
  ThrowIfError(policy.Check());
  return policy;
}

using PolicyTuple = std::tuple<py::int_, py::int_, py::int_>;

// `samples` counts where there are no data sets; `policies` is (extent, window, lanes) of each data set, or of the
// samples.
std::unique_ptr<PlanHandle> MakePlan(const py::int_& samples, Handles datasets, const std::optional<MixTuple>& mix,
                                     const std::string& shuffle, const py::int_& seed, const py::int_& epoch,
                                     const std::vector<PolicyTuple>& policies) {
  std::vector<OrderPolicy> checked;
  for (const auto& [extent, window, lanes] : policies) checked.push_back(ToPolicy(shuffle, extent, window, lanes));
  const uint64_t the_seed = ToNatural("seed", seed);
  const uint64_t the_epoch = ToNatural("epoch", epoch);
  if (!mix) {
    const uint64_t size = datasets.empty() ? ToNatural("the number of samples", samples) : SourceOf(datasets).size();
    if (size > Plan::kMaxSamples) {
      Throw(absl::InvalidArgumentError(fmt::format("{} samples; a plan takes up to {}", size, Plan::kMaxSamples)));
    }
    return std::make_unique<PlanHandle>(Plan(size, checked.front(), the_seed, the_epoch), std::move(datasets));
  }
  const Source source = SourceOf(datasets);
  const MixOptions options = ToMixOptions(*mix);
  Mix settled = ValueOrThrow(MixOf(source, checked, options));
  return std::make_unique<PlanHandle>(Plan(settled, the_seed, the_epoch), std::move(datasets));
}

// The result has the shape of `numbers`. Other Python threads run meanwhile: `function` uses nothing of Python.
template <typename Function>
Numbers Map(const Numbers& numbers, Function function) {
  Numbers result(std::vector<py::ssize_t>(numbers.shape(), numbers.shape() + numbers.ndim()));
  const int64_t* const from = numbers.data();
  int64_t* const to = result.mutable_data();
  const py::ssize_t count = numbers.size();
  const GilRelease release;
  for (py::ssize_t i = 0; i < count; ++i) to[i] = static_cast<int64_t>(function(from[i]));
  return result;
}

template <uint64_t (PlanHandle::*function)(uint64_t) const>
Numbers AtPositions(const PlanHandle& self, const Numbers& positions) {
  return Map(positions, [&](int64_t position) {
    if (position < 0 || static_cast<uint64_t>(position) >= self.size()) {
      throw py::index_error(fmt::format("{} lies outside the plan's {} samples", position, self.size()));
    }
    return (self.*function)(static_cast<uint64_t>(position));
  });
}

// -1 for samples that do not come in this epoch.
Numbers Where(const PlanHandle& self, const Numbers& samples, int64_t part) {
  if (!self.plan().invertible() && samples.size() > 0) {
    Throw(absl::UnimplementedError(
        "draws with replacement have no inverse; plan.positions(sample) goes through the epoch"));
  }
  return Map(samples, [&](int64_t sample) {
    const uint64_t position = self.plan().Where(self.CheckedItemOf(sample, part));
    return position < self.size() ? static_cast<int64_t>(position) : int64_t{-1};
  });
}

Numbers Positions(const PlanHandle& self, int64_t sample, int64_t part) {
  std::vector<uint64_t> found;
  {
    const GilRelease release;
    found = self.plan().Positions(self.CheckedItemOf(sample, part));
  }
  Numbers result(static_cast<py::ssize_t>(found.size()));
  std::copy(found.begin(), found.end(), result.mutable_data());
  return result;
}

}  // namespace

void BindPlan(py::module_& module) {
  py::class_<PlanHandle>(module, "Plan")
      .def(py::init(&MakePlan), py::arg("samples"), py::arg("datasets"), py::kw_only(), py::arg("mix"),
           py::arg("shuffle"), py::arg("seed"), py::arg("epoch"), py::arg("policies"))
      .def("__len__", &PlanHandle::size)
      .def("at", &AtPositions<&PlanHandle::SampleAt>, py::arg("positions"))
      .def("part", &AtPositions<&PlanHandle::PartAt>, py::arg("positions"))
      .def("where", &Where, py::arg("samples"), py::arg("part"))
      .def("positions", &Positions, py::arg("sample"), py::arg("part"));
}

}  // namespace millrace::python
