#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/run_group.h"
#include "cli/run_job.h"

namespace millrace::cli {

/// The flags of `millrace run`, as they were given.
struct RunFlags {
  std::vector<std::string> command;
  std::string checkpoint;
  std::optional<uint64_t> retries;
  std::string delay = "1s";
  std::string grace = "120s";
  uint64_t fast_failures = 4;
  std::vector<std::string> on_exit;
  std::string rules;
  std::optional<std::string> hang_after;
  std::optional<std::string> on_notice;
  uint64_t requeue_exit = 75;
  std::string journal;
  std::string log_dir;
  std::string log_size = "256MiB";
  std::string failure_file;
  std::string on_success;
  std::string on_end;
  std::string hook_limit = "60s";
  std::string code;
  std::string code_dir = "code";
  std::string metrics_port;
  std::vector<std::string> volumes;
  std::string print;               // what is printed in place of a run; "": nothing
  std::vector<GivenOption> given;  // all of them, as they were given
  std::vector<std::string> ec2;    // what the printed files need besides
  JobFlags job;
  GroupFlags group;
};

}  // namespace millrace::cli
