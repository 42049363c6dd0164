#include "supervisor/imds_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace millrace {

namespace {

constexpr absl::Duration kPeriod = absl::Seconds(2);
constexpr absl::Duration kMaxPeriod = absl::Minutes(1);
constexpr absl::Duration kRenewAhead = absl::Minutes(1);
// Less is the granularity of the Date header, and the time that the answer took.
constexpr absl::Duration kMinSkew = absl::Seconds(3);
constexpr int kSayAfterRounds = 3;
constexpr size_t kMaxKnown = 1000;

constexpr std::array<const char*, 4> kPaths = {
    "/latest/meta-data/spot/instance-action",
    "/latest/meta-data/events/recommendations/rebalance",
    "/latest/meta-data/events/maintenance/scheduled",
    "/latest/meta-data/autoscaling/target-lifecycle-state",
};

// 0 if no whole answer came.
int StatusOf(const TextAnswer& answer) {
  return answer.result.error == HttpErrorKind::kNone ? answer.head.status : 0;
}

std::string FailureText(int status) {
  return status == 0 ? "does not answer" : fmt::format("answers HTTP {}", status);
}

}  // namespace

ImdsWatch::Step ImdsWatch::Next(absl::Time now, Step step) {
  // A token of a few seconds is renewed in each round, not before each call.
  asked_token_ = !session_.has_token() || (now >= renew_ && path_ == 0) || now >= session_.token_expires();
  if (asked_token_) {
    step.call = session_.TokenRequest();
  } else if (path_ < kPaths.size()) {
    step.call = session_.ReadRequest(kPaths[path_]);
  } else {
    return EndRound(std::move(step));
  }
  return step;
}

ImdsWatch::Step ImdsWatch::OnAnswer(const TextAnswer& answer, absl::Time now) {
  if (const std::optional<absl::Time> date = answer.date()) {
    const absl::Duration skew = *date - now;
    skew_ = absl::AbsDuration(skew) >= kMinSkew ? skew : absl::ZeroDuration();
  }
  if (asked_token_) return OnToken(answer, now);
  Step step;
  const int status = StatusOf(answer);
  if (status == 401 && !renewed_) {  // it has expired by the clock of the service
    renewed_ = true;
    session_.DropToken();
    return Next(now, std::move(step));
  }
  if (status == 0) {  // no use in waiting three more times
    failed_ = FailureText(status);
    return EndRound(std::move(step));
  }
  Read(answer, now, step);
  ++path_;
  return Next(now, std::move(step));
}

ImdsWatch::Step ImdsWatch::OnToken(const TextAnswer& answer, absl::Time now) {
  const int status = StatusOf(answer);
  if (status != 200 || !session_.TakeToken(answer.result.text, answer.head.headers, now).ok()) {
    failed_ = status == 200 ? "gives no token" : FailureText(status);
    // An old token may serve until it ends.
    if (now >= session_.token_expires()) session_.DropToken();
    if (!session_.has_token()) return EndRound({});
    renew_ = now + kPeriod;
    return Next(now, {});
  }
  const absl::Time expires = session_.token_expires();
  renew_ = expires - std::min(kRenewAhead, (expires - now) / 2);
  return Next(now, {});
}

void ImdsWatch::Read(const TextAnswer& answer, absl::Time now, Step& step) {
  const int http_status = StatusOf(answer);
  if (http_status == 404) return;  // as nearly always
  if (http_status != 200) {
    failed_ = FailureText(http_status);
    return;
  }
  const std::string& document = answer.result.text;
  absl::Status status;
  const auto take = [&](auto parsed) {
    status = parsed.status();
    if (parsed.ok()) Add(*std::move(parsed), document, step);
  };
  switch (path_) {
    case 0:
      take(ParseInstanceAction(document));
      break;
    case 1:
      take(ParseRebalance(document));
      break;
    case 2:
      take(ParseMaintenance(document, now + skew_));
      break;
    default:
      Add(ParseTargetState(document), document, step);
  }
  if (!status.ok()) failed_ = fmt::format("gives a {} that makes no sense: {}", kPaths[path_], ToStd(status.message()));
}

void ImdsWatch::Add(std::optional<Notice> notice, std::string_view document, Step& step) {
  if (!notice) return;
  if (known_.size() >= kMaxKnown) known_.clear();
  if (!known_.insert(fmt::format("{} {} {}", path_, notice->final, document)).second) return;
  if (notice->at) *notice->at -= skew_;
  step.notices.push_back(*std::move(notice));
}

ImdsWatch::Step ImdsWatch::EndRound(Step step) {
  path_ = 0;
  renewed_ = false;
  step.wait = kPeriod;
  if (failed_.empty()) {
    failed_rounds_ = 0;
    return step;
  }
  ++failed_rounds_;
  if (failed_rounds_ == kSayAfterRounds) {
    step.problem = fmt::format(
        "the instance metadata service {}, so that notices of interruption may be missed; allow IMDSv2, with a hop "
        "limit of 2 for containers, or set AWS_EC2_METADATA_DISABLED=true",
        failed_);
  }
  failed_.clear();
  if (!session_.has_token()) {
    for (int i = 1; i < failed_rounds_ && step.wait < kMaxPeriod; ++i) step.wait *= 2;
    step.wait = std::min(step.wait, kMaxPeriod);
  }
  return step;
}

}  // namespace millrace
