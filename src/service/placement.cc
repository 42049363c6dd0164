#include "service/placement.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/crypto.h"

namespace millrace {

namespace {

// A worker that was lost is not asked for this long: at first, and at most.
constexpr std::chrono::milliseconds kFirstPause{500};
constexpr std::chrono::seconds kLongestPause{30};
// A worker is not asked for this long for a stream that it could not serve.
constexpr std::chrono::seconds kStreamPause{30};
// A worker that refuses a loader is not asked again for this long, since somebody has to change something first.
constexpr std::chrono::minutes kRefusalPause{5};
// A straggler has less than its share for this long: at first, and at most. The time doubles if the worker is a
// straggler again before so many times the last pause have passed.
constexpr std::chrono::seconds kFirstLimit{2};
constexpr std::chrono::minutes kLongestLimit{10};
constexpr int kRelapsesWithin = 4;
// After so long a silence a worker is lost if the program waits for it. With the time that it takes to open the stream
// elsewhere, or here, a pause of the program stays below two seconds.
constexpr std::chrono::milliseconds kLongestSilence{1000};
constexpr std::chrono::milliseconds kLongestSilenceOfTheLast{1500};

constexpr std::string_view kOvertaken = "another worker was faster with a late batch";
constexpr std::string_view kSlow = "other workers are faster: it has fewer streams for a while";

uint64_t ScoreOf(uint64_t seed, const std::string& worker, size_t stream) {
  return Xxh3(AsBytes(worker), seed ^ (stream * 0x9e3779b97f4a7c15));
}

}  // namespace

Placement::Placement(std::vector<std::string> workers, size_t streams, LocalStreams local, uint64_t seed)
    : local_follows_(local.follows),
      seed_(seed),
      local_(std::min<uint64_t>(local.streams, streams)),
      taken_(streams),
      placed_(streams),
      placed_at_(streams),
      blocked_(streams) {
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
      state.limited_until = {};
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

size_t Placement::LimitOf(size_t worker, Time now) const {
  return states_[worker].limited_until > now ? states_[worker].limit : SIZE_MAX;
}

// Spreads all streams for workers over the workers that could take this one: stragglers have what they may have at
// most, the others the rest.
Placement::Share Placement::ShareOf(size_t stream, Time now) const {
  std::vector<size_t> usable;
  for (size_t worker = 0; worker < states_.size(); ++worker) {
    if (IsUsable(worker, stream, now)) usable.push_back(worker);
  }
  if (usable.empty()) return {};
  const auto spread = [](size_t streams, size_t workers) {
    return Share{.least = streams / workers, .most = (streams + workers - 1) / workers};
  };
  const Share equal = spread(for_workers(), usable.size());
  size_t left = for_workers();
  for (bool found = true; found && !usable.empty();) {
    const size_t most = spread(left, usable.size()).most;
    const auto straggler =
        std::find_if(usable.begin(), usable.end(), [&](size_t worker) { return LimitOf(worker, now) < most; });
    found = straggler != usable.end();
    if (!found) break;
    left -= LimitOf(*straggler, now);
    usable.erase(straggler);
  }
  if (usable.empty()) return equal;  // all are stragglers: then none is
  Share share = spread(left, usable.size());
  share.has_limits = true;
  return share;
}

size_t Placement::LeastOf(size_t worker, const Share& share, Time now) const {
  return share.has_limits ? std::min(share.least, LimitOf(worker, now)) : share.least;
}

size_t Placement::MostOf(size_t worker, const Share& share, Time now) const {
  return share.has_limits ? std::min(share.most, LimitOf(worker, now)) : share.most;
}

// Returns the worker with fewer streams than it should have at least, or may have at most, whose hash is the highest.
std::optional<size_t> Placement::Best(size_t stream, bool for_least, const Share& share, Time now) const {
  std::optional<size_t> best;
  uint64_t best_score = 0;
  for (size_t worker = 0; worker < states_.size(); ++worker) {
    const size_t bound = for_least ? LeastOf(worker, share, now) : MostOf(worker, share, now);
    if (!IsUsable(worker, stream, now) || states_[worker].streams >= bound) continue;
    const uint64_t score = ScoreOf(seed_, states_[worker].report.worker, stream);
    if (best && score <= best_score) continue;
    best = worker;
    best_score = score;
  }
  return best;
}

// The stream is read from `worker` from now on, or here.
void Placement::Place(size_t stream, std::optional<size_t> worker, Time now) {
  if (placed_[stream]) {
    size_t& streams = taken_[stream] ? states_[*taken_[stream]].streams : read_here_;
    --streams;
    paces_.OnStreams(taken_[stream] ? SourceOfWorker(*taken_[stream]) : kLocalSource, streams, -1, now);
  }
  size_t& streams = worker ? states_[*worker].streams : read_here_;
  ++streams;
  paces_.OnStreams(worker ? SourceOfWorker(*worker) : kLocalSource, streams, 1, now);
  taken_[stream] = worker;
  placed_[stream] = true;
  placed_at_[stream] = now;
}

std::optional<size_t> Placement::Take(size_t stream, Time now) {
  const std::lock_guard lock(mutex_);
  std::optional<size_t> best;
  if (stream >= local_) {
    // It does not count as one of its own worker's while another one is looked for.
    const std::optional<size_t> own = taken_[stream];
    if (own) --states_[*own].streams;
    Share share = ShareOf(stream, now);
    best = Best(stream, true, share, now);
    if (!best) best = Best(stream, false, share, now);
    if (!best) {
      share.most = SIZE_MAX;  // streams that this process takes over soon may still count
      best = Best(stream, false, share, now);
    }
    if (own) ++states_[*own].streams;
  }
  if (!placed_[stream] || best != taken_[stream]) Place(stream, best, now);
  placed_at_[stream] = now;  // also if it begins again at the same worker
  return best;
}

bool Placement::FirstTimeAlone(size_t stream) {
  const std::lock_guard lock(mutex_);
  return stream >= local_ && !std::exchange(was_alone_, true);
}

bool Placement::HasBetter(size_t stream, Time now) const {
  const Share share = ShareOf(stream, now);
  if (!taken_[stream] || !states_[*taken_[stream]].member) return Best(stream, false, share, now).has_value();
  const size_t own = *taken_[stream];
  const size_t streams = states_[own].streams;
  if (streams > MostOf(own, share, now)) return Best(stream, false, share, now).has_value();
  return streams > LeastOf(own, share, now) && Best(stream, true, share, now).has_value();
}

bool Placement::ShouldMove(size_t stream, Time now) {
  const std::lock_guard lock(mutex_);
  Balance(stream, now);
  if (stream < local_) return taken_[stream].has_value();
  return HasBetter(stream, now);
}

// ---- Stragglers

void Placement::OnAwaited(std::optional<size_t> source, Time now) {
  const std::lock_guard lock(mutex_);
  paces_.OnAwaited(source, now);
}

// Returns whether the worker is a straggler, or was one not long ago.
bool Placement::Relapses(const State& state, Time now) {
  return now - state.limited_until < kRelapsesWithin * state.limited_for;
}

void Placement::Limit(size_t worker, size_t streams, std::string_view reason, Time now) {
  State& state = states_[worker];
  if (state.limited_until <= now) {
    state.limited_for =
        Relapses(state, now) ? std::min<std::chrono::nanoseconds>(2 * state.limited_for, kLongestLimit) : kFirstLimit;
    state.limited_until = now + state.limited_for;
  }
  state.limit = streams;
  state.report.last_failure = reason;
}

// Returns the usable worker, except `but`, that would be the fastest with a stream more, as far as is known. One that
// was never waited for counts as the fastest.
std::optional<size_t> Placement::Fastest(std::optional<size_t> but, size_t stream, Time now) const {
  std::optional<size_t> best;
  double best_pace = 0;
  for (size_t worker = 0; worker < states_.size(); ++worker) {
    const size_t streams = states_[worker].streams;
    if (worker == but || !IsUsable(worker, stream, now) || streams >= LimitOf(worker, now)) continue;
    const WorkerPaces::Duration pace = paces_.PaceOf(SourceOfWorker(worker)).value_or(WorkerPaces::Duration());
    const double more = streams == 0 ? 1 : static_cast<double>(streams + 1) / static_cast<double>(streams);
    const double then = static_cast<double>(pace.count()) * more;
    const bool is_better = !best || then < best_pace || (then <= best_pace && streams < states_[*best].streams);
    if (!is_better) continue;
    best = worker;
    best_pace = then;
  }
  return best;
}

// If the program waits for the stream's source and another one would be faster, the source has a stream less.
void Placement::Balance(size_t stream, Time now) {
  if (!placed_[stream]) return;
  const std::optional<size_t> own = taken_[stream];
  if (!own && stream >= local_) return;  // for want of workers
  const std::optional<size_t> fastest = Fastest(own, stream, now);
  if (!own) {
    if (local_follows_ && fastest && Gives(kLocalSource, read_here_, *fastest, now)) SetLocal(local_ - 1, now);
    return;
  }
  const size_t source = SourceOfWorker(*own);
  const size_t streams = states_[*own].streams;
  if (local_follows_ && local_ < taken_.size()) {
    const bool again = local_ == 0 && now >= local_back_ && paces_.IsAwaited(source, now);
    if (again || paces_.ShouldGive(source, streams, kLocalSource, read_here_, now)) return SetLocal(local_ + 1, now);
  }
  if (fastest && paces_.ShouldGive(source, streams, SourceOfWorker(*fastest), states_[*fastest].streams, now)) {
    Limit(*own, streams - 1, kSlow, now);
  }
}

// Returns whether this process should give a stream to a worker.
bool Placement::Gives(size_t source, size_t streams, size_t worker, Time now) const {
  if (states_[worker].streams == 0) return paces_.IsAwaited(source, now);
  return paces_.ShouldGive(source, streams, SourceOfWorker(worker), states_[worker].streams, now);
}

void Placement::SetLocal(size_t streams, Time now) {
  if (streams == 0) {
    local_back_after_ = std::min<std::chrono::nanoseconds>(2 * local_back_after_, kLongestLimit);
    local_back_ = now + local_back_after_;
  }
  local_ = streams;
  paces_.OnStreams(kLocalSource, read_here_, 0, now);  // the next such decision needs measurements of its own
  for (size_t worker = 0; worker < states_.size(); ++worker) {
    paces_.OnStreams(SourceOfWorker(worker), states_[worker].streams, 0, now);
  }
}

std::optional<size_t> Placement::Hedge(size_t stream, bool opens, Time since, Time now) {
  const std::lock_guard lock(mutex_);
  if (hedging_ || !taken_[stream]) return std::nullopt;
  const std::optional<size_t> second = Fastest(taken_[stream], stream, now);
  if (!second) return std::nullopt;
  const bool suspect = Relapses(states_[*taken_[stream]], now);
  const WorkerPaces::Duration delay =
      paces_.HedgeDelay(SourceOfWorker(*taken_[stream]), SourceOfWorker(*second), opens, suspect, now);
  if (now - since < delay) return std::nullopt;
  hedging_ = true;
  hedged_since_ = since;
  return second;
}

void Placement::OnHedgeWon(size_t stream, size_t worker, Time now) {
  const std::lock_guard lock(mutex_);
  hedging_ = false;
  const std::optional<size_t> slow = taken_[stream];
  if (slow) paces_.OnBatch(SourceOfWorker(*slow), now - hedged_since_, false);  // it would have taken longer still
  Place(stream, worker, now);
  if (!slow) return;
  paces_.OnHedgeWon(SourceOfWorker(*slow));
  states_[*slow].overtaken = now;
  Limit(*slow, states_[*slow].streams, kOvertaken, now);
}

void Placement::OnHedgeLost(size_t stream, Time now) {
  const std::lock_guard lock(mutex_);
  hedging_ = false;
  if (taken_[stream]) paces_.OnHedgeLost(SourceOfWorker(*taken_[stream]), now);
}

void Placement::OnHedgeStays(size_t stream, size_t worker, Time now) {
  const std::lock_guard lock(mutex_);
  hedging_ = false;
  Place(stream, worker, now);
}

void Placement::OnHedgeOver() {
  const std::lock_guard lock(mutex_);
  hedging_ = false;
}

bool Placement::ShouldLeave(size_t stream, Time since, Time now) {
  const std::lock_guard lock(mutex_);
  const std::optional<size_t> own = taken_[stream];
  // Evidence from before the stream came to this worker was the reason for the move, so it does not count again.
  const Time from = std::max(since, placed_at_[stream]);
  if (!own || states_[*own].overtaken < from || !Fastest(own, stream, now)) return false;
  Limit(*own, states_[*own].streams - 1, kOvertaken, now);
  return true;
}

void Placement::Pause(State& state, Time now) const {
  state.present = false;
  const auto pause = kFirstPause * (int64_t{1} << std::min(state.absences, 10));
  state.back = now + std::min<std::chrono::nanoseconds>(pause, kLongestPause);
  ++state.absences;
}

bool Placement::IsLost(size_t stream, std::chrono::nanoseconds silent, bool is_hedged, Time now) const {
  if (silent < kLongestSilence) return false;
  const std::lock_guard lock(mutex_);
  const std::optional<size_t> own = taken_[stream];
  if (!own) return false;
  for (size_t worker = 0; worker < states_.size() && !is_hedged; ++worker) {
    if (worker != *own && IsUsable(worker, stream, now)) return true;
  }
  return silent >= kLongestSilenceOfTheLast;
}

void Placement::OnNoAnswer(size_t worker, const std::string& reason, Time asked, Time now) {
  const std::lock_guard lock(mutex_);
  State& state = states_[worker];
  if (!state.member || !state.present || state.heard > asked) return;
  ++state.report.failures;
  state.report.last_failure = reason;
  Pause(state, now);
}

bool Placement::OnFailure(size_t worker, size_t stream, StreamFailure failure, const std::string& reason, Time now) {
  const std::lock_guard lock(mutex_);
  State& state = states_[worker];
  ++state.report.failures;
  const bool is_news = std::exchange(state.report.last_failure, reason) != reason;
  switch (failure) {
    case StreamFailure::kLost:
      if (!state.present) return false;
      Pause(state, now);
      return state.heard == Time{};
    case StreamFailure::kRefused:
      state.refused_until = now + kRefusalPause;
      return is_news;
    case StreamFailure::kStream:
      blocked_[stream][worker] = now + kStreamPause;
      break;
  }
  return false;
}

void Placement::OnBatch(size_t source, std::optional<WorkerPaces::Duration> waited, bool opens, Time came) {
  const std::lock_guard lock(mutex_);
  paces_.OnBatch(source, waited, opens);
  if (source == kLocalSource) return;
  State& state = states_[source - SourceOfWorker(0)];
  state.absences = 0;
  state.heard = std::max(state.heard, came);
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

void Placement::OnPresent(size_t worker, Time now) {
  const std::lock_guard lock(mutex_);
  State& state = states_[worker];
  state.present = true;
  state.probed = false;
  state.heard = std::max(state.heard, now);
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
