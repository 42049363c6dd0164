#include "net/runtime.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include "base/file_text.h"

namespace millrace {

namespace {

std::istringstream ContentsOf(const std::string& path) {
  return std::istringstream(ReadFileText(path).value_or(""));
}

/// Returns the folder of this process in cgroup v2, and of every group above it; it is empty if v2 is not mounted.
std::vector<std::string> CgroupFolders() {
  std::istringstream lines = ContentsOf("/proc/self/cgroup");
  std::vector<std::string> folders;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("0::/")) continue;
    std::string path = line.substr(3);
    while (path.size() > 1) {
      folders.push_back("/sys/fs/cgroup" + path);
      path.resize(path.rfind('/'));
    }
    folders.push_back("/sys/fs/cgroup");
  }
  return folders;
}

/// "max" and files that are missing give no limit.
uint64_t ReadLimit(const std::string& path) {
  std::istringstream text = ContentsOf(path);
  uint64_t limit = 0;
  return text >> limit ? limit : std::numeric_limits<uint64_t>::max();
}

}  // namespace

Runtime::Runtime(const RuntimeOptions& options)
    : memory_(options.memory_bytes > 0 ? options.memory_bytes : UsableMemory() / 2),
      decode_memory_(std::max(kLeastDecodeBytes, memory_.limit() / 8)),
      loops_(std::max(1, options.io_threads)),
      cpu_(options.cpu_threads > 0 ? options.cpu_threads : UsableCpus(), "cpu") {}

int UsableCpus() {
  cpu_set_t set;
  int cpus = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    cpus = CPU_COUNT(&set);
  } else {
    cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));  // more CPUs than a cpu_set_t can name
  }
  const auto apply_quota = [&cpus](double quota, double period) {
    if (quota > 0 && period > 0 && quota / period < cpus) cpus = static_cast<int>(std::ceil(quota / period));
  };
  for (const std::string& folder : CgroupFolders()) {
    std::istringstream text = ContentsOf(folder + "/cpu.max");
    double quota = 0;
    double period = 0;
    if (text >> quota >> period) apply_quota(quota, period);
  }
  std::istringstream v1_quota = ContentsOf("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::istringstream v1_period = ContentsOf("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (v1_quota >> quota && v1_period >> period) apply_quota(quota, period);
  return std::max(1, cpus);
}

uint64_t UsableMemory() {
  uint64_t bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  for (const std::string& folder : CgroupFolders()) bytes = std::min(bytes, ReadLimit(folder + "/memory.max"));
  return std::min(bytes, ReadLimit("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
}

}  // namespace millrace
