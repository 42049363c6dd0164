#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "job/group_files.h"
#include "job/group_role.h"

namespace millrace {

/// A job of several groups of hosts, as one of its hosts knows it.
struct GroupOptions {
  std::vector<JobGroup> groups;  // the last one is the main one
  RoleFlags role;
  uint16_t port = 7079;    // of the coordinator, unless the role says it
  std::string token_file;  // "": no secret, on one machine only
  std::chrono::milliseconds grace{3'000};
  std::chrono::milliseconds lost_after{6'000};
  int requeue_exit = 75;  // the status with which a command asks for another machine
};

/// Runs the command of this host's group under `supervise`, which is called in a process of its own and returns an exit
/// status, until the job ends; then ends it. `serves`: the group is not the main one. Returns how the job ended. Call
/// it in a program without threads.
absl::StatusOr<int> RunInGroup(
    const GroupOptions& options,
    const std::function<int(const std::vector<std::string>& command, bool serves)>& supervise,
    const std::function<void(const std::string&)>& say);

}  // namespace millrace
