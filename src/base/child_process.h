#pragma once

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"

namespace millrace {

/// Describes a program to run. Its working folder, environment and other settings are this process's; signals are as a
/// program expects them, and it has a process group of its own.
struct ChildCommand {
  std::vector<std::string> words;  // the program, looked for in PATH, and its arguments
  std::string input;               // its stdin; at most 60 KiB. Empty: /dev/null
  bool keep_errors = false;        // stderr is kept; else it goes to /dev/null, since it may hold secrets
  std::optional<std::chrono::milliseconds> limit;
};

struct ChildEnd {
  int exit_status = 0;
  std::string output;  // stdout, at most 64 KiB
  std::string errors;  // the last 64 KiB of stderr
};

/// Runs it until it ends. Errors complete the sentence "the command ..." and quote nothing of its output: NotFound
/// if there is no such program; Unavailable if it cannot be started, was killed, printed too much or ran longer
/// than the limit; Cancelled soon after a stop. It is killed with its process group unless it has ended. Blocks.
absl::StatusOr<ChildEnd> RunChild(const ChildCommand& command, const std::stop_token& stop);

}  // namespace millrace
