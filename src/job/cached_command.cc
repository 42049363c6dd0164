#include "job/cached_command.h"

#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/own_folder.h"
#include "compile_cache/cache_folders.h"
#include "compile_cache/cache_session.h"
#include "net/runtime.h"
#include "store/stores.h"
#include "supervisor/guarded_command.h"
#include "supervisor/supervisor.h"
#include "transfer/artifact.h"

namespace millrace {

namespace {

std::string FromEnvironment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

// Programs in the default folder are run, so nobody else may write there.
absl::StatusOr<std::string> RootOf(const CachedRunOptions& options) {
  if (!options.dir.empty()) return options.dir;
  const std::string home = DefaultCacheFolder();
  if (home.empty()) return absl::NotFoundError("there is no cache folder: set MILLRACE_CACHE, or give --dir");
  ASSIGN_OR_RETURN(const OwnFolder folder, TakeOwnFolder(home, "compile", FolderSharing::kNobody));
  return folder.path + "/" + options.cache.key;
}

int WatchCached(GuardedCommand& command, CachedCommand::Actions actions) {
  actions.begin = [&command] { command.Begin(); };
  actions.signal = [&command](int signal) { command.Signal(signal); };
  CachedCommand cached(std::move(actions));
  return command.Watch(
      [&cached](std::optional<int> signal, std::optional<int> ended) { return cached.Step(signal, ended); });
}

}  // namespace

CachedCommand::Actions CachedCommand::WithoutCache() {
  const auto over = std::make_shared<bool>(false);
  return {.begin = {},
          .signal = {},
          .prepared = [] { return true; },
          .finish = [over](bool) { *over = true; },
          .stop = [over] { *over = true; },
          .done = [over] { return *over; }};
}

std::optional<int> CachedCommand::Step(std::optional<int> signal, std::optional<int> ended) {
  if (signal) OnSignal(*signal);
  if (!begun_ && !stopped_ && actions_.prepared()) {
    begun_ = true;
    actions_.begin();
    for (const int notice : notices_) actions_.signal(notice);
  }
  if (begun_ && !status_ && ended) {
    status_ = ended;
    actions_.finish(*status_ == 0);
  }
  if (!actions_.done()) return std::nullopt;
  return status_ ? *status_ : 128 + *stopped_;
}

// Acts by the state of the command. If it has not started, it will not start. If it runs, it has to end. If it has
// ended, nothing more is published. SIGUSR1 and SIGUSR2 mean something to the command only: it gets them late, or not
// any more.
void CachedCommand::OnSignal(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    if (!begun_) notices_.insert(signal);
    if (begun_ && !status_) actions_.signal(signal);
    return;
  }
  if (begun_ && !status_) return actions_.signal(signal);
  stopped_ = signal;
  actions_.stop();
}

absl::StatusOr<int> RunWithCache(CachedRunOptions options) {
  ASSIGN_OR_RETURN(const std::string root, RootOf(options));
  CacheFolders folders = ChooseCacheFolders(std::filesystem::absolute(root).string(), FromEnvironment);
  for (const std::string& why : folders.left_alone) options.say(why);
  options.cache.folders = folders.folders;
  options.cache.journal = options.say;
  options.say(fmt::format("key {}: {}", options.cache.key, options.cache.about));

  const SupervisorOptions supervisor{.command = options.command,
                                     .checkpoint = {},
                                     .variables = std::move(folders.variables),
                                     .inner = true,
                                     .limits = {.grace = options.grace},
                                     .say = options.say};
  ASSIGN_OR_RETURN(const std::unique_ptr<GuardedCommand> command, GuardedCommand::Prepare([&supervisor] {
                     const absl::StatusOr<int> status = RunSupervised(supervisor);
                     if (!status.ok()) supervisor.say(std::string(ToStd(status.status().message())));
                     return status.value_or(1);
                   }));
  Runtime runtime;
  Stores stores(runtime);
  const absl::StatusOr<Location> location = stores.Open(options.uri);
  if (!location.ok()) {
    options.say(fmt::format("the compile cache cannot be used, the command runs without it: {}",
                            ToStd(location.status().message())));
    GuardedCommand::Wake();
    return WatchCached(*command, CachedCommand::WithoutCache());
  }
  const std::chrono::milliseconds term = options.cache.term;
  CompileCache cache(*location, stores, runtime.memory(), std::move(options.cache));
  CacheSession session(
      cache, {.settle = options.settle, .term = term, .changed = GuardedCommand::Wake, .journal = options.say});
  return WatchCached(*command, {.begin = {},
                                .signal = {},
                                .prepared = [&session] { return session.prepared(); },
                                .finish = [&session](bool succeeded) { session.Finish(succeeded); },
                                .stop = [&session] { session.Stop(); },
                                .done = [&session] { return session.done(); }});
}

}  // namespace millrace
