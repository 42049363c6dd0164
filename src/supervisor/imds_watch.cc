#include "supervisor/imds_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace millrace {

namespace {

constexpr absl::Duration kPeriod = absl::Seconds(2);
constexpr absl::Duration kMaxPeriod = absl::Minutes(1);
constexpr absl::Duration kTokenTtl = absl::Hours(6);
constexpr absl::Duration kRenewAhead = absl::Minutes(1);
// Less is the granularity of the Date header, and the time that the answer took.
constexpr absl::Duration kMinSkew = absl::Seconds(3);
constexpr int kSayAfterRounds = 3;
constexpr size_t kMaxKnown = 1000;
constexpr size_t kMaxTokenBytes = 1024;

constexpr const char* kTokenPath = "/latest/api/token";
constexpr std::array<const char*, 4> kPaths = {
    "/latest/meta-data/spot/instance-action",
    "/latest/meta-data/events/recommendations/rebalance",
    "/latest/meta-data/events/maintenance/scheduled",
    "/latest/meta-data/autoscaling/target-lifecycle-state",
};

bool IsToken(std::string_view text) {
  return !text.empty() && text.size() <= kMaxTokenBytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::string FailureText(const ImdsAnswer& answer) {
  return answer.status == 0 ? "does not answer" : fmt::format("answers HTTP {}", answer.status);
}

}  // namespace

ImdsWatch::Step ImdsWatch::Next(absl::Time now, Step step) {
  // A token of a few seconds is renewed in each round, not before each call.
  asked_token_ = token_.empty() || (now >= renew_ && path_ == 0) || now >= expires_;
  if (asked_token_) {
    step.call = ImdsRequest{"PUT", kTokenPath, "X-aws-ec2-metadata-token-ttl-seconds",
                            std::to_string(absl::ToInt64Seconds(kTokenTtl))};
  } else if (path_ < kPaths.size()) {
    step.call = ImdsRequest{"GET", kPaths[path_], "X-aws-ec2-metadata-token", token_};
  } else {
    return EndRound(std::move(step));
  }
  return step;
}

ImdsWatch::Step ImdsWatch::OnAnswer(const ImdsAnswer& answer, absl::Time now) {
  if (answer.date) {
    const absl::Duration skew = *answer.date - now;
    skew_ = absl::AbsDuration(skew) >= kMinSkew ? skew : absl::ZeroDuration();
  }
  if (asked_token_) return OnToken(answer, now);
  Step step;
  if (answer.status == 401 && !renewed_) {  // it has expired by the clock of the service
    renewed_ = true;
    token_.clear();
    return Next(now, std::move(step));
  }
  if (answer.status == 0) {  // no use in waiting three more times
    failed_ = FailureText(answer);
    return EndRound(std::move(step));
  }
  Read(answer, now, step);
  ++path_;
  return Next(now, std::move(step));
}

ImdsWatch::Step ImdsWatch::OnToken(const ImdsAnswer& answer, absl::Time now) {
  if (answer.status != 200 || !IsToken(answer.body)) {
    failed_ = answer.status == 200 ? "gives no token" : FailureText(answer);
    // An old token may serve until it ends.
    if (now >= expires_) token_.clear();
    if (token_.empty()) return EndRound({});
    renew_ = now + kPeriod;
    return Next(now, {});
  }
  token_ = answer.body;
  const absl::Duration ttl = std::clamp(answer.token_ttl.value_or(kTokenTtl), absl::Seconds(1), kTokenTtl);
  expires_ = now + ttl;
  renew_ = expires_ - std::min(kRenewAhead, ttl / 2);
  return Next(now, {});
}

void ImdsWatch::Read(const ImdsAnswer& answer, absl::Time now, Step& step) {
  if (answer.status == 404) return;  // as nearly always
  if (answer.status != 200) {
    failed_ = FailureText(answer);
    return;
  }
  absl::Status status;
  const auto take = [&](auto parsed) {
    status = parsed.status();
    if (parsed.ok()) Add(*std::move(parsed), answer.body, step);
  };
  switch (path_) {
    case 0:
      take(ParseInstanceAction(answer.body));
      break;
    case 1:
      take(ParseRebalance(answer.body));
      break;
    case 2:
      take(ParseMaintenance(answer.body, now + skew_));
      break;
    default:
      Add(ParseTargetState(answer.body), answer.body, step);
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
  if (token_.empty()) {
    for (int i = 1; i < failed_rounds_ && step.wait < kMaxPeriod; ++i) step.wait *= 2;
    step.wait = std::min(step.wait, kMaxPeriod);
  }
  return step;
}

}  // namespace millrace
