#include "service/placement.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/crypto.h"

namespace millrace {

namespace {

// How long a worker that was lost is left alone: at first, and at most.
constexpr std::chrono::milliseconds kFirstPause{500};
constexpr std::chrono::seconds kLongestPause{30};
// How long a worker is not asked for a stream that it could not serve.
constexpr std::chrono::seconds kStreamPause{30};
// How long a worker that refuses a loader is not asked again: somebody has to change something first.
constexpr std::chrono::minutes kRefusalPause{5};

uint64_t ScoreOf(uint64_t seed, const std::string& worker, size_t stream) {
  return Xxh3(AsBytes(worker), seed ^ (stream * 0x9e3779b97f4a7c15));
}

}  // namespace

Placement::Placement(std::vector<std::string> workers, size_t streams, size_t for_workers, uint64_t seed)
    : for_workers_(for_workers), seed_(seed), taken_(streams), blocked_(streams) {
  for (const std::string& worker : workers) Add(worker);
}

void Placement::Add(const std::string& worker) {
  states_.emplace_back().report.worker = worker;
  for (std::vector<Time>& blocked : blocked_) blocked.emplace_back();
}

void Placement::SetMembers(const std::vector<std::string>& workers) {
  const std::lock_guard lock(mutex_);
  for (State& state : states_) {
    const bool stays = std::find(workers.begin(), workers.end(), state.report.worker) != workers.end();
    if (stays && !state.member) {
      state.present = true;
      state.absences = 0;
      state.refused_until = {};
    }
    state.member = stays;
  }
  for (const std::string& worker : workers) {
    const bool known = std::any_of(states_.begin(), states_.end(),
                                   [&worker](const State& state) { return state.report.worker == worker; });
    if (!known) Add(worker);
  }
}

std::string Placement::NameOf(size_t worker) const {
  const std::lock_guard lock(mutex_);
  return states_[worker].report.worker;
}

bool Placement::IsUsable(size_t worker, size_t stream, Time now) const {
  const State& state = states_[worker];
  return state.member && state.present && state.refused_until <= now && blocked_[stream][worker] <= now;
}

// All streams, spread over the workers that could take this one.
Placement::Share Placement::ShareOf(size_t stream, Time now) const {
  size_t usable = 0;
  for (size_t worker = 0; worker < states_.size(); ++worker) usable += IsUsable(worker, stream, now) ? 1 : 0;
  if (usable == 0) return {};
  return {for_workers_ / usable, (for_workers_ + usable - 1) / usable};
}

// The worker with fewer than `most` streams whose hash is the highest.
std::optional<size_t> Placement::BestBelow(size_t most, size_t stream, Time now) const {
  std::optional<size_t> best;
  uint64_t best_score = 0;
  for (size_t worker = 0; worker < states_.size(); ++worker) {
    if (!IsUsable(worker, stream, now) || states_[worker].streams >= most) continue;
    const uint64_t score = ScoreOf(seed_, states_[worker].report.worker, stream);
    if (best && score <= best_score) continue;
    best = worker;
    best_score = score;
  }
  return best;
}

std::optional<size_t> Placement::Take(size_t stream, Time now) {
  const std::lock_guard lock(mutex_);
  if (taken_[stream]) --states_[*std::exchange(taken_[stream], std::nullopt)].streams;
  const Share share = ShareOf(stream, now);
  std::optional<size_t> best = BestBelow(share.least, stream, now);
  if (!best) best = BestBelow(share.most, stream, now);
  if (best) ++states_[*best].streams;
  taken_[stream] = best;
  return best;
}

bool Placement::FirstTimeAlone() {
  const std::lock_guard lock(mutex_);
  return !std::exchange(was_alone_, true);
}

bool Placement::ShouldMove(size_t stream, Time now) const {
  const std::lock_guard lock(mutex_);
  const Share share = ShareOf(stream, now);
  if (!taken_[stream] || !states_[*taken_[stream]].member) return BestBelow(share.most, stream, now).has_value();
  const size_t streams = states_[*taken_[stream]].streams;
  if (streams > share.most) return BestBelow(share.most, stream, now).has_value();
  return streams > share.least && BestBelow(share.least, stream, now).has_value();
}

std::optional<size_t> Placement::Second(size_t stream, Time now) const {
  const std::lock_guard lock(mutex_);
  std::optional<size_t> best;
  for (size_t worker = 0; worker < states_.size(); ++worker) {
    if (taken_[stream] == worker || !IsUsable(worker, stream, now)) continue;
    if (!best || states_[worker].streams < states_[*best].streams) best = worker;
  }
  return best;
}

void Placement::Exchange(size_t stream, size_t worker, const std::string& reason, Time now) {
  const std::lock_guard lock(mutex_);
  if (taken_[stream]) {
    State& slow = states_[*taken_[stream]];
    --slow.streams;
    ++slow.report.failures;
    slow.report.last_failure = reason;
    blocked_[stream][*taken_[stream]] = now + kStreamPause;
  }
  taken_[stream] = worker;
  ++states_[worker].streams;
}

void Placement::Pause(State& state, Time now) const {
  state.present = false;
  const auto pause = kFirstPause * (int64_t{1} << std::min(state.absences, 10));
  state.back = now + std::min<std::chrono::nanoseconds>(pause, kLongestPause);
  ++state.absences;
}

bool Placement::OnFailure(size_t worker, size_t stream, StreamFailure failure, const std::string& reason, Time now) {
  const std::lock_guard lock(mutex_);
  State& state = states_[worker];
  ++state.report.failures;
  const bool is_news = std::exchange(state.report.last_failure, reason) != reason;
  switch (failure) {
    case StreamFailure::kLost:
      if (state.present) Pause(state, now);
      break;
    case StreamFailure::kRefused:
      state.refused_until = now + kRefusalPause;
      break;
    case StreamFailure::kStream:
      blocked_[stream][worker] = now + kStreamPause;
      break;
  }
  return is_news;
}

void Placement::OnBatch(size_t worker) {
  const std::lock_guard lock(mutex_);
  states_[worker].absences = 0;
}

std::vector<size_t> Placement::ToProbe(Time now) {
  const std::lock_guard lock(mutex_);
  std::vector<size_t> workers;
  for (size_t worker = 0; worker < states_.size(); ++worker) {
    State& state = states_[worker];
    if (!state.member || state.present || state.probed || state.refused_until > now || state.back > now) continue;
    state.probed = true;
    workers.push_back(worker);
  }
  return workers;
}

void Placement::OnPresent(size_t worker) {
  const std::lock_guard lock(mutex_);
  states_[worker].present = true;
  states_[worker].probed = false;
}

void Placement::OnAbsent(size_t worker, Time now) {
  const std::lock_guard lock(mutex_);
  states_[worker].probed = false;
  Pause(states_[worker], now);
}

std::vector<WorkerReport> Placement::report() const {
  const std::lock_guard lock(mutex_);
  std::vector<WorkerReport> report;
  for (const State& state : states_) report.push_back(state.report);
  return report;
}

}  // namespace millrace
