#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "bindings.h"
#include "errors.h"
#include "gil_release.h"
#include "interruptible.h"
#include "loader_options.h"
#include "numpy_array.h"
#include "plan/plan.h"
#include "plan/selection.h"

namespace millrace::python {

namespace {

using Handles = std::vector<std::shared_ptr<DatasetHandle>>;

// This is _core.Plan: a plan, and its items, which are samples of data sets, or just numbers.
class PlanHandle {
 public:
  PlanHandle(Plan plan, Handles datasets, bool mixed)
      : plan_(std::move(plan)), datasets_(std::move(datasets)), mixed_(mixed) {
    if (!datasets_.empty()) source_.emplace(SourceOf(datasets_));
  }

  uint64_t size() const { return plan_.size(); }
  uint64_t SampleAt(uint64_t position) const {
    const uint64_t item = plan_.At(position);
    return source_ ? source_->SampleOf(item) : item;
  }
  // Replaces each position by its sample; several times faster where many come in ascending order.
  void MapToSamples(std::span<uint64_t> positions) const {
    constexpr size_t kMany = 256;
    constexpr uint64_t kNear = 64;
    const bool one_part = !mixed_ && (!source_ || source_->parts().size() == 1);
    if (one_part && positions.size() >= kMany && std::is_sorted(positions.begin(), positions.end())) {
      const uint64_t stride = (positions.back() - positions.front()) / (positions.size() - 1);
      if (stride <= kNear) {
        const Selection* const subset = source_ ? source_->parts().front().selection.get() : nullptr;
        Plan::Reader(plan_, std::max<uint64_t>(stride, 1), subset).Map(positions);
        return;
      }
    }
    for (uint64_t& position : positions) position = SampleAt(position);
  }
  uint64_t PartAt(uint64_t position) const { return source_ ? source_->Find(plan_.At(position)).part : 0; }

  // Calls `function` with each item that a sample is: of one part, or, where `part` is less than 0, of all that have
  // it. Those are then to be of one data set: in others the number is of another sample.
  template <typename Function>
  void ForEachItem(int64_t sample, int64_t part, Function function) const {
    const auto number = static_cast<uint64_t>(sample);
    if (!source_) {
      if (sample < 0 || number >= plan_.items()) ThrowNoSample(sample);
      function(number);
      return;
    }
    const std::vector<Subset>& parts = source_->parts();
    const auto whole = static_cast<int64_t>(parts.size());
    std::optional<uint64_t> found;
    for (int64_t i = std::max<int64_t>(part, 0); sample >= 0 && i < (part < 0 ? whole : std::min(part, whole - 1) + 1);
         ++i) {
      const Subset& subset = parts[static_cast<size_t>(i)];
      if (number >= subset.index().size() || (subset.selection && !subset.selection->Contains(number))) continue;
      const uint64_t index = subset.index().fingerprint();
      if (found.value_or(index) != index) {
        const nb::gil_scoped_acquire held;  // others may run while many numbers are gone through
        Throw(absl::InvalidArgumentError(
            fmt::format("several data sets of the mix have a sample {}; say by part= which one is meant", sample)));
      }
      found = index;
      function(source_->FirstOf(static_cast<size_t>(i)) +
               (subset.selection ? subset.selection->RankOf(number) : number));
    }
    if (!found) ThrowNoSample(sample);
  }
  const Plan& plan() const { return plan_; }

 private:
  [[noreturn]] void ThrowNoSample(int64_t sample) const {
    throw nb::index_error(fmt::format("sample {} is not one of the plan's {} samples", sample, plan_.items()).c_str());
  }

