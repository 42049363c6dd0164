#include "job/group_run.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "aws/endpoint.h"
#include "base/process.h"
#include "base/usage_error.h"
#include "channel/job_root.h"
#include "job/group_host.h"
#include "job/group_link.h"
#include "service/worker_token.h"
#include "supervisor/guarded_command.h"

namespace millrace {

namespace {

absl::StatusOr<std::optional<std::string>> ReadResources() {
  const char* named = std::getenv("SM_INPUT_CONFIG_DIR");
  const std::string folder = named == nullptr || *named == '\0' ? "/opt/ml/input/config" : named;
  if (JobRoot::IsLeftBehind(folder)) return std::nullopt;
  std::ifstream file(folder + "/resourceconfig.json", std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::optional<std::string> EnvironmentVariable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

// Runs in the process of the command, which was made when these signals were held: preparing it may take long, and they
// end it.
void TakeStopSignals() {
  sigset_t stops;
  sigemptyset(&stops);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&stops, signal);
  pthread_sigmask(SIG_UNBLOCK, &stops, nullptr);
}

}  // namespace

absl::StatusOr<int> RunInGroup(
    const GroupOptions& options,
    const std::function<int(const std::vector<std::string>& command, bool serves)>& supervise,
    const std::function<void(const std::string&)>& say) {
  std::vector<std::string> names;
  for (const JobGroup& group : options.groups) names.push_back(group.name);
  ASSIGN_OR_RETURN(const std::optional<std::string> resources, ReadResources());
  ASSIGN_OR_RETURN(const GroupRole role, AsUsage(FindRole(options.role, names, resources, EnvironmentVariable)));
  ASSIGN_OR_RETURN(const std::string token, ReadWorkerToken(options.token_file));
  if (token.empty() && !IsLoopback(role.coordinator)) {
    return UsageError(
        "everybody who reaches the coordinator could end the job; give all hosts a secret (--group-token-file)");
  }
  const uint16_t port = role.port.value_or(options.port);
  const bool is_main = role.group == names.back();
  const auto own = std::ranges::find(options.groups, role.group, &JobGroup::name);
  const std::vector<std::string> command = {"sh", "-c", own->command};
  ASSIGN_OR_RETURN(const std::unique_ptr<GuardedCommand> guarded, GuardedCommand::Prepare([&] {
                     TakeStopSignals();
                     setenv("MILLRACE_GROUP", role.group.c_str(), 1);
                     setenv("MILLRACE_MAIN_HOST", role.coordinator.c_str(), 1);
                     setenv("MILLRACE_MAIN_HOSTS", std::to_string(role.main_hosts).c_str(), 1);
                     return supervise(command, !is_main);
                   }));
  EventLoops loops(1);
  std::unique_ptr<GroupCoordinator> coordinator;
  if (role.coordinates) {
    GroupBoard::Options board{.main = names.back(),
                              .main_hosts = role.main_hosts,
                              .groups = std::set<std::string>(names.begin(), names.end()),
                              .lost_status = options.requeue_exit,
                              .lost_after = options.lost_after};
    const std::string listen = IsLoopback(role.coordinator) ? "127.0.0.1" : "0.0.0.0";
    ASSIGN_OR_RETURN(coordinator, GroupCoordinator::Start(loops, listen, port, token, std::move(board), say));
  }
  say(fmt::format("this is a host of group {}; {} coordinates", role.group,
                  role.coordinates ? "it" : fmt::format("{}:{}", role.coordinator, port)));
  GroupMember member(loops, {.coordinator = {.host = role.coordinates ? "127.0.0.1" : role.coordinator, .port = port},
                             .token = token,
                             .host = fmt::format("{}:{}", HostName(), getpid()),
                             .group = role.group,
                             .is_main = is_main,
                             .lost_status = options.requeue_exit,
                             .lost_after = options.lost_after,
                             .say = say,
                             .wake = GuardedCommand::Wake});
  GroupHost host({.grace = options.grace,
                  .may_leave_with = is_main ? std::nullopt : std::optional(options.requeue_exit),
                  .is_job = is_main && role.main_hosts == 1},
                 {.signal = [&guarded](int signal) { guarded->Signal(signal); },
                  .report = [&member](HostState state, int status) { member.Report(state, status); },
                  .leave = [&member](HostState state, int status) { member.Leave(state, status); },
                  .verdict = [&member] { return member.verdict(); },
                  .all_know = [&coordinator] { return coordinator == nullptr || coordinator->AllKnow(); },
                  .say = say});
  guarded->Begin();
  return guarded->Watch([&host](std::optional<int> signal, std::optional<int> ended) {
    return host.Step(signal, ended, std::chrono::steady_clock::now());
  });
}

}  // namespace millrace
