#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace millrace {

/// Reads figures of the GPUs of this machine from NVIDIA's driver. It looks for the driver's library when the program
/// runs.
class GpuMeter {
 public:
  /// Returns null if there is no driver, or no GPU.
  static std::unique_ptr<GpuMeter> Open();
  ~GpuMeter();
  GpuMeter(const GpuMeter&) = delete;
  GpuMeter& operator=(const GpuMeter&) = delete;

  const std::vector<std::string>& names() const { return names_; }

  struct Reading {
    double busy = 0;            // mean share of all GPUs, in the driver's last period: a second at the most
    uint64_t memory_bytes = 0;  // in use, of all GPUs
  };
  Reading Read() const;

 private:
  struct Library;
  explicit GpuMeter(std::unique_ptr<Library> library);

  const std::unique_ptr<Library> library_;
  std::vector<std::string> names_;
};

}  // namespace millrace
