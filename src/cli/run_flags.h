#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line.h"
#include "job/group_role.h"
#include "job/run_job.h"

namespace millrace::cli {

/// Represents the flags of `millrace run` for a job of several groups of hosts.
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

/// Represents the flags of `millrace run`. Those that need no parsing are in `run` already.
struct RunFlags {
  RunOptions run;
  std::optional<uint64_t> retries;
  std::string delay = "1s";
  std::string grace = "120s";
  std::vector<std::string> on_exit;
  std::string rules;
  std::optional<std::string> hang_after;
  std::optional<std::string> max_runtime;
  std::optional<std::string> on_notice;
  uint64_t requeue_exit = 75;
  std::string log_size = "256MiB";
  std::string hook_limit = "60s";
  std::string metrics_port;
  std::string metrics_file;
  double price = 0;  // dollars an hour
  std::string machine;
  std::vector<std::string> volumes;
  std::string print;               // the file that is printed in place of a run; "": nothing
  bool print_secrets = false;      // print also what looks like a secret
  std::vector<GivenOption> given;  // all of them, as they were given
  std::vector<std::string> ec2;    // for the printed files
  GroupFlags group;

  bool PrintsGroups() const { return print == "slurm-script" || print == "jobset"; }
  /// The option was given.
  bool Has(std::string_view name) const {
    return std::ranges::any_of(given, [&](const GivenOption& option) { return option.name == name; });
  }
};

/// The options of `millrace run` that were given, as words of a command line for what --print prints, without those
/// that it says in its own way. An option that would mean something else there is a usage error that names it. All
/// others are kept, also those that `run` gets later. A value that looks like a secret is a usage error, too, unless
/// --print-secrets is given.
absl::StatusOr<std::vector<std::string>> KeptWords(const RunFlags& flags);

}  // namespace millrace::cli
