#pragma once

#include <chrono>
#include <stop_token>
#include <string>

#include "base/status.h"

namespace millrace {

/// What `command`, run by /bin/sh, prints on stdout, at most 64 KiB. Its stdin and stderr are /dev/null: what it says
/// there may be secret. An error completes the sentence "the command ..." and quotes nothing: it failed, printed too
/// much, or was killed, with its process group, because it ran longer than `limit` or `stop` was requested. Blocks.
absl::StatusOr<std::string> RunCredentialProcess(const std::string& command, std::chrono::milliseconds limit,
                                                 const std::stop_token& stop);

}  // namespace millrace
