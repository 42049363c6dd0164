#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Chooses the source and input mode of a data set if Millrace is not used. AWS's guide to data sources of training
/// jobs describes this decision flow in prose. Pure.

namespace millrace {

enum class DataSource {
  kEfs,               // where the data are already
  kFile,              // download first
  kPackThenFile,      // make large files of small ones, then download first
  kPackThenFastFile,  // the same, then stream them
  kFastFile,          // stream files as they are read
  kTryFastFile,       // FastFile mode, measured before it is chosen
  kFsx,               // FSx for Lustre
};
std::string_view DataSourceName(DataSource source);  // "fastfile"

struct SourceQuestion {
  double bytes = 0;
  uint64_t files = 0;
  bool in_efs = false;
  bool sequential = true;    // a file is read from its beginning to its end
  bool packable = true;      // the files may be made into larger ones
  bool heavy_model = false;  // a step takes so long that late data do not matter
  bool several_epochs = false;
};

struct SourceChoice {
  DataSource source = DataSource::kFastFile;
  std::vector<std::string> steps;  // the questions with their answers, in order
};

/// Below this the download at the start is short. The guide says 50 to 100 GB.
inline constexpr double kDownloadBytes = 50e9;
/// Files below it are small. The guide says 50 MB, and better 150.
inline constexpr double kSmallFileBytes = 50e6;
/// Small files should be packed to files of this size.
inline constexpr double kPackedFileBytes = 150e6;

SourceChoice ChooseSource(const SourceQuestion& question);

/// Says whether the accelerators of a machine have enough CPUs.
struct VcpuNeed {
  int needed = 0;
  int missing = 0;              // 0: there are enough
  double most_accelerator = 1;  // share of its time that an accelerator can be busy, at most
};
VcpuNeed NeedOfVcpus(double vcpus_per_accelerator, int accelerators, int vcpus);

/// Returns CloudWatch's CPUUtilization of a training job if all vCPUs are busy: 100 % for each.
int MostCpuUtilization(int vcpus);

/// Returns the share that a cluster of CPU machines beside the accelerators saves: 1 - (price of both / price before) x
/// (time / time before). Negative if it costs more.
double SavingOf(double price_ratio, double time_ratio);

/// Returns the price of `steps` steps.
double DollarsOfSteps(double dollars_per_hour, double step_seconds, double steps);

}  // namespace millrace
