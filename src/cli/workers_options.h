#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "cli/command_line.h"
#include "service/service_source.h"

namespace millrace::cli {

/// Represents the flags of a trainer whose batches come from workers.
struct WorkersFlags {
  std::string workers;
  std::string token_file;
  std::string tls;
  std::string tls_name;
  uint64_t streams = 0;
  std::string local_streams = "0";
  std::string compression;
};

void AddWorkersOptions(const Command& command, WorkersFlags* flags);

/// Returns nullopt without --workers. Errors name the flag.
absl::StatusOr<std::optional<ServiceOptions>> TakeWorkers(const WorkersFlags& flags);

}  // namespace millrace::cli
