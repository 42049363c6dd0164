#include "diagnose/service_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/counted.h"

namespace millrace {

namespace {

constexpr double kStepsPriced = 100;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

int AcceleratorsOf(const MachinePrice& machine) {
  return std::max(1, machine.gpus);
}

double SamplesOfStep(const ServiceQuestion& question) {
  return static_cast<double>(question.batch) * AcceleratorsOf(question.trainer);
}

/// Represents the capacities of the machines for a second: vCPUs, and bytes; kNoLimit if one is not known.
struct Rates {
  double trainer_cpus = 0;
  double worker_cpus = 0;  // of all workers
  double network = kNoLimit;
  double store = kNoLimit;          // to the trainer
  double workers_store = kNoLimit;  // to all workers
};

Rates RatesOf(const ServiceQuestion& question, int workers, const MachinePrice& kind) {
  Rates rates{.trainer_cpus = static_cast<double>(question.trainer.vcpus),
              .worker_cpus = static_cast<double>(kind.vcpus) * workers};
  if (question.network_bytes_per_second > 0) rates.network = question.network_bytes_per_second;
  if (question.store_bytes_per_second > 0) {
    rates.store = question.store_bytes_per_second;
    rates.workers_store = question.store_bytes_per_second * workers;
  }
  return rates;
}

/// The range of the share of samples that the trainer decodes itself, as the limits cut it.
struct ShareRange {
  double least = 0;
  double most = 1;

