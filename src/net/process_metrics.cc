#include "net/process_metrics.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "base/process.h"

namespace millrace {

namespace {

double OpenFiles() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr) return 0;
  int count = 0;
  while (readdir(folder.get()) != nullptr) ++count;
  return count - 3;  // without ".", ".." and the folder itself
}

/// Returns the seconds since 1970; 0 if the system does not say.
double StartSeconds() {
  std::ifstream self("/proc/self/stat");
  std::string line;
  std::getline(self, line);
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::string skipped;
  constexpr int kBeforeStart = 19;  // the fields from the state to the one before the start
  for (int i = 0; i < kBeforeStart; ++i) fields >> skipped;
  double ticks = 0;
  fields >> ticks;
  std::ifstream machine("/proc/stat");
  for (std::string name; machine >> name;) {
    double boot = 0;
    if (name == "btime" && machine >> boot) return boot + ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
    std::getline(machine, skipped);
  }
  return 0;
}

}  // namespace

uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t all = 0;
  uint64_t resident = 0;
  file >> all >> resident;
  return file ? resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

void CollectProcess(MetricsText* text) {
  text->Gauge("millrace_build_info", "The version of Millrace; always 1.", {{"version", MILLRACE_VERSION}}, 1);
  text->Counter("process_cpu_seconds_total", "CPU time of all threads, in user space and in the kernel.", {},
                CpuSeconds());
  text->Gauge("process_resident_memory_bytes", "Memory of the process.", {}, static_cast<double>(ResidentBytes()));
  text->Gauge("process_open_fds", "Open files and connections.", {}, OpenFiles());
  text->Gauge("process_start_time_seconds", "When the process began, in seconds since 1970.", {}, StartSeconds());
}

void CollectMemory(const MemoryBudget& budget, MetricsText* text) {
  text->Gauge("millrace_memory_budget_bytes", "The bound on the buffers of all loaders together.", {},
              static_cast<double>(budget.limit()));
  text->Gauge("millrace_memory_reserved_bytes", "The reserved part of the budget.", {},
              static_cast<double>(budget.used()));
}

}  // namespace millrace