  Plan plan_;
  Handles datasets_;
  bool mixed_;
  std::optional<Source> source_;
};

OrderPolicy ToPolicy(const std::string& shuffle, const nb::int_& extent, const nb::int_& window,
                     const nb::int_& lanes) {
  OrderPolicy policy;
  policy.shuffle = ValueOrThrow(ParseShuffle(shuffle));
  policy.extent = ToNatural("extent", extent);
  policy.window = ToNatural("window", window);
  policy.lanes = ToNatural("lanes", lanes);
  ThrowIfError(policy.Check());
  return policy;
}

using PolicyTuple = std::tuple<nb::int_, nb::int_, nb::int_>;

// `samples` counts where there are no data sets; `policies` is (extent, window, lanes) of each data set, or of the
// samples.
void MakePlan(PlanHandle* self, const nb::int_& samples, Handles datasets, const std::optional<MixTuple>& mix,
              const std::string& shuffle, const nb::int_& seed, const nb::int_& epoch,
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
    new (self) PlanHandle(Plan(size, checked.front(), the_seed, the_epoch), std::move(datasets), false);
    return;
  }
  const Source source = SourceOf(datasets);
  const MixOptions options = ToMixOptions(*mix);
  Mix settled = ValueOrThrow(MixOf(source, checked, options));
  new (self) PlanHandle(Plan(settled, the_seed, the_epoch), std::move(datasets), true);
}

// Fills `into`, as large as `numbers`. Other Python threads run meanwhile: `work`, of both as spans, uses nothing of
// Python.
template <typename Work>
void Fill(const Numbers& numbers, const FillableArray<int64_t>& into, Work work) {
  const std::span from(numbers.data(), numbers.size());
  const std::span to(into.data(), into.size());
  if (from.size() != to.size()) throw nb::value_error("the answers need as much room as the questions");
  const GilRelease release;
  work(from, to);
}

uint64_t CheckedPosition(const PlanHandle& self, int64_t position) {
  if (position < 0 || static_cast<uint64_t>(position) >= self.size()) {
    throw nb::index_error(fmt::format("{} is outside the plan's {} samples", position, self.size()).c_str());
  }
  return static_cast<uint64_t>(position);
}

void SamplesAt(const PlanHandle& self, const Numbers& positions, const FillableArray<int64_t>& into) {
  Fill(positions, into, [&](std::span<const int64_t> from, std::span<int64_t> to) {
    for (const int64_t position : from) CheckedPosition(self, position);
    std::copy(from.begin(), from.end(), to.begin());
    self.MapToSamples({reinterpret_cast<uint64_t*>(to.data()), to.size()});
  });
}

void PartsAt(const PlanHandle& self, const Numbers& positions, const FillableArray<int64_t>& into) {
  Fill(positions, into, [&](std::span<const int64_t> from, std::span<int64_t> to) {
    std::transform(from.begin(), from.end(), to.begin(), [&](int64_t position) {
      return static_cast<int64_t>(self.PartAt(CheckedPosition(self, position)));
    });
  });
}

// Writes -1 for samples that do not come in this epoch.
void PositionsOf(const PlanHandle& self, const Numbers& samples, int64_t part, const FillableArray<int64_t>& into) {
  if (!self.plan().invertible() && samples.size() > 0) {
    Throw(absl::UnimplementedError(
        "draws with replacement have no inverse; plan.positions(sample) goes through the epoch"));
  }
  Fill(samples, into, [&](std::span<const int64_t> from, std::span<int64_t> to) {
    std::transform(from.begin(), from.end(), to.begin(), [&](int64_t sample) {
      uint64_t first = self.size();
      self.ForEachItem(sample, part, [&](uint64_t item) { first = std::min(first, self.plan().PositionOf(item)); });
      return first < self.size() ? static_cast<int64_t>(first) : int64_t{-1};
    });
  });
}

// Finds the positions of draws without an inverse, by a walk through the epoch, which may take long.
std::vector<uint64_t> PositionsOfDraws(const Plan& plan, const std::vector<uint64_t>& items) {
  constexpr uint64_t kBetweenLooks = uint64_t{1} << 16;
  std::vector<uint64_t> found;
  RunInterruptibly(nb::none(), [&](const std::stop_token& stop, const ProgressFn&) {
    for (Plan::Cursor cursor(plan, 0); !cursor.done();) {
      const uint64_t position = cursor.position();
      if (position % kBetweenLooks == 0 && stop.stop_requested()) return;
      if (std::binary_search(items.begin(), items.end(), cursor.Next())) found.push_back(position);
    }
  });
  return found;
}

nb::object Positions(const PlanHandle& self, int64_t sample, int64_t part) {
  std::vector<uint64_t> items;  // ascending
  self.ForEachItem(sample, part, [&](uint64_t item) { items.push_back(item); });
  std::vector<uint64_t> found;
  if (!self.plan().invertible()) {
    found = PositionsOfDraws(self.plan(), items);
  } else {
    const GilRelease release;
    for (const uint64_t item : items) {
      const std::vector<uint64_t> positions = self.plan().Positions(item);
      found.insert(found.end(), positions.begin(), positions.end());
    }
    std::sort(found.begin(), found.end());
  }
  return ArrayOf(std::vector<int64_t>(found.begin(), found.end()));
}

}  // namespace

void BindPlan(nb::module_& module) {
  nb::class_<PlanHandle>(module, "Plan")
      .def("__init__", &MakePlan, nb::arg("samples"), nb::arg("datasets"), nb::kw_only(), nb::arg("mix").none(),
           nb::arg("shuffle"), nb::arg("seed"), nb::arg("epoch"), nb::arg("policies"))
      .def("__len__", &PlanHandle::size)
      .def("at", &SamplesAt, nb::arg("positions"), nb::arg("into").noconvert())
      .def("part", &PartsAt, nb::arg("positions"), nb::arg("into").noconvert())
      .def("position_of", &PositionsOf, nb::arg("samples"), nb::arg("part"), nb::arg("into").noconvert())
      .def("positions", &Positions, nb::arg("sample"), nb::arg("part"));
}

}  // namespace millrace::python