  /// each * share + rest * (1 - share) <= limit
  void Bound(double each, double rest, double limit) {
    if (limit == kNoLimit) return;
    const double slope = each - rest;
    if (slope == 0) {
      if (rest > limit) most = -1;
    } else if (slope > 0) {
      most = std::min(most, (limit - rest) / slope);
    } else {
      least = std::max(least, (limit - rest) / slope);
    }
  }
  bool IsPossible() const { return least <= most + 1e-12; }
};

/// Says how the samples of a step may be shared if it takes so long.
ShareRange ShareAt(const ServiceQuestion& question, const Rates& rates, double seconds) {
  const double each = seconds / SamplesOfStep(question);  // time for a sample
  ShareRange range;
  range.Bound(question.cpu_seconds_per_sample, question.receive_seconds_per_sample, rates.trainer_cpus * each);
  range.Bound(0, question.cpu_seconds_per_sample, rates.worker_cpus * each);
  range.Bound(question.sample_bytes, question.row_bytes, rates.network * each);
  range.Bound(question.sample_bytes, 0, rates.store * each);
  range.Bound(0, question.sample_bytes, rates.workers_store * each);
  if (rates.worker_cpus == 0) range.least = std::max(range.least, 1.0);  // there are no workers
  return range;
}

/// Returns the least time of a step, not below that of the model.
double LeastSeconds(const ServiceQuestion& question, const Rates& rates) {
  double low = std::max(question.step_seconds, 1e-9);
  if (ShareAt(question, rates, low).IsPossible()) return question.step_seconds;
  double high = low;
  while (!ShareAt(question, rates, high).IsPossible()) {
    low = high;
    high *= 2;
  }
  for (int i = 0; i < 100; ++i) {
    const double middle = low + (high - low) / 2;
    (ShareAt(question, rates, middle).IsPossible() ? high : low) = middle;
  }
  return high;
}

/// Returns the bound that would shorten the step the most if it had no limit.
StepBound BoundOf(const ServiceQuestion& question, const Rates& rates, double seconds) {
  constexpr double kSame = 1 + 1e-9;
  if (question.step_seconds > 0 && seconds <= question.step_seconds * kSame) return StepBound::kAccelerator;
  Rates cpu = rates;
  cpu.trainer_cpus = kNoLimit;
  if (cpu.worker_cpus > 0) cpu.worker_cpus = kNoLimit;
  Rates network = rates;
  network.network = kNoLimit;
  Rates store = rates;
  store.store = store.workers_store = kNoLimit;
  ServiceQuestion data = question;
  data.step_seconds = 0;
  std::pair<double, StepBound> least{kNoLimit, StepBound::kCpu};
  for (const auto& [without, bound] : {std::pair{cpu, StepBound::kCpu}, std::pair{network, StepBound::kNetwork},
                                       std::pair{store, StepBound::kStore}}) {
    const double left = LeastSeconds(data, without);
    if (left < least.first) least = {left, bound};
  }
  return least.second;
}

/// Returns the min number of workers that ends the bound of the step. If no number does, returns the min number that
/// shortens the step the most.
int WorkersFor(const ServiceQuestion& question, const MachinePrice& kind) {
  const double most = StepWith(question, kMaxAdvisedWorkers, kind).seconds;
  int low = 0;
  int high = kMaxAdvisedWorkers;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (StepWith(question, middle, kind).seconds <= most * 1.001) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

void AddLine(std::vector<Derivation>* lines, std::string name, std::string formula, std::string numbers, double value,
             std::string unit) {
  lines->push_back({std::move(name), std::move(formula), std::move(numbers), value, std::move(unit)});
}

/// Adds the time that a step takes of each resource if the trainer decodes all samples.
void AddBeforeLines(const ServiceQuestion& question, ServiceAdvice* advice) {
  const double samples = SamplesOfStep(question);
  std::vector<Derivation>* const lines = &advice->lines;
  if (question.step_seconds > 0) {
    AddLine(lines, "accelerators", "the time of the model", fmt::format("{:.6g}", question.step_seconds),
            question.step_seconds, "s");
  }
  if (question.cpu_seconds_per_sample > 0) {
    AddLine(lines, "CPUs", "batch x accelerators x CPU-seconds of a sample / vCPUs",
            fmt::format("{} x {} x {:.4g} / {}", question.batch, advice->accelerators, question.cpu_seconds_per_sample,
                        question.trainer.vcpus),
            samples * question.cpu_seconds_per_sample / question.trainer.vcpus, "s");
  }
  const auto add_bytes = [&](const char* name, double rate) {
    if (rate <= 0 || question.sample_bytes <= 0) return;
    AddLine(lines, name, "batch x accelerators x bytes of a sample / rate",
            fmt::format("{} x {} x {:.0f} / {:.4g}", question.batch, advice->accelerators, question.sample_bytes, rate),
            samples * question.sample_bytes / rate, "s");
  };
  add_bytes("network", question.network_bytes_per_second);
  add_bytes("store", question.store_bytes_per_second);
  if (advice->need) {
    AddLine(lines, "vCPUs for each accelerator", "batch x CPU-seconds of a sample / time of the model",
            fmt::format("{} x {:.4g} / {:.4g}", question.batch, question.cpu_seconds_per_sample, question.step_seconds),
            static_cast<double>(question.batch) * question.cpu_seconds_per_sample / question.step_seconds, "");
    AddLine(lines, "vCPUs that are missing", "needed - vCPUs",
            fmt::format("{} - {}", advice->need->needed, question.trainer.vcpus), advice->need->missing, "");
    AddLine(lines, "accelerators are busy, at most", "vCPUs / needed",
            fmt::format("{} / {}", question.trainer.vcpus, advice->need->needed), advice->need->most_accelerator, "");
  }
  AddLine(lines, "step", question.measured_before ? "as measured" : "the largest of these",
          fmt::format("{:.6g}", advice->before.seconds), advice->before.seconds, "s");
}

void AddPlanLines(const ServiceQuestion& question, const StepTime& before, ServicePlan* plan) {
  const double samples = SamplesOfStep(question);
  const double remote = 1 - plan->after.local_share;
  if (!plan->measured) {
    AddLine(&plan->lines, "decoded by workers", "1 - what the vCPUs of the training machine can",
            fmt::format("1 - {:.4g}", plan->after.local_share), remote, "");
    AddLine(&plan->lines, "vCPUs of workers", "batch x accelerators x share x CPU-seconds of a sample / step",
            fmt::format("{} x {} x {:.4g} x {:.4g} / {:.4g}", question.batch, AcceleratorsOf(question.trainer), remote,
                        question.cpu_seconds_per_sample, plan->after.seconds),
            plan->after.seconds > 0 ? samples * remote * question.cpu_seconds_per_sample / plan->after.seconds : 0, "");
  }
  AddLine(&plan->lines, "step", plan->measured ? "as measured" : "by the model with these workers",
          fmt::format("{:.6g}", plan->after.seconds), plan->after.seconds, "s");
  AddLine(&plan->lines, "speed", "step before / step after",
          fmt::format("{:.4g} / {:.4g}", before.seconds, plan->after.seconds), plan->speedup, "");
  AddLine(&plan->lines, "vCPUs for each accelerator", "(vCPUs + workers x vCPUs of one) / accelerators",
          fmt::format("({} + {} x {}) / {}", question.trainer.vcpus, plan->workers, plan->kind.vcpus,
                      AcceleratorsOf(question.trainer)),
          plan->vcpus_each, "");
  if (plan->dollars_before <= 0) return;
  const double price = question.trainer.dollars_per_hour;
  AddLine(&plan->lines, "100 steps before", "price of an hour / 3600 x step x 100",
          fmt::format("${} / 3600 x {:.4g} x 100", price, before.seconds), plan->dollars_before, "$");
  AddLine(&plan->lines, "100 steps after", "(price + workers x price of one) / 3600 x step x 100",
          fmt::format("(${} + {} x ${}) / 3600 x {:.4g} x 100", price, plan->workers, plan->kind.dollars_per_hour,
                      plan->after.seconds),
          plan->dollars_after, "$");
  AddLine(&plan->lines, "saving", "1 - after / before",
          fmt::format("1 - {:.4g} / {:.4g}", plan->dollars_after, plan->dollars_before), plan->saving, "");
}

ServicePlan MakePlan(const ServiceQuestion& question, const StepTime& before, const MachinePrice& kind) {
  ServicePlan plan{.kind = kind};
  const bool has_model = question.cpu_seconds_per_sample > 0 && question.step_seconds > 0;
  plan.workers = question.workers ? *question.workers : WorkersFor(question, kind);
  if (has_model) plan.after = StepWith(question, plan.workers, kind);
  if (question.measured_after) {
    plan.after.seconds = *question.measured_after;
    plan.measured = true;
  }
  const int accelerators = AcceleratorsOf(question.trainer);
  plan.vcpus_each = static_cast<double>(question.trainer.vcpus + plan.workers * kind.vcpus) / accelerators;
  plan.speedup = before.seconds / std::max(plan.after.seconds, 1e-12);
  if (question.trainer.dollars_per_hour > 0 && kind.dollars_per_hour > 0) {
    const double price = question.trainer.dollars_per_hour + plan.workers * kind.dollars_per_hour;
    plan.dollars_before = DollarsOfSteps(question.trainer.dollars_per_hour, before.seconds, kStepsPriced);
    plan.dollars_after = DollarsOfSteps(price, plan.after.seconds, kStepsPriced);
    plan.saving = SavingOf(price / question.trainer.dollars_per_hour, plan.after.seconds / before.seconds);
  }
  AddPlanLines(question, before, &plan);
  return plan;
}

const char* BoundSentence(StepBound bound) {
  switch (bound) {
    case StepBound::kAccelerator:
      return "the accelerators: workers would change nothing";
    case StepBound::kCpu:
      return "its CPUs, which do not decode as fast as the accelerators compute";
    case StepBound::kNetwork:
      return "its network, which samples or rows of workers fill";
    case StepBound::kStore:
      return "the store, as one machine sees it";
  }
  return "";
}

std::string PlanSentence(const ServicePlan& plan, const StepTime& before) {
  std::string text = fmt::format("{} of {}: a step takes {:.4g} ms in place of {:.4g} ms",
                                 Counted(static_cast<uint64_t>(plan.workers), "machine"), plan.kind.name,
                                 1000 * plan.after.seconds, 1000 * before.seconds);
  if (plan.dollars_before > 0) {
    text +=
        fmt::format(", and 100 steps cost {} in place of {}, {:.1f} % {}", DollarText(plan.dollars_after),
                    DollarText(plan.dollars_before), 100 * std::abs(plan.saving), plan.saving >= 0 ? "less" : "more");
  }
  if (!plan.measured && plan.after.bound != StepBound::kAccelerator) {
    text += fmt::format("; the limit is the {} then", StepBoundName(plan.after.bound));
  }
  return text + ".";
}

void AddSentences(const ServiceQuestion& question, ServiceAdvice* advice) {
  std::vector<std::string>* const sentences = &advice->sentences;
  if (advice->need) {
    sentences->push_back(fmt::format("A step is bound by {}.", BoundSentence(advice->before.bound)));
    if (advice->need->missing > 0) {
      sentences->push_back(fmt::format(
          "{} need {} vCPUs, and {} has {}: {} are missing, and the accelerators are busy for {:.0f} % of the time at "
          "most.",
          Counted(static_cast<uint64_t>(advice->accelerators), "accelerator"), advice->need->needed,
          question.trainer.name, question.trainer.vcpus, advice->need->missing, 100 * advice->need->most_accelerator));
    }
  }
  for (const ServicePlan& plan : advice->plans) {
    if (plan.workers > 0) sentences->push_back(PlanSentence(plan, advice->before));
  }
  if (advice->best) {
    const ServicePlan& best = advice->plans[*advice->best];
    sentences->push_back(fmt::format("Take {} of {}{}.", Counted(static_cast<uint64_t>(best.workers), "machine"),
                                     best.kind.name, best.saving < 0 ? ", if time counts more than money" : ""));
  } else if (!advice->plans.empty()) {
    sentences->push_back("No workers are better than none.");
  }
}

bool IsBetter(const ServicePlan& one, const ServicePlan& other) {
  if (one.dollars_after > 0 && other.dollars_after > 0) return one.dollars_after < other.dollars_after;
  return one.after.seconds < other.after.seconds;
}

}  // namespace

std::string_view StepBoundName(StepBound bound) {
  switch (bound) {
    case StepBound::kAccelerator:
      return "accelerator";
    case StepBound::kCpu:
      return "cpu";
    case StepBound::kNetwork:
      return "network";
    case StepBound::kStore:
      return "store";
  }
  return "";
}

StepTime StepWith(const ServiceQuestion& question, int workers, const MachinePrice& kind) {
  const Rates rates = RatesOf(question, workers, kind);
  StepTime time{.seconds = LeastSeconds(question, rates)};
  time.bound = BoundOf(question, rates, time.seconds);
  const ShareRange range = ShareAt(question, rates, time.seconds);
  time.local_share = std::clamp(range.most, 0.0, 1.0);
  return time;
}

absl::StatusOr<ServiceAdvice> AdviseService(const ServiceQuestion& question) {
  const bool has_model = question.cpu_seconds_per_sample > 0 && question.step_seconds > 0;
  if (!has_model && !(question.measured_before && question.measured_after)) {
    return absl::InvalidArgumentError(
        "the time of the model and the CPU-seconds of a sample have to be known, or the time of a step with and "
        "without workers");
  }
  if (question.measured_after && !question.workers) {
    return absl::InvalidArgumentError("with how many workers a step was measured is not known");
  }
  ServiceAdvice advice;
  advice.accelerators = AcceleratorsOf(question.trainer);
  advice.vcpus_each = static_cast<double>(question.trainer.vcpus) / advice.accelerators;
  advice.most_cpu_utilization = MostCpuUtilization(question.trainer.vcpus);
  advice.most_gpu_utilization = 100 * question.trainer.gpus;
  if (has_model) {
    advice.before = StepWith(question, 0, {});
    advice.need =
        NeedOfVcpus(static_cast<double>(question.batch) * question.cpu_seconds_per_sample / question.step_seconds,
                    advice.accelerators, question.trainer.vcpus);
  }
  if (question.measured_before) advice.before.seconds = *question.measured_before;
  AddBeforeLines(question, &advice);
  for (const MachinePrice& kind : question.kinds) {
    advice.plans.push_back(MakePlan(question, advice.before, kind));
    const ServicePlan& plan = advice.plans.back();
    const bool helps = plan.workers > 0 && plan.speedup > 1.001;
    if (helps && (!advice.best || IsBetter(plan, advice.plans[*advice.best]))) advice.best = advice.plans.size() - 1;
  }
  AddSentences(question, &advice);
  return advice;
}

}  // namespace millrace
