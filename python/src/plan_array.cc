#include "plan_array.h"

#include <fmt/format.h>
#include <pybind11/numpy.h>

#include <memory>
#include <string>
#include <vector>

#include "arguments.h"
#include "errors.h"
#include "plan/plan.h"

namespace millrace::python {

namespace {

using Numbers = py::array_t<int64_t, py::array::c_style>;

std::unique_ptr<Plan> MakePlan(const py::int_& samples, const std::string& shuffle, const py::int_& seed,
                               const py::int_& epoch, const py::int_& extent, const py::int_& window,
                               const py::int_& lanes) {
  const uint64_t size = ToNatural("the number of samples", samples);
  if (size > Plan::kMaxSamples) {
    Throw(absl::InvalidArgumentError(fmt::format("{} samples; a plan takes up to {}", size, Plan::kMaxSamples)));
  }
  OrderPolicy policy;
  policy.shuffle = ValueOrThrow(ParseShuffle(shuffle));
  policy.extent = ToNatural("extent", extent);
  policy.window = ToNatural("window", window);
  policy.lanes = ToNatural("lanes", lanes);
  ThrowIfError(policy.Check());
  return std::make_unique<Plan>(size, policy, ToNatural("seed", seed), ToNatural("epoch", epoch));
}

// The result has the shape of `numbers`.
template <uint64_t (Plan::*function)(uint64_t) const>
Numbers Map(const Plan& plan, const Numbers& numbers) {
  Numbers result(std::vector<py::ssize_t>(numbers.shape(), numbers.shape() + numbers.ndim()));
  const int64_t* const from = numbers.data();
  int64_t* const to = result.mutable_data();
  const py::ssize_t count = numbers.size();
  for (py::ssize_t i = 0; i < count; ++i) {
    if (from[i] < 0 || static_cast<uint64_t>(from[i]) >= plan.size()) {
      throw py::index_error(fmt::format("{} lies outside the plan's {} samples", from[i], plan.size()));
    }
    to[i] = static_cast<int64_t>((plan.*function)(static_cast<uint64_t>(from[i])));
  }
  return result;
}

}  // namespace

void BindPlan(py::module_& module) {
  py::class_<Plan>(module, "Plan")
      .def(py::init(&MakePlan), py::arg("samples"), py::kw_only(), py::arg("shuffle"), py::arg("seed"),
           py::arg("epoch"), py::arg("extent"), py::arg("window"), py::arg("lanes"))
      .def("__len__", &Plan::size)
      .def("at", &Map<&Plan::At>, py::arg("positions"))
      .def("where", &Map<&Plan::Where>, py::arg("samples"));
}

}  // namespace millrace::python
