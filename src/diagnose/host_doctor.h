#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>

#include "diagnose/doctor.h"

namespace millrace {

struct HostDoctorOptions {
  std::string bucket;  // "": no store is asked
  std::string key;
  std::string folder = ".";  // whose disk is measured
  std::string node;          // what reports call this machine
  std::string python;        // that trains; "": devices and other nodes are not looked at
  bool needs_python = true;  // false: if it does not exist or has no millrace, that is no fault
  double min_memory_gbps = 0;
  double min_disk_mbps = 0;   // of writing and reading
  double min_store_mbps = 0;  // of kManyConnections
  double min_bus_gbps = 0;    // of collectives
  uint64_t min_free_bytes = uint64_t{1} << 30;
};

/// Finds out, before a training starts, whether this machine is fit for it: memory, disk, clock and store here;
/// devices, other nodes and collectives by `python -m millrace.preflight`. Started once a rank by torchrun, srun or
/// mpirun, it finds the nodes and pairs of nodes that are at fault. Blocking; takes less than a minute.
class HostDoctor {
 public:
  /// `on_check` is called with each step as soon as it is done, by the thread that calls Examine. `local_rank` other
  /// than 0: what belongs to the whole machine is left to the process of rank 0 on it.
  HostDoctor(HostDoctorOptions options, int local_rank, std::function<void(const HealthCheck&)> on_check);

  /// Cancelled soon after a stop is requested.
  absl::Status Examine(const std::stop_token& stop);

  const std::vector<HealthCheck>& checks() const { return checks_; }
  /// Returns figures by name, with the unit: "memory_gbps".
  const std::map<std::string, double>& figures() const { return figures_; }
  /// Returns true if nothing failed here, nor on another node.
  bool healthy() const;
  /// Returns true if another rank reports the findings.
  bool silent() const { return silent_; }

 private:
  void Add(HealthCheck check);
  void Judge(const std::string& name, double figure, double least, const std::string& unit, std::string text,
             const std::string& remedy);
  void CheckMemory();
  void CheckDisk();
  void CheckStore();
  absl::Status CheckDevices(const std::stop_token& stop);
  void TakeAnswer(const std::string& text);

  const HostDoctorOptions options_;
  const int local_rank_;
  const std::function<void(const HealthCheck&)> on_check_;
  std::vector<HealthCheck> checks_;
  std::map<std::string, double> figures_;
  bool others_healthy_ = true;
  bool silent_ = false;
};

}  // namespace millrace
