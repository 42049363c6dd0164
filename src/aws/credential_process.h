#pragma once

#include <chrono>
#include <stop_token>
#include <string>

#include "base/status.h"

namespace millrace {

/// Runs `command` by /bin/sh, and returns what it prints on stdout, at most 64 KiB. Its stdin and stderr are /dev/null:
/// what it says there may be secret. If it runs longer than `limit`, or `stop` is requested, it is killed with its
/// process group. An error completes the sentence "the command ..." and quotes nothing. Blocks.
absl::StatusOr<std::string> RunCredentialProcess(const std::string& command, std::chrono::milliseconds limit,
                                                 const std::stop_token& stop);

}  // namespace millrace
