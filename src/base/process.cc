#include "base/process.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>

#include "base/bytes.h"
#include "base/crypto.h"

namespace millrace {

namespace {

// This is the limit that this process was started with. There is one for the process, as there is one limit.
rlimit inherited_limit{};
bool raised_limit = false;

}  // namespace

std::string EnvironmentValue(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::string HostDigits() {
  return fmt::format("{:016x}", Xxh3(AsBytes(HostName())));
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// getrusage would report the peak of the process that started this one, if that was larger.
uint64_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return 0;
}

void AllowManyFiles() {
  if (raised_limit || getrlimit(RLIMIT_NOFILE, &inherited_limit) != 0) return;
  const rlimit all{inherited_limit.rlim_max, inherited_limit.rlim_max};
  raised_limit = setrlimit(RLIMIT_NOFILE, &all) == 0;
}

void RestoreFileLimit() {
  if (raised_limit) setrlimit(RLIMIT_NOFILE, &inherited_limit);
}

}  // namespace millrace
