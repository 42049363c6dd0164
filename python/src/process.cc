#include "process.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <latch>

#include "errors.h"
#include "pipeline/loader.h"

namespace millrace::python {

namespace {

// These are guarded by the GIL, which a forking thread holds, so that a child finds them whole.
RuntimeOptions options_for_runtime;
int nice_for_runtime = 10;  // the training has the same cores
std::chrono::nanoseconds outage_limit_for_stores = std::chrono::minutes(10);
std::shared_ptr<Process>* current =
    nullptr;  // never destroyed by the C++ runtime: its threads may outlast static objects
pid_t current_pid = 0;

bool HaveProcess() {
  return current != nullptr && current_pid == getpid();
}

// On Linux a nice is a thread's own, and only it can be sure of its number: each runs one of these tasks, which wait
// for one another. To give way is always allowed.
void MakeNice(ThreadPool& pool, int nice) {
  if (nice == 0) return;
  const auto all = std::make_shared<std::latch>(pool.threads());
  for (int i = 0; i < pool.threads(); ++i) {
    pool.Submit([all, nice] {
      const auto thread = static_cast<id_t>(gettid());
      (void)setpriority(PRIO_PROCESS, thread, getpriority(PRIO_PROCESS, thread) + nice);
      all->arrive_and_wait();
    });
  }
  all->wait();
}

}  // namespace

Process::Process(const RuntimeOptions& options, int cpu_nice, std::chrono::nanoseconds outage_limit)
    : runtime(options), stores(runtime, requests.Watch()), shares(runtime.memory(), LoaderOptions().memory_bytes) {
  stores.SetOutageLimit(outage_limit);
  MakeNice(runtime.cpu(), cpu_nice);
}

absl::Status Process::ServeMetrics(const MetricsAddress& address) {
  ASSIGN_OR_RETURN(metrics, MetricsServer::Start(address, [this](MetricsText* text) {
                     CollectProcess(text);
                     CollectMemory(runtime.memory(), text);
                     requests.Collect(text);
                     CollectLoaders(loaders, text);
                     checkpoints.Collect(text);
                   }));
  return absl::OkStatus();
}

std::shared_ptr<Process> CurrentProcess() {
  if (!HaveProcess()) {  // a parent's pointer is left behind
    current = new std::shared_ptr<Process>(new Process(options_for_runtime, nice_for_runtime, outage_limit_for_stores),
                                           DeleteInOwnProcess<Process>());
    current_pid = getpid();
  }
  return *current;
}

void Configure(const RuntimeOptions& options, int cpu_nice, std::chrono::nanoseconds outage_limit,
               const std::optional<MetricsAddress>& metrics) {
  if (HaveProcess()) {
    ThrowUsage(
        "millrace.configure() comes too late: this process already uses Millrace; call it before the first Dataset");
  }
  options_for_runtime = options;
  nice_for_runtime = cpu_nice;
  outage_limit_for_stores = outage_limit;
  if (!metrics) return;
  const absl::Status served = CurrentProcess()->ServeMetrics(*metrics);
  if (served.ok()) return;
  ReleaseProcess();
  Throw(served);
}

std::optional<std::string> MetricsUrl() {
  if (!HaveProcess() || (*current)->metrics == nullptr) return std::nullopt;
  return (*current)->metrics->url();
}

void ReleaseProcess() {
  if (!HaveProcess()) return;
  delete std::exchange(current, nullptr);
}

void CheckOwnProcess(pid_t maker, std::string_view what) {
  if (maker == getpid()) return;
  ThrowUsage(
      fmt::format("this {} was made in process {} and does not work in process {}, its fork: threads do not survive a "
                  "fork. Create it again "
                  "after the fork, or start workers with the spawn method",
                  what, maker, getpid()));
}

}  // namespace millrace::python
