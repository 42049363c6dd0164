#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/usage.h"
#include "compile_cache/fingerprint.h"
#include "compile_cache/start_together.h"
#include "job/cached_command.h"
#include "supervisor/attempt_watch.h"

namespace millrace::cli {

namespace {

struct CompileCacheFlags {
  std::string uri;
  std::vector<std::string> command;
  std::string key;
  std::string dir;
  std::string max_size = "10GiB";
  std::optional<std::string> wait;
  std::string settle = "60s";
  std::string lease = "60s";
  std::optional<std::string> grace;
  bool print_key = false;
};

void Tell(const std::string& text) {
  PrintError("millrace compile-cache: {}\n", Printable(text));
}

absl::StatusOr<CompileCacheOptions> TakeCacheOptions(const CompileCacheFlags& flags) {
  CompileCacheOptions options;
  ASSIGN_OR_RETURN(options.max_bytes, TakeSize("--max-size", flags.max_size));
  const bool together = HostsStartTogether(flags.command, [](const std::string& name) {
    const char* const value = std::getenv(name.c_str());
    return std::string(value == nullptr ? "" : value);
  });
  ASSIGN_OR_RETURN(options.wait, TakeMilliseconds("--wait-for-compiler", flags.wait.value_or(together ? "0" : "5m")));
  ASSIGN_OR_RETURN(options.term, TakeMilliseconds("--lease", flags.lease));
  if (options.term < std::chrono::seconds(1)) return UsageError("--lease must be a second at least");
  options.about = fmt::format("key '{}'", flags.key);
  options.key = flags.key;
  if (flags.key.empty()) {
    const CompilerFingerprint fingerprint = TakeFingerprint(flags.command);
    options.about = fingerprint.about;
    options.key = fingerprint.Key();
  }
  RETURN_IF_ERROR(AsUsage(CheckCacheKey(options.key)));
  return options;
}

absl::StatusOr<int> RunCached(const CompileCacheFlags& flags) {
  RETURN_IF_ERROR(CheckUri(flags.uri));
  CachedRunOptions options{.command = flags.command,
                           .uri = flags.uri,
                           .dir = flags.dir,
                           .cache = {},
                           .grace = AttemptLimits::kNoGraceLimit,
                           .say = Tell};
  ASSIGN_OR_RETURN(options.settle, TakeMilliseconds("--settle", flags.settle));
  if (flags.grace) {
    ASSIGN_OR_RETURN(options.grace, TakeMilliseconds("--grace", *flags.grace));
  }
  if (flags.command.empty() && !flags.print_key) return UsageError("the command is missing; write it behind '--'");
  ASSIGN_OR_RETURN(options.cache, TakeCacheOptions(flags));
  if (!flags.print_key) return RunWithCache(std::move(options));
  RETURN_IF_ERROR(WriteStdout(fmt::format("{}  {}\n", options.cache.key, Printable(options.cache.about))));
  return 0;
}

constexpr const char* kCompileCacheFooter =
    R"(The command finds TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR, JAX_COMPILATION_CACHE_DIR and NEURON_COMPILE_CACHE_URL in its
environment, unless they are set already. Code that was compiled for this key before is in their folders. Each file is
verified; a damaged one is left out and compiled again. New files are stored when nothing has changed for a minute
(--settle), and at the end of the command. If hosts start at once and nothing is cached, one of them compiles, and the others
wait for it. Hosts of one job do not wait: they all start.

The key stands for the versions of torch, triton, jax and the Neuron compiler, the CPU's instruction sets and the kind of device
(--print-key shows it). A user who may write to the URI can make these hosts run code: keep it as private as the code itself.

The exit status is that of the command: 128 + N if signal N ended it, 127 if there is no such program. If the store cannot be
used, the command runs all the same, and a message says why.

Examples:
  millrace compile-cache s3://bucket/compiled -- python train.py
  millrace compile-cache s3://bucket/compiled -- torchrun --nproc-per-node 8 train.py
  millrace compile-cache s3://bucket/compiled --key trn1-2.21 --wait-for-compiler 1h -- neuron_parallel_compile python train.py
  millrace compile-cache s3://bucket/compiled -- millrace run --retries 3 -- python train.py
  millrace compile-cache s3://bucket/compiled --print-key -- python train.py)";

}  // namespace

void AddCompileCache(Command app) {
  const Command compile_cache =
      app.AddCommand("compile-cache", "Run a command with code that was compiled on other hosts and in earlier runs");
  auto flags = std::make_shared<CompileCacheFlags>();
  compile_cache.Add("uri", &flags->uri, "Where compiled code is kept: s3://bucket/prefix or a folder").Required();
  compile_cache.Add("command", &flags->command, "The program and its arguments, behind '--'");
  compile_cache.Add("--key NAME", &flags->key,
                    "The key of the shared code, the same on all hosts, instead of the computed one");
  compile_cache.Add("--dir DIR", &flags->dir, "The local folder (else below MILLRACE_CACHE or ~/.cache/millrace)");
  compile_cache.AddShown("--max-size", &flags->max_size,
                         "Max size of all files of the key; the oldest are removed first");
  compile_cache.Add(
      "--wait-for-compiler TIME", &flags->wait,
      "How long to wait for a host that compiles; then this one compiles, too (default: 5m; 0 if several hosts "
      "run one job)");
  compile_cache.AddShown("--lease", &flags->lease, "A host that compiles and is silent for this time counts as dead");
  compile_cache.AddShown("--settle", &flags->settle,
                         "Store new files when the folders have not changed for this time; 0: at the end only");
  compile_cache.Add(
      "--grace TIME", &flags->grace,
      "Kill the command if it has not ended this time after SIGTERM or Ctrl-C (default: never; the sender of the "
      "signal may)");
  compile_cache.AddFlag("--print-key", &flags->print_key, "Print the key and its meaning, and run nothing");
  compile_cache.Footer(kCompileCacheFooter);
  compile_cache.Run([flags] { return ExitStatus("compile-cache", RunCached(*flags)); });
}

}  // namespace millrace::cli
