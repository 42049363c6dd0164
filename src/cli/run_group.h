#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/command_line.h"
#include "cli/run_role.h"

namespace millrace::cli {

/// The flags of `millrace run` for a job of several groups of hosts.
struct GroupFlags {
  std::vector<std::string> groups;  // NAME=COMMAND
  RoleFlags role;
  uint64_t port = 7079;
  std::string token_file;
  std::string grace = "3s";
  std::string lost = "6s";
  std::string name = "millrace-job";
  std::string image;
  std::vector<std::string> sizes;  // NAME=HOSTS
};

void AddGroupOptions(const Command& run, GroupFlags* flags);

/// Runs the command of this host's group under `supervise`, which is called in a process of its own and returns an exit
/// status, until the job ends; then ends it. Returns how the job ended. Call it in a program without threads.
/// `requeue_exit`: with which status a command asks for another machine.
absl::StatusOr<int> RunInGroup(const GroupFlags& flags, int requeue_exit,
                               const std::function<int(const std::vector<std::string>& command)>& supervise,
                               const std::function<void(const std::string&)>& say);

}  // namespace millrace::cli
