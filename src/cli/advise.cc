#include "diagnose/advise.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/advise_report.h"
#include "cli/advise_service.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/usage.h"

namespace millrace::cli {

namespace {

struct AdviseFlags {
  std::string uri;
  bool json = false;
  std::string prices;
  std::string machine;
  AdviseSettings settings;
  int size = 224;
  double step_ms = 0;
  std::string rates = "measured";
  std::string access = "sequential";
  bool not_packable = false;
  ServiceAdviceFlags service;
};

absl::StatusOr<AdviseSettings> ToAdvise(const AdviseFlags& flags) {
  if (flags.uri.empty() && !flags.service.on) {
    return UsageError("name a data set; only with --service its numbers may be given instead");
  }
  if (!flags.uri.empty()) RETURN_IF_ERROR(CheckUri(flags.uri));
  AdviseSettings settings = flags.settings;
  ASSIGN_OR_RETURN(settings.prices, AsUsage(ReadPrices(flags.prices)));
  if (!flags.machine.empty()) {
    ASSIGN_OR_RETURN(settings.machine, AsUsage(settings.prices.FindMachine(flags.machine)));
  }
  if (!(flags.step_ms >= 0 && flags.step_ms < 1e9)) {
    return UsageError("--step-ms takes a time in milliseconds, 0 or more");
  }
  settings.published_rates = flags.rates == "published";
  settings.random_access = flags.access == "random";
  settings.packable = !flags.not_packable;
  settings.step_seconds = flags.step_ms / 1000;
  settings.bench.loader.image.height = settings.bench.loader.image.width = flags.size;
  settings.bench.loader.image.augment = true;
  settings.bench.loader.allow_arrays = true;
  settings.bench.loader.bad_samples = BadSamples::kReplace;
  settings.bench.loader.log_damage = false;
  return settings;
}

absl::StatusOr<Advice> Measure(const AdviseFlags& flags, AdviseSettings settings) {
  const InterruptStop interrupt;
  settings.bench.stop = interrupt.token();
  ProgressLine line("advise", ProgressLine::Unit::kItems);
  uint64_t phases = 0;
  settings.on_phase = [&](const std::string&) { line.Update(phases++, 4); };
  absl::StatusOr<Advice> advice = Advise(flags.uri, settings);
  line.Clear();
  return advice;
}

absl::Status RunService(const AdviseFlags& flags, const AdviseSettings& settings) {
  ASSIGN_OR_RETURN(ServiceQuestion question, TakeServiceQuestion(flags.service, settings));
  if (!flags.uri.empty()) {
    ASSIGN_OR_RETURN(const Advice advice, Measure(flags, settings));
    TakeMeasured(advice, flags.service, &question);
  }
  const absl::StatusOr<ServiceAdvice> advice = AdviseService(question);
  if (!advice.ok()) {
    return UsageError(
        "{}: give --step-ms and a URI, --cpu-ms or --vcpus-per-accelerator; or --before-ms, --after-ms and "
        "--worker-count",
        ToStd(advice.status().message()));
  }
  return WriteStdout(flags.json ? ServiceAdviceJson(*advice, question, settings.prices)
                                : ServiceAdviceText(*advice, question, settings.prices));
}

absl::Status RunAdvise(const AdviseFlags& flags) {
  ASSIGN_OR_RETURN(const AdviseSettings settings, ToAdvise(flags));
  if (flags.service.on) return RunService(flags, settings);
  ASSIGN_OR_RETURN(const Advice advice, Measure(flags, settings));
  return WriteStdout(flags.json ? AdviceJson(advice, settings) : AdviceText(advice, settings));
}

}  // namespace

void AddAdvise(Command app) {
  const Command advise =
      app.AddCommand("advise", "Predict start-up, time, requests and price of each way to read a data set");
  auto flags = std::make_shared<AdviseFlags>();
  advise.Add("uri", &flags->uri, "A data set: a bucket with a prefix, or a folder");
  advise.AddFlag("--json", &flags->json, "One JSON object on stdout");
  advise.AddShown("--epochs", &flags->settings.epochs, "Epochs of the training").Number(1, 1'000'000);
  advise.Add("--machine", &flags->machine, "The machine of the training, as the price list calls it [this one]");
  advise.Add("--prices FILE", &flags->prices, "A price list to use instead of the built-in one (docs/advise.md)");
  advise.Add("--workers", &flags->settings.workers, "Data workers of FastFile mode [one for each vCPU]")
      .Number(1, 100'000);
  advise.AddShown("--batch", &flags->settings.bench.loader.batch, "Samples of a batch").Number(1);
  advise.AddShown("--size", &flags->size, "Height and width of the images").Number(1, 16384);
  advise.Add("--step-ms", &flags->step_ms, "Time of the model for a batch of each accelerator, if it is known");
  advise
      .AddShown("--rates", &flags->rates,
                "Rates of listing and of File mode: measured here, or taken from the price list")
      .Words({"measured", "published"});
  advise.AddShown("--access", &flags->access, "How a training without Millrace reads within a file")
      .Words({"sequential", "random"});
  advise.AddFlag("--not-packable", &flags->not_packable, "Small files cannot be made into larger ones");
  advise.AddFlag("--in-efs", &flags->settings.in_efs, "The data lie in EFS, too");
  AddServiceAdviceOptions(advise, &flags->service);
  advise.Footer(
      "Reads parts of the data set for some seconds, tries the loader on it, and copies some of it to temporary files. "
      "If the data set does not have an index, the command builds one first, as every command does. All predictions "
      "come with their arithmetic. Run it on the machine of the training, or one like it in the same region. More: "
      "docs/advise.md\n\n"
      "Examples:\n"
      "  millrace advise s3://bucket/train\n"
      "  millrace advise s3://bucket/train --machine ml.p3.2xlarge --epochs 90\n"
      "  millrace advise s3://bucket/train --prices ours.json --json | jq .predictions\n"
      "  millrace advise s3://bucket/train --service --machine ml.p4d.24xlarge --batch 256 --step-ms 86\n"
      "  millrace advise --service --machine ml.p4d.24xlarge --vcpus-per-accelerator 20 --step-ms 115");
  advise.Run([flags] { return ExitStatus("advise", HintAtS3(RunAdvise(*flags), {flags->uri})); });
}

}  // namespace millrace::cli
