#include "compile_cache/cache_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/long_task.h"

namespace millrace {

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr int64_t kEverything = std::numeric_limits<int64_t>::max();
constexpr Milliseconds kGiveBackLimit{10'000};  // a lease that is not given back expires

int64_t UnixNs(Milliseconds ago) {
  const auto at = std::chrono::system_clock::now().time_since_epoch() - ago;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at).count();
}

}  // namespace

CacheSession::CacheSession(CompileCache& cache, CacheSessionOptions options)
    : cache_(cache), options_(std::move(options)), thread_([this] { Run(); }) {}

CacheSession::~CacheSession() {
  Stop();
  thread_.join();
}

bool CacheSession::prepared() const {
  std::lock_guard lock(mutex_);
  return prepared_;
}

bool CacheSession::done() const {
  std::lock_guard lock(mutex_);
  return done_;
}

void CacheSession::Finish(bool succeeded) {
  std::lock_guard lock(mutex_);
  state_ = succeeded ? CommandState::kSucceeded : CommandState::kFailed;
  woken_.notify_all();
}

void CacheSession::Stop() {
  stop_.request_stop();
}

void CacheSession::Set(bool* flag) {
  {
    std::lock_guard lock(mutex_);
    *flag = true;
  }
  options_.changed();
}

void CacheSession::Note(const absl::Status& status, const char* what) const {
  if (status.ok() || absl::IsCancelled(status)) return;
  options_.journal(fmt::format("{}: {}", what, ToStd(status.message())));
}

void CacheSession::Run() {
  const absl::Status started = cache_.Start(stop_.get_token());
  Note(started, "the compile cache cannot be used, the command runs without it");
  Set(&prepared_);
  if (started.ok()) {
    Tend();
  } else {
    std::unique_lock lock(mutex_);
    woken_.wait(lock, stop_.get_token(), [this] { return state_ != CommandState::kRuns; });
  }
  if (stop_.stop_requested()) {
    // Others should not have to wait for the lease to expire.
    std::stop_source limit;
    std::jthread watch([&limit](const std::stop_token& stop) {
      SleepUnlessStopped(kGiveBackLimit, stop);
      limit.request_stop();
    });
    cache_.GiveBack(limit.get_token()).IgnoreError();
  }
  Set(&done_);
}

// Renews the lease and publishes settled files until the command has ended. Then publishes for the last time.
void CacheSession::Tend() {
  const std::stop_token stop = stop_.get_token();
  FoundFiles seen;
  FoundFiles published;
  Clock::time_point changed = Clock::now();
  Clock::time_point renewed = Clock::now();
  const Milliseconds settle = options_.settle;
  // The tick is a third of what must not pass unnoticed.
  Milliseconds tick = cache_.holds_lease() ? options_.term / 3 : std::chrono::minutes(10);
  if (settle.count() > 0) tick = std::min(tick, std::max(settle / 3, Milliseconds(1)));
  for (;;) {
    CommandState state;
    {
      std::unique_lock lock(mutex_);
      woken_.wait_for(lock, stop, tick, [this] { return state_ != CommandState::kRuns; });
      state = state_;
    }
    if (stop.stop_requested()) return;
    if (state != CommandState::kRuns) return PublishLast(state);
    if (cache_.holds_lease() && Clock::now() - renewed >= options_.term / 3) {
      Note(cache_.Renew(stop), "the lease was not renewed");
      renewed = Clock::now();
    }
    if (settle.count() == 0) continue;
    FoundFiles now = cache_.FindNew();
    if (now.files != seen.files || now.compiling) {
      seen = std::move(now);
      changed = Clock::now();
    } else if (!seen.files.empty() && seen.files != published.files && Clock::now() - changed >= settle) {
      Note(cache_.Publish(seen, kEverything, /*sweeps=*/false, stop), "what was compiled was not stored yet");
      published = seen;
    }
  }
}

void CacheSession::PublishLast(CommandState state) {
  const std::stop_token stop = stop_.get_token();
  FoundFiles found = cache_.FindNew();
  const bool succeeded = state == CommandState::kSucceeded;
  const int64_t latest_ns = succeeded ? kEverything : UnixNs(options_.suspect);
  const bool sound = std::any_of(found.files.begin(), found.files.end(),
                                 [&](const FoundFile& file) { return file.modified_ns <= latest_ns; });
  // A command that failed before it has compiled anything shows nothing.
  if (!succeeded && !sound) {
    Note(cache_.GiveBack(stop), "the lease was not given back");
    return;
  }
  Note(cache_.Publish(found, latest_ns, /*sweeps=*/true, stop), "what was compiled was not stored");
}

}  // namespace millrace
