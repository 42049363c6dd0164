#include "cli/advise_service.h"

#include <fmt/format.h>

#include "base/counted.h"
#include "cli/advise_report.h"
#include "cli/bench_report.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/usage.h"
#include "net/runtime.h"

namespace millrace::cli {

namespace {

constexpr double kBytesPerGigabit = 1e9 / 8;

absl::Status CheckGiven(const char* option, double value) {
  if (value >= 0 && value < 1e12) return absl::OkStatus();
  return UsageError("{} takes a number, 0 or more", option);
}

std::optional<double> Seconds(double milliseconds) {
  return milliseconds > 0 ? std::optional(milliseconds / 1000) : std::nullopt;
}

Json DollarsJson(double dollars) {
  return dollars > 0 ? Json(dollars) : Json(nullptr);
}

std::string PricedText(double dollars) {
  return dollars > 0 ? DollarText(dollars) : "-";
}

std::string PlansText(const ServiceAdvice& advice) {
  constexpr const char* kRow = "  {:<24} {:>8} {:>10} {:>10} {:>14} {:>12} {:>10} {:>12}\n";
  std::string text = fmt::format(kRow, "workers of", "machines", "step, ms", "speed", "vCPUs each", "100 steps",
                                 "saving", "then bound by");
  text += fmt::format(kRow, "none", 0, ShortNumber(1000 * advice.before.seconds), "1", ShortNumber(advice.vcpus_each),
                      advice.plans.empty() ? "-" : PricedText(advice.plans.front().dollars_before), "",
                      advice.need ? StepBoundName(advice.before.bound) : "");
  for (const ServicePlan& plan : advice.plans) {
    text +=
        fmt::format(kRow, plan.kind.name, plan.workers, ShortNumber(1000 * plan.after.seconds),
                    fmt::format("{:.2f}", plan.speedup), ShortNumber(plan.vcpus_each), DollarText(plan.dollars_after),
                    fmt::format("{:.1f} %", 100 * plan.saving), plan.measured ? "" : StepBoundName(plan.after.bound));
  }
  return text;
}

JsonObject PlanJson(const ServicePlan& plan) {
  return {{"machine", plan.kind.name},
          {"workers", plan.workers},
          {"step_seconds", plan.after.seconds},
          {"measured", plan.measured},
          {"bound", plan.measured ? Json(nullptr) : Json(StepBoundName(plan.after.bound))},
          {"local_share", plan.measured ? Json(nullptr) : Json(plan.after.local_share)},
          {"speedup", plan.speedup},
          {"vcpus_per_accelerator", plan.vcpus_each},
          {"dollars_per_100_steps_before", DollarsJson(plan.dollars_before)},
          {"dollars_per_100_steps", DollarsJson(plan.dollars_after)},
          {"saving", plan.dollars_before > 0 ? Json(plan.saving) : Json(nullptr)},
          {"arithmetic", DerivationsJson(plan.lines)}};
}

}  // namespace

void AddServiceAdviceOptions(const Command& advise, ServiceAdviceFlags* flags) {
  const Option service = advise.AddFlag(
      "--service", &flags->on,
      "Say if CPU machines of the data service pay. It shows the bound of a step, the number and kind of workers that "
      "end it, and the price of steps before and after. URI may be left out if its numbers are given");
  const Command with_service = advise.Under("With --service").Beside(service);
  with_service.Add("--worker-machine", &flags->worker_machine,
                   "The machine of a worker, as the price list calls it [each that has no accelerator]");
  with_service.Add("--worker-count", &flags->workers, "How many of them [as many as end the bound of a step]")
      .Number(1, kMaxAdvisedWorkers);
  with_service.Add("--vcpus-per-accelerator", &flags->vcpus_each,
                   "vCPUs that keep one accelerator busy, if they are known");
  with_service.Add("--cpu-ms", &flags->cpu_ms, "CPU-milliseconds of a sample, reading and decoding [measured]");
  with_service.Add("--before-ms", &flags->before_ms,
                   "Time of a step without workers, as you have measured it [by the model]");
  with_service.Add("--after-ms", &flags->after_ms,
                   "Time of a step with --worker-count workers, as you have measured it [by the model]");
  with_service.Add("--network-gbit", &flags->network_gbit,
                   "Gigabits a second of the training machine's network [no limit]");
  with_service.Add("--store-rate SIZE", &flags->store_rate,
                   "Bytes a second that the store gives one machine [measured]");
  with_service.Add("--sample-size SIZE", &flags->sample_size, "Bytes of a sample in the store [measured]");
}

absl::StatusOr<ServiceQuestion> TakeServiceQuestion(const ServiceAdviceFlags& flags, const AdviseSettings& settings) {
  RETURN_IF_ERROR(CheckGiven("--vcpus-per-accelerator", flags.vcpus_each));
  RETURN_IF_ERROR(CheckGiven("--cpu-ms", flags.cpu_ms));
  RETURN_IF_ERROR(CheckGiven("--before-ms", flags.before_ms));
  RETURN_IF_ERROR(CheckGiven("--after-ms", flags.after_ms));
  RETURN_IF_ERROR(CheckGiven("--network-gbit", flags.network_gbit));
  ServiceQuestion question;
  question.trainer = settings.machine.value_or(MachinePrice{.name = "this machine", .vcpus = UsableCpus()});
  if (!flags.worker_machine.empty()) {
    ASSIGN_OR_RETURN(MachinePrice kind, AsUsage(settings.prices.FindMachine(flags.worker_machine)));
    question.kinds.push_back(std::move(kind));
  } else {
    // Machines of SageMaker and of EC2 are not rented together.
    const bool any = !settings.machine;
    const bool of_sagemaker = question.trainer.name.starts_with("ml.");
    std::vector<MachinePrice> others;  // taken if the list has no others
    for (const MachinePrice& each : settings.prices.machines) {
      if (each.gpus > 0) continue;
      const bool fits = any || each.name.starts_with("ml.") == of_sagemaker;
      (fits ? question.kinds : others).push_back(each);
    }
    if (question.kinds.empty()) question.kinds = std::move(others);
  }
  if (flags.workers) question.workers = static_cast<int>(*flags.workers);
  question.batch = settings.bench.loader.batch;
  question.step_seconds = settings.step_seconds;
  if (flags.cpu_ms > 0) question.cpu_seconds_per_sample = flags.cpu_ms / 1000;
  if (flags.vcpus_each > 0) {
    if (flags.cpu_ms > 0 || question.step_seconds <= 0) {
      return UsageError(
          "--vcpus-per-accelerator goes with --step-ms, the time in which they work for one "
          "batch, and without --cpu-ms");
    }
    question.cpu_seconds_per_sample = flags.vcpus_each * question.step_seconds / static_cast<double>(question.batch);
  }
  const ImageSpec& image = settings.bench.loader.image;
  question.row_bytes = static_cast<double>(image.height) * image.width * image.channels;
  question.receive_seconds_per_sample = question.row_bytes * kReceiveSecondsPerByte;
  question.network_bytes_per_second = flags.network_gbit * kBytesPerGigabit;
  if (!flags.store_rate.empty()) {
    ASSIGN_OR_RETURN(const uint64_t rate, TakeSize("--store-rate", flags.store_rate));
    question.store_bytes_per_second = static_cast<double>(rate);
  }
  if (!flags.sample_size.empty()) {
    ASSIGN_OR_RETURN(const uint64_t size, TakeSize("--sample-size", flags.sample_size));
    question.sample_bytes = static_cast<double>(size);
  }
  question.measured_before = Seconds(flags.before_ms);
  question.measured_after = Seconds(flags.after_ms);
  return question;
}

void TakeMeasured(const Advice& advice, const ServiceAdviceFlags& flags, ServiceQuestion* question) {
  const CostInputs& in = advice.inputs;
  if (question->cpu_seconds_per_sample <= 0) question->cpu_seconds_per_sample = in.cpu_seconds_per_sample;
  if (flags.store_rate.empty()) question->store_bytes_per_second = in.stream_bytes_per_second;
  if (flags.sample_size.empty() && in.samples > 0) {
    question->sample_bytes = static_cast<double>(in.stream_bytes) / static_cast<double>(in.samples);
  }
}

std::string ServiceAdviceText(const ServiceAdvice& advice, const ServiceQuestion& question, const PriceList& prices) {
  std::string text = fmt::format("{}: {}, {}, {:.3g} of them for each\n", Printable(question.trainer.name),
                                 Counted(static_cast<uint64_t>(advice.accelerators), "accelerator"),
                                 Counted(static_cast<uint64_t>(question.trainer.vcpus), "vCPU"), advice.vcpus_each);
  text += fmt::format("CloudWatch shows a CPUUtilization of {} % and a GPUUtilization of {} % at most.\n\n",
                      advice.most_cpu_utilization, advice.most_gpu_utilization);
  text += PlansText(advice) + "\nAdvice\n";
  for (const std::string& sentence : advice.sentences) text += fmt::format("  {}\n", Printable(sentence));
  text += "\nArithmetic without workers\n" + DerivationsText(advice.lines);
  for (const ServicePlan& plan : advice.plans) {
    text += fmt::format("\nArithmetic with {} of {}\n", Counted(static_cast<uint64_t>(plan.workers), "machine"),
                        Printable(plan.kind.name)) +
            DerivationsText(plan.lines);
  }
  std::vector<MachinePrice> machines = question.kinds;
  machines.push_back(question.trainer);
  return text + fmt::format("\nPrices of {} ({}, {}){}. --prices FILE replaces them.\n", prices.date, prices.region,
                            prices.from, MachineDatesText(machines, prices));
}

std::string ServiceAdviceJson(const ServiceAdvice& advice, const ServiceQuestion& question, const PriceList& prices) {
  JsonObject json = JSON_OF(
      Named("machine", question.trainer.name), advice.accelerators, question.trainer.vcpus,
      Named("vcpus_per_accelerator", advice.vcpus_each), Named("step_seconds", advice.before.seconds),
      Named("measured", question.measured_before.has_value()),
      Named("bound", advice.need ? Json(StepBoundName(advice.before.bound)) : Json(nullptr)),
      Named("cpu_utilization_most", advice.most_cpu_utilization),
      Named("gpu_utilization_most", advice.most_gpu_utilization), question.cpu_seconds_per_sample,
      question.receive_seconds_per_sample, Named("prices", JsonObject{{"date", prices.date}, {"from", prices.from}}),
      Named("plans", JsonOfEach(advice.plans, PlanJson)),
      Named("take", advice.best ? Json(static_cast<uint64_t>(*advice.best)) : Json(nullptr)),
      Named("advice", advice.sentences), Named("arithmetic", DerivationsJson(advice.lines)));
  if (advice.need) {
    json.Add("vcpus_needed", advice.need->needed)
        .Add("vcpus_missing", advice.need->missing)
        .Add("accelerators_busy_most", advice.need->most_accelerator);
  }
  return json.Versioned("advise.service");
}

}  // namespace millrace::cli
