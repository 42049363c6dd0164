#include "compile_cache/compile_cache.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/usage.h"
#include "compile_cache/cache_folders.h"
#include "compile_cache/cache_session.h"
#include "compile_cache/fingerprint.h"
#include "net/runtime.h"
#include "store/stores.h"
#include "supervisor/guarded_command.h"
#include "supervisor/supervisor.h"
#include "transfer/artifact.h"

namespace millrace::cli {

namespace {

struct CompileCacheFlags {
  std::string uri;
  std::vector<std::string> command;
  std::string key;
  std::string dir;
  std::string max_size = "10GiB";
  std::string wait = "10m";
  std::string settle = "60s";
  std::string lease = "60s";
  std::optional<std::string> grace;
  bool print_key = false;
};

void Tell(const std::string& text) {
  PrintError("millrace compile-cache: {}\n", Printable(text));
}

absl::StatusOr<std::chrono::milliseconds> TakeTime(std::string_view option, const std::string& text) {
  ASSIGN_OR_RETURN(const std::chrono::nanoseconds time, TakeDuration(option, text));
  return std::chrono::ceil<std::chrono::milliseconds>(time);
}

std::string FromEnvironment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

/// Starts the command when the cache is there, passes signals on, publishes at the end. Returns the exit status.
/// Without a session (nullptr) there is no cache.
class CompileCacheRun {
 public:
  CompileCacheRun(GuardedCommand& command, CacheSession* session) : command_(command), session_(session) {}

  int Wait() {
    if (session_ == nullptr) GuardedCommand::Wake();
    for (;;) {
      if (const std::optional<int> signal = GuardedCommand::WaitForSignal()) {
        OnSignal(*signal);
        continue;
      }
      if ((session_ == nullptr || session_->prepared()) && !begun_ && !stopped_) {
        begun_ = true;
        command_.Begin();
        for (const int signal : notices_) command_.Signal(signal);
      }
      if (begun_ && !status_) {
        status_ = command_.Ended();
        if (status_ && session_ != nullptr) session_->Finish(*status_ == 0);
      }
      if (session_ == nullptr ? status_ || stopped_ : session_->done()) return status_ ? *status_ : 128 + *stopped_;
    }
  }

 private:
  // Before the command: there will be none. While it runs: it is the one to end. After it: nothing more is published.
  // SIGUSR1 and SIGUSR2 mean something to the command only: it gets them late, or not any more.
  void OnSignal(int signal) {
    if (signal == SIGUSR1 || signal == SIGUSR2) {
      if (!begun_) notices_.insert(signal);
      if (begun_ && !status_) command_.Signal(signal);
      return;
    }
    if (begun_ && !status_) return command_.Signal(signal);
    stopped_ = signal;
    if (session_ != nullptr) session_->Stop();
  }

