#include "aws/credential_process.h"

#include <fmt/format.h>

#include <utility>

#include "base/child_process.h"

namespace millrace {

absl::StatusOr<std::string> RunCredentialProcess(const std::string& command, std::chrono::milliseconds limit,
                                                 const std::stop_token& stop) {
  ChildCommand shell;
  shell.words = {"/bin/sh", "-c", command};
  shell.limit = limit;
  ASSIGN_OR_RETURN(ChildEnd end, RunChild(shell, stop));
  if (end.exit_status != 0) return absl::UnavailableError(fmt::format("failed with exit status {}", end.exit_status));
  return std::move(end.output);
}

}  // namespace millrace
