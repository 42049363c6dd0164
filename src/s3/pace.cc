#include "s3/pace.h"

#include <algorithm>
#include <utility>

namespace millrace {

namespace {

constexpr double kFirstPart = 0.8;  // of what is promised: most stores keep it, and the first batch is waited for
constexpr double kFreeRate = 1e6;   // no limit for practical purposes
constexpr double kLeastRate = 5;
constexpr absl::Duration kLongestRound = absl::Seconds(1);  // answers that come later do not count
constexpr double kNearlyAll = 0.95;
constexpr absl::Duration kIndifference = absl::Seconds(15);
constexpr absl::Duration kForget = absl::Seconds(8);  // without a throttled answer
// Waits below this are not worth a timer; turns are still counted, so the pace holds on average.
constexpr absl::Duration kShortWait = absl::Milliseconds(2);
constexpr absl::Duration kLongWait = absl::Milliseconds(200);
constexpr double kFewFailed = 0.01;  // part of the answers that is no reason to slow down
constexpr double kManyFailed = 0.1;
constexpr int kLeastFailed = 3;     // fewer say nothing
constexpr int kEnoughAnswers = 20;  // or requests, to judge by

}  // namespace

Pace::Pace(double promised_rate, absl::Time now, double first_rate)
    : promised_rate_(promised_rate),
      rate_(std::max(kFirstPart * promised_rate, first_rate)),
      next_(now),
      promised_until_(now),
      entered_(now),
      round_(now) {}

absl::Duration Pace::TakeTurn(absl::Time now) {
  if (RoundIsOver(now)) EndRound(now);
  const absl::Duration turn = absl::Seconds(1 / rate_);
  if (next_ - now <= kShortWait) {
    next_ = std::max(next_, now) + turn;
    if (InRound(now)) ++sent_;
    return absl::ZeroDuration();
  }
  queued_ = true;
  // Nobody waits for longer than kLongWait at a time: the pace may have changed by then.
  promised_until_ = std::min(std::max(promised_until_, next_) + turn, now + kLongWait);
  return promised_until_ - now;
}

void Pace::OnAnswer(bool throttled, absl::Time sent, absl::Time now) {
  if (InRound(sent)) (throttled ? failed_ : passed_) += 1;
  if (RoundIsOver(now)) EndRound(now);
}

bool Pace::RoundIsOver(absl::Time now) const {
  // The first signs of a limit count at once: each moment above it costs requests that must be made again.
  const bool watchful = state_ == State::kRising || state_ == State::kProbing;
  if (watchful && sent_ >= kEnoughAnswers && failed_ >= kLeastFailed && failed_ > kFewFailed * sent_) return true;
  if (now < round_ + kRound) return false;
  if (now >= round_ + kLongestRound) return true;
  const int answers = passed_ + failed_;
  return answers >= kNearlyAll * sent_ && (state_ != State::kJudging || answers >= kEnoughAnswers);
}

void Pace::EndRound(absl::Time now) {
  const double failed = failed_ >= kLeastFailed ? static_cast<double>(failed_) / (passed_ + failed_) : 0;
  const absl::Duration calm = now - entered_;
  switch (state_) {
    case State::kRising:
      if (failed > 0) {
        Fall(failed, now);
      } else if (queued_) {
        // Not by a great step beyond what is promised: what it meets there should be little.
        const double nearly = kNearlyAll * promised_rate_;
        rate_ = rate_ < nearly ? std::min(1.5 * rate_, nearly) : std::min(kFreeRate, 1.1 * rate_);
      }
      break;
    case State::kJudging:
      if (passed_ + failed_ > 0) Judge(failed, now);
      break;
    case State::kProbing:
      if (failed > kFewFailed) {
        Fall(failed, now);
      } else if (calm >= kForget) {
        Enter(State::kRising, now);
      } else if (queued_) {
        Rise(calm < absl::Seconds(2) ? 1.005 : calm < absl::Seconds(4) ? 1.02 : 1.08);
      }
      break;
    case State::kIndifferent:
      if (calm >= kIndifference) Enter(State::kRising, now);
      break;
  }
  round_ = now;
  queued_ = false;
  sent_ = passed_ = failed_ = 0;
}

void Pace::Fall(double failed, absl::Time now) {
  if (state_ != State::kJudging) {
    rate_before_ = rate_;
    failed_before_ = 0;  // not known: this round was cut short
  } else {
    failed_before_ = std::max(failed_before_, failed);
  }
  // This is the rate of requests that got through, counted over the time in which they went out. In a round cut short
  // by the first failures, requests without an answer yet count as passed: the next round knows better.
  const double seconds = absl::ToDoubleSeconds(std::clamp(now - round_, absl::Milliseconds(1), kRound));
  const double passed = std::min((sent_ - failed_) / seconds, rate_);
  rate_ = std::max(kLeastRate, passed * (failed > kManyFailed ? 0.9 : 0.97));
  next_ = promised_until_ = now + kShortWait;  // no burst now
  Enter(State::kJudging, now);
}

void Pace::Judge(double failed, absl::Time now) {
  // Above a limit, a lower pace fails less; what fails as often as before has another cause. A pace that has not fallen
  // far proves nothing: stores allow bursts, so the first fall may have been too small.
  const bool as_before = failed_before_ > 0 && failed > 0.6 * failed_before_ && failed > kManyFailed / 2;
  if (failed <= kFewFailed) {
    Enter(State::kProbing, now);
  } else if (as_before && rate_ < 0.7 * rate_before_) {
    rate_ = std::max(rate_before_, promised_rate_);
    Enter(State::kIndifferent, now);
  } else {
    Fall(failed, now);
  }
}

void Pace::Rise(double factor) {
  rate_ = std::min(kFreeRate, rate_ * factor);
}

void Pace::Enter(State state, absl::Time now) {
  state_ = state;
  entered_ = now;
}

// The prefix is "r" or "w", the bucket, "/" and the folder.
bool Pacer::Entry::Is(Kind kind, std::string_view bucket, std::string_view folder) const {
  std::string_view rest = prefix;
  if (rest.size() != bucket.size() + folder.size() + 2 || rest.front() != (kind == Kind::kRead ? 'r' : 'w'))
    return false;
  rest.remove_prefix(1);
  return rest.starts_with(bucket) && rest[bucket.size()] == '/' && rest.ends_with(folder);
}

Pacer::Turn Pacer::TakeTurn(Kind kind, std::string_view bucket, std::string_view key, absl::Time now) {
  std::lock_guard lock(mutex_);
  Pace& pace = At(kind, bucket, key, now);
  return {pace.TakeTurn(now), pace.throttled()};
}

bool Pacer::Unhurried(Kind kind, std::string_view bucket, std::string_view key, absl::Time now) {
  std::lock_guard lock(mutex_);
  return !At(kind, bucket, key, now).throttled();
}

void Pacer::OnAnswer(Kind kind, std::string_view bucket, std::string_view key, bool throttled, absl::Time sent,
                     absl::Time now) {
  std::lock_guard lock(mutex_);
  At(kind, bucket, key, now).OnAnswer(throttled, sent, now);
}

Pace& Pacer::At(Kind kind, std::string_view bucket, std::string_view key, absl::Time now) {
  // Most often it is that of the request before.
  if (!paces_.empty() && paces_.front().Is(kind, bucket, key.substr(0, key.rfind('/') + 1))) return paces_.front().pace;
  std::string prefix(kind == Kind::kRead ? "r" : "w");
  prefix.append(bucket).append("/");
  const size_t family = prefix.size();
  prefix.append(key.substr(0, key.rfind('/') + 1));
  if (const auto found = by_prefix_.find(prefix); found != by_prefix_.end()) {
    paces_.splice(paces_.begin(), paces_, found->second);
    return paces_.front().pace;
  }
  const auto last = std::find_if(paces_.begin(), paces_.end(), [&](const Entry& entry) {
    return entry.family == std::string_view(prefix).substr(0, family);
  });
  const double first_rate = last != paces_.end() && !last->pace.throttled() ? last->pace.rate() : 0;
  if (paces_.size() == kMaxPaces) {
    by_prefix_.erase(paces_.back().prefix);
    paces_.pop_back();
  }
  const double promised = kind == Kind::kRead ? kPromisedReads : kPromisedWrites;
  paces_.push_front({std::move(prefix), {}, Pace(promised, now, first_rate)});
  paces_.front().family = std::string_view(paces_.front().prefix).substr(0, family);
  by_prefix_.emplace(paces_.front().prefix, paces_.begin());
  return paces_.front().pace;
}

}  // namespace millrace
