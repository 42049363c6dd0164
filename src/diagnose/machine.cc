#include "diagnose/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <memory>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "diagnose/gpu_meter.h"
#include "net/runtime.h"

namespace millrace {

namespace {

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(' ', colon + 1);
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "unknown";
}

std::string KernelName() {
  utsname names{};
  if (uname(&names) != 0) return "unknown";
  return fmt::format("{} {} {}", names.sysname, names.release, names.machine);
}

constexpr const char* kCompilerName =
#ifdef __clang__
    "Clang " __VERSION__;
#else
    "GCC " __VERSION__;
#endif

}  // namespace

MachineDescription DescribeMachine() {
  const std::unique_ptr<GpuMeter> gpus = GpuMeter::Open();
  return {.cpu = CpuName(),
          .cpus = UsableCpus(),
          .memory_bytes = UsableMemory(),
          .gpus = gpus == nullptr ? std::vector<std::string>() : gpus->names(),
          .kernel = KernelName(),
          .compiler = kCompilerName,
          .date = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone())};
}

double MachineCpuSeconds() {
  std::ifstream file("/proc/stat");
  std::string word;
  if (!(file >> word) || word != "cpu") return 0;
  double ticks = 0;
  // user, nice, system, idle, iowait, irq, softirq, steal
  for (int column = 0; column < 8; ++column) {
    double value = 0;
    if (!(file >> value)) return 0;
    if (column != 3 && column != 4) ticks += value;
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace millrace
