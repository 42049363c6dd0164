#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/console.h"
#include "supervisor/supervisor.h"

namespace millrace::cli {

namespace {

struct RunFlags {
  std::vector<std::string> command;
  std::string checkpoint;
  uint64_t retries = 0;
  double delay = 1;
  double grace = 120;
};

absl::StatusOr<std::chrono::milliseconds> TakeSeconds(std::string_view option, double seconds) {
  constexpr double kMaxSeconds = 7 * 24 * 3600;
  if (seconds >= 0 && seconds <= kMaxSeconds) return std::chrono::milliseconds(std::llround(seconds * 1000));
  return AsUsage(absl::InvalidArgumentError(fmt::format("{} must be 0 to {} seconds", option, kMaxSeconds)));
}

absl::StatusOr<int> RunCommand(const RunFlags& flags) {
  if (!flags.checkpoint.empty()) RETURN_IF_ERROR(CheckUri(flags.checkpoint));
  SupervisorOptions options;
  options.command = flags.command;
  options.checkpoint = flags.checkpoint;
  options.retries = flags.retries;
  ASSIGN_OR_RETURN(options.delay, TakeSeconds("--delay", flags.delay));
  ASSIGN_OR_RETURN(options.grace, TakeSeconds("--grace", flags.grace));
  options.journal = [](const std::string& text) { fmt::print(stderr, "millrace run: {}\n", ForStderr(text)); };
  return RunSupervised(options);
}

}  // namespace

void AddRun(Command app) {
  const Command run = app.AddCommand("run", "Run a command, and start it again when it fails or is killed");
  auto flags = std::make_shared<RunFlags>();
  run.Add("command", &flags->command, "The program and its arguments, behind '--'").Required();
  run.Add("--retries", &flags->retries, "How often it is started again: N retries are N + 1 attempts")
      .ShowDefault()
      .Number(0, 1'000'000);
  run.Add("--checkpoint", &flags->checkpoint, "URI of its checkpoints, told in MILLRACE_CHECKPOINT").Called("URI");
  run.Add("--delay", &flags->delay, "Seconds before the first restart; doubles with each failure in a row, to a minute")
      .ShowDefault();
  run.Add("--grace", &flags->grace, "Seconds that the command has to end after SIGTERM or Ctrl-C").ShowDefault();
  run.Footer(
      "The command finds MILLRACE_ATTEMPT (1 for the first), MILLRACE_ATTEMPTS and MILLRACE_CHECKPOINT in its "
      "environment; millrace.Checkpoints() in a Python program uses the last one. SIGTERM, SIGINT and SIGHUP are "
      "passed "
      "on to the process group of the command, which is then not started again. What a failed attempt leaves running "
      "is "
      "killed.\n\n"
      "The exit status is that of the last attempt: 128 + N if signal N ended it, 127 if there is no such program.\n\n"
      "Examples:\n"
      "  millrace run --retries 3 -- python train.py\n"
      "  millrace run --retries 20 --checkpoint s3://bucket/run-7 -- torchrun --nproc-per-node 8 train.py");
  run.Run([flags] {
    const absl::StatusOr<int> status = RunCommand(*flags);
    return status.ok() ? *status : Fail("run", status.status());
  });
}

}  // namespace millrace::cli
