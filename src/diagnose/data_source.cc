#include "diagnose/data_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace millrace {

std::string_view DataSourceName(DataSource source) {
  switch (source) {
    case DataSource::kEfs:
      return "efs";
    case DataSource::kFile:
      return "file";
    case DataSource::kPackThenFile:
      return "pack, then file";
    case DataSource::kPackThenFastFile:
      return "pack, then fastfile";
    case DataSource::kFastFile:
      return "fastfile";
    case DataSource::kTryFastFile:
      return "try fastfile";
    case DataSource::kFsx:
      return "fsx";
  }
  return "";
}

SourceChoice ChooseSource(const SourceQuestion& question) {
  SourceChoice choice;
  const auto answered = [&](bool yes, const std::string& asked) {
    choice.steps.push_back(fmt::format("{}: {}", asked, yes ? "yes" : "no"));
    return yes;
  };
  const auto choose = [&](DataSource source) {
    choice.source = source;
    return choice;
  };
  const double mean = question.files > 0 ? question.bytes / static_cast<double>(question.files) : 0;
  if (answered(question.in_efs, "Are the data in EFS already?")) return choose(DataSource::kEfs);
  const bool small_files = answered(
      mean < kSmallFileBytes,
      fmt::format("Are the files smaller than {:.0f} MB? ({:.4g} MB on average)", kSmallFileBytes / 1e6, mean / 1e6));
  if (!small_files) {
    if (answered(question.sequential, "Is a file read from its beginning to its end?")) {
      return choose(DataSource::kFastFile);
    }
    if (answered(question.heavy_model, "Does a step of the model take so long that late data do not matter?")) {
      return choose(DataSource::kTryFastFile);
    }
    return choose(DataSource::kFsx);
  }
  const bool little =
      answered(question.bytes < kDownloadBytes,
               fmt::format("Are there less than {:.0f} GB? ({:.4g} GB)", kDownloadBytes / 1e9, question.bytes / 1e9));
  if (answered(question.packable,
               fmt::format("Can the files be packed into larger ones, of about {:.0f} MB?", kPackedFileBytes / 1e6))) {
    return choose(little ? DataSource::kPackThenFile : DataSource::kPackThenFastFile);
  }
  if (little && answered(question.several_epochs, "Does the training take several epochs?")) {
    return choose(DataSource::kFile);
  }
  return choose(DataSource::kFsx);
}

VcpuNeed NeedOfVcpus(double vcpus_per_accelerator, int accelerators, int vcpus) {
  VcpuNeed need;
  const double wanted = vcpus_per_accelerator * accelerators;
  need.needed = static_cast<int>(std::ceil(wanted));
  need.missing = std::max(0, need.needed - vcpus);
  if (wanted > 0) need.most_accelerator = std::min(1.0, vcpus / wanted);
  return need;
}

int MostCpuUtilization(int vcpus) {
  return 100 * vcpus;
}

double SavingOf(double price_ratio, double time_ratio) {
  return 1 - price_ratio * time_ratio;
}

double DollarsOfSteps(double dollars_per_hour, double step_seconds, double steps) {
  return dollars_per_hour * step_seconds * steps / 3600;
}

}  // namespace millrace