  GuardedCommand& command_;
  CacheSession* const session_;
  bool begun_ = false;
  std::optional<int> status_;
  std::optional<int> stopped_;
  std::set<int> notices_;  // that came before the command began
};

absl::StatusOr<CompileCacheOptions> TakeCacheOptions(const CompileCacheFlags& flags) {
  CompileCacheOptions options;
  ASSIGN_OR_RETURN(options.max_bytes, TakeSize("--max-size", flags.max_size));
  ASSIGN_OR_RETURN(options.wait, TakeTime("--wait-for-compiler", flags.wait));
  ASSIGN_OR_RETURN(options.term, TakeTime("--lease", flags.lease));
  if (options.term < std::chrono::seconds(1))
    return AsUsage(absl::InvalidArgumentError("--lease must be a second at least"));
  options.about = fmt::format("key '{}'", flags.key);
  options.key = flags.key;
  if (flags.key.empty()) {
    const CompilerFingerprint fingerprint = TakeFingerprint(flags.command);
    options.about = fingerprint.about;
    options.key = fingerprint.Key();
  }
  RETURN_IF_ERROR(AsUsage(CheckCacheKey(options.key)));
  options.journal = Tell;
  return options;
}

absl::StatusOr<int> RunWithCache(const CompileCacheFlags& flags) {
  RETURN_IF_ERROR(CheckUri(flags.uri));
  ASSIGN_OR_RETURN(const auto settle, TakeTime("--settle", flags.settle));
  std::chrono::milliseconds grace = AttemptLimits::kNoGraceLimit;
  if (flags.grace) {
    ASSIGN_OR_RETURN(grace, TakeTime("--grace", *flags.grace));
  }
  if (flags.command.empty() && !flags.print_key)
    return AsUsage(absl::InvalidArgumentError("the command is missing; write it behind '--'"));
  ASSIGN_OR_RETURN(CompileCacheOptions options, TakeCacheOptions(flags));
  if (flags.print_key) {
    RETURN_IF_ERROR(WriteStdout(fmt::format("{}  {}\n", options.key, Printable(options.about))));
    return 0;
  }
  const std::string home = DefaultCacheFolder();
  if (flags.dir.empty() && home.empty())
    return absl::NotFoundError("there is no cache folder: set MILLRACE_CACHE, or give --dir");
  const std::string root = flags.dir.empty() ? home + "/compile/" + options.key : flags.dir;
  CacheFolders folders = ChooseCacheFolders(std::filesystem::absolute(root).string(), FromEnvironment);
  for (const std::string& why : folders.left_alone) Tell(why);
  options.folders = folders.folders;
  Tell(fmt::format("key {}: {}", options.key, options.about));

  const SupervisorOptions supervisor{.command = flags.command,
                                     .checkpoint = {},
                                     .variables = std::move(folders.variables),
                                     .inner = true,
                                     .limits = {.grace = grace},
                                     .say = Tell};
  ASSIGN_OR_RETURN(const std::unique_ptr<GuardedCommand> command, GuardedCommand::Prepare([&supervisor] {
                     const absl::StatusOr<int> status = RunSupervised(supervisor);
                     if (!status.ok()) Tell(std::string(status.status().message()));
                     return status.value_or(1);
                   }));
  Runtime runtime;
  Stores stores(runtime);
  const absl::StatusOr<Location> location = stores.Open(flags.uri);
  if (!location.ok()) {
    Tell(fmt::format("the compile cache cannot be used, the command runs without it: {}",
                     ToStd(location.status().message())));
    return CompileCacheRun(*command, nullptr).Wait();
  }
  const std::chrono::milliseconds term = options.term;
  CompileCache cache(*location, stores, runtime.memory(), std::move(options));
  CacheSession session(cache, {.settle = settle, .term = term, .changed = GuardedCommand::Wake, .journal = Tell});
  return CompileCacheRun(*command, &session).Wait();
}

constexpr const char* kCompileCacheFooter =
    R"(The command finds TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR, JAX_COMPILATION_CACHE_DIR and NEURON_COMPILE_CACHE_URL in its
environment, unless they are set already; what was compiled for this key before is in their folders. Each file is verified; a
damaged one is left out and compiled again. What the command compiles is stored when nothing has changed for a minute
(--settle), and at its end. If hosts start at once and nothing is cached, one of them compiles; the others wait for it.

The key stands for the versions of torch, triton, jax and the Neuron compiler, the CPU's instruction sets and the kind of device
(--print-key shows it). Whoever may write to the URI can make these hosts run code: keep it as private as the code itself.

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
      app.AddCommand("compile-cache", "Run a command with what compilers have made on other hosts and in earlier runs");
  auto flags = std::make_shared<CompileCacheFlags>();
  compile_cache.Add("uri", &flags->uri, "Where compiled code is kept: s3://bucket/prefix or a folder").Required();
  compile_cache.Add("command", &flags->command, "The program and its arguments, behind '--'");
  compile_cache
      .Add("--key", &flags->key,
           "The key of what is shared, instead of the one that is worked out; the same on all hosts")
      .Called("NAME");
  compile_cache.Add("--dir", &flags->dir, "The local folder (else below MILLRACE_CACHE or ~/.cache/millrace)")
      .Called("DIR");
  compile_cache.Add("--max-size", &flags->max_size, "The most that all files of the key may take; the oldest go first")
      .ShowDefault();
  compile_cache
      .Add("--wait-for-compiler", &flags->wait,
           "How long to wait for a host that compiles; then this one compiles, too")
      .ShowDefault();
  compile_cache.Add("--lease", &flags->lease, "A host that compiles and is silent for so long counts as dead")
      .ShowDefault();
  compile_cache
      .Add("--settle", &flags->settle,
           "Store new files when the folders have not changed for so long; 0: at the end only")
      .ShowDefault();
  compile_cache
      .Add("--grace", &flags->grace,
           "Kill the command if it has not ended so long after SIGTERM or Ctrl-C (default: never; whoever sent "
           "the signal may)")
      .Called("TIME");
  compile_cache.AddFlag("--print-key", &flags->print_key, "Print the key and what it stands for, and run nothing");
  compile_cache.Footer(kCompileCacheFooter);
  compile_cache.Run([flags] {
    const absl::StatusOr<int> status = RunWithCache(*flags);
    return status.ok() ? *status : Fail("compile-cache", status.status());
  });
}

}  // namespace millrace::cli
