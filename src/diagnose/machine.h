#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

/// Describes the machine of a measurement. Plain data.
struct MachineDescription {
  std::string cpu;  // "AMD EPYC 7B13"; "unknown" if the system does not tell
  int cpus = 1;     // that this process may use
  uint64_t memory_bytes = 0;
  std::vector<std::string> gpus;  // "NVIDIA H100 80GB HBM3"; of those whose driver tells
  std::string kernel;             // "Linux 6.1.0 x86_64"
  std::string compiler;
  std::string date;  // UTC: "2026-11-23T09:30:00Z"
};

MachineDescription DescribeMachine();

/// Returns the CPU-seconds that all programs of this machine have used so far, and that its host took from it; 0 if the
/// system does not tell.
double MachineCpuSeconds();

}  // namespace millrace
