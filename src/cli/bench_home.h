#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

/// Provides resources of this machine that a benchmark of synthetic data needs. They are removed when it ends.

namespace millrace::cli {

/// `millrace devstore mem:` as a process of its own, so that its CPU time is not counted as that of the pipeline. It
/// keeps objects in memory, and ends with this process, however that ends.
class LocalServer {
 public:
  /// Serves the bucket "bench", with these faults (`millrace devstore --help`). Call it before there are threads: it
  /// forks. Unavailable if it does not start.
  static absl::StatusOr<std::unique_ptr<LocalServer>> Start(uint64_t first_byte_ms,
                                                            const std::vector<std::string>& faults = {});
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  const std::string& url() const { return url_; }
  /// From now on the stores that this process opens are on this server, whatever its AWS settings say. Call it while no
  /// other thread reads the environment.
  void UseForAllStores() const;

 private:
  explicit LocalServer(pid_t pid) : pid_(pid) {}
  const pid_t pid_;
  std::string url_;
};

}  // namespace millrace::cli
