#include "supervisor/memory_kills.h"

#include <fstream>
#include <string>

namespace millrace {

namespace {

// Returns the number behind a word at the beginning of a line.
std::optional<uint64_t> Counter(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  for (uint64_t value = 0; file >> word >> value;)
    if (word == name) return value;
  return std::nullopt;
}

std::optional<uint64_t> GroupKills() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::/")) return Counter("/sys/fs/cgroup" + line.substr(3) + "/memory.events", "oom_kill");
  return std::nullopt;
}

std::optional<uint64_t> MachineKills() {
  return Counter("/proc/vmstat", "oom_kill");
}

}  // namespace

MemoryKills::MemoryKills() : group_(GroupKills()), machine_(MachineKills()) {}

bool MemoryKills::Happened(bool killed) const {
  if (group_) return GroupKills() > group_;
  return killed && machine_ && MachineKills() > machine_;
}

}  // namespace millrace
