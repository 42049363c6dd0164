#include "s3/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/backoff.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "net/http_date.h"
#include "s3/bucket_name.h"
#include "s3/denial.h"

namespace millrace {

namespace {

/// Returns text of a server for a message: short, on one line.
std::string Quotable(std::string_view text) {
  std::string out(text.substr(0, 300));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return out;
}

bool HasControlCharacter(std::string_view value) {
  return std::any_of(value.begin(), value.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

std::string ClockTime(absl::Time time) {
  return absl::FormatTime("%H:%M:%S", time, absl::LocalTimeZone());
}

constexpr std::string_view kNoSuchBucket = "NoSuchBucket";
constexpr absl::Duration kMinClockFix = absl::Minutes(1);

// Over plain HTTP, anybody on the network path may set the time. A signature for a time far ahead could be used again
// then.
constexpr absl::Duration kMaxPlainClockFix = absl::Hours(24);
constexpr int kAttemptFactorWhileOthersSucceed = 5;
constexpr absl::Duration kSilence = absl::Seconds(5);  // an operation that takes longer to succeed is logged

}  // namespace

S3Exchange::S3Exchange(S3Context& context, std::string_view verb, std::string bucket, std::string key)
    : context_(context),
      verb_(verb),
      bucket_(std::move(bucket)),
      key_(std::move(key)),
      pace_kind_(verb == "GET" || verb == "HEAD" || verb == "LIST" ? Pacer::Kind::kRead : Pacer::Kind::kWrite),
      jitter_key_(context.NextJitterKey()),
      is_directory_(IsDirectoryBucket(bucket_)) {}

std::string S3Exchange::Subject() const {
  if (!NeedsBucket()) return fmt::format("the buckets of {}", context_.endpoint_name());
  // The user may never have named the key: pack looks for its own marks first.
  if (error_code_ == kNoSuchBucket) return fmt::format("s3://{}", bucket_);
  return fmt::format("s3://{}/{}", bucket_, key_);
}

std::string_view S3Exchange::Header(std::string_view name) const {
  return head_ ? head_->headers.Find(name).value_or("") : std::string_view();
}

S3Step S3Exchange::Begin() {
  absl::Status problem = context_.problem;
  if (problem.ok() && NeedsBucket()) problem = context_.CheckBucket(bucket_);
  // A request about a key must never turn into one about its bucket.
  if (problem.ok() && NeedsKey() && key_.empty())
    problem = absl::InvalidArgumentError("the key is empty; append '/' and the object's key");
  if (problem.ok()) problem = CheckArguments();
  if (problem.ok()) {
    first_draft_ = MakeDraft();
    for (const auto& [name, value] : first_draft_->headers) {
      if (HasControlCharacter(value))
        problem = absl::InvalidArgumentError(fmt::format("{} must not contain control characters", name));
    }
  }
  if (problem.ok()) return Again();
  status_ = std::move(problem);
  return {};
}

absl::Status S3Exchange::CheckPart(std::string_view upload_id, int number) {
  if (number >= 1 && number <= kMaxPartNumber && !upload_id.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("part {} of upload '{}': parts of an upload are numbered from 1 to {}",
                                                number, upload_id, kMaxPartNumber));
}

void S3Exchange::Finish() {
  absl::Status status = std::exchange(status_, absl::OkStatus());
  try {
    if (!status.ok()) status = Annotate(status, Subject());
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the caller gets it without the name
  }
  Deliver(std::move(status));
}

bool S3Exchange::TakeCredentials(absl::Time now) {
  if (context_.config.anonymous) return true;
  credentials_ = credentials_provider().Get(now);
  return credentials_ != nullptr;
}

CredentialsProvider& S3Exchange::credentials_provider() {
  if (!is_directory_ || !UsesSession()) return context_.credentials;
  if (session_ == nullptr) session_ = &context_.Session(bucket_);
  return *session_;
}

Pacer::Turn S3Exchange::TakeTurn(absl::Time now) {
  const absl::Duration until_back = context_.outage.TakeTurn(now);
  if (until_back > absl::ZeroDuration()) return {.wait = until_back, .away = true};
  return context_.pacer.TakeTurn(pace_kind_, bucket_, key_, now);
}

bool S3Exchange::MayHedge(absl::Time now) {
  return context_.pacer.Unhurried(pace_kind_, bucket_, key_, now);
}

HttpRequest S3Exchange::Request(absl::Time now, bool hedge) {
  Draft draft = first_draft_ ? *std::move(first_draft_) : MakeDraft();
  first_draft_.reset();
  draft.counter->fetch_add(1, std::memory_order_relaxed);
  const RequestCounters& counters = context_.counters;
  if (hedge) {
    context_.counters.hedges.fetch_add(1, std::memory_order_relaxed);
  } else {
    if (attempts_ > 0) context_.counters.retries.fetch_add(1, std::memory_order_relaxed);
    ++attempts_;
    sent_ = now;
  }
  head_.reset();
  refusal_.clear();
  refusal_remedy_.clear();
  final_refusal_.reset();

  region_ = context_.Region(bucket_);
  S3Address address = context_.Address(bucket_, NeedsKey() ? std::string_view(key_) : std::string_view(), region_);
  HttpRequest request;
  request.endpoint = std::move(address.server);
  request.head.method = draft.method;
  request.head.target = std::move(address.path);
  char separator = '?';
  for (const auto& [name, value] : draft.query) {
    request.head.target.append(1, std::exchange(separator, '&')).append(UriEncode(name, false));
    request.head.target.append("=").append(UriEncode(value, false));
  }
  request.head.headers = std::move(draft.headers);
  request.head.headers.Reserve(kUsualFields, kUsualFieldBytes);
  request.head.headers.Add("Host", std::move(address.host));
  if (context_.config.requester_pays) request.head.headers.Add("x-amz-request-payer", "requester");
  request.body = draft.body;
  request.moves_objects = draft.counter == &counters.get || draft.counter == &counters.put;
  request.fresh_connection = std::exchange(fresh_, false);
  request.extra_timeout = absl::ToChronoMilliseconds(draft.extra_timeout);
  if (!context_.config.anonymous) {
    Sign(request.head, draft.payload_hash, now + context_.clock_offset());
  } else if (!draft.body.empty()) {
    request.head.headers.Add("Content-MD5", Base64Encode(Md5(draft.body)));
  }
  request.head.headers.Add("User-Agent", "millrace");
  return request;
}

void S3Exchange::Sign(HttpRequestHead& request, std::string_view payload_hash, absl::Time now) const {
  if (!is_directory_) return SignRequest(request, payload_hash, *credentials_, {.region = region_}, now);
  const SigV4Scope scope = {.region = region_, .service = "s3express"};
  if (!UsesSession()) return SignRequest(request, payload_hash, *credentials_, scope, now);
  // The token of a session has a header of its own.
  Credentials keys = *credentials_;
  request.headers.Set("x-amz-s3session-token", std::exchange(keys.session_token, {}));
  SignRequest(request, payload_hash, keys, scope, now);
}

HttpBodySink S3Exchange::OnHead(HttpResponseHead head) {
  head_ = std::move(head);
  context_.SetReached();
  if (head_->status >= 200 && head_->status < 300) return OnSuccessHead(*head_);
  return HttpBodySink::Text(kMaxErrorBytes);
}

HttpBodySink S3Exchange::Refuse(std::string why, std::string_view remedy) {
  refusal_ = std::move(why);
  refusal_remedy_ = remedy;
  return HttpBodySink::Refuse();
}

HttpBodySink S3Exchange::RefuseForGood(absl::StatusCode code, std::string why, std::string_view remedy) {
  final_refusal_ = code;
  return Refuse(remedy.empty() ? std::move(why) : fmt::format("{}; {}", why, remedy), remedy);
}

S3Step S3Exchange::OnResult(HttpResult&& result, absl::Time now) {
  const S3Step step = Judge(std::move(result), now);
  if (step.kind == S3Step::Kind::kWait && !step.away) {
    if (LogEnabled(LogLevel::kDebug)) {
      Log(LogLevel::kDebug, "s3",
          fmt::format("{}: {} is tried again in {:.3f} s: {}", WithEscapedControls(Subject()), verb_,
                      absl::ToDoubleSeconds(step.wait), last_failure_));
    }
    WarnOfDelay(step.wait, now);
  }
  return step;
}

void S3Exchange::WarnOfDelay(absl::Duration wait, absl::Time now) {
  const absl::Duration delay = now + wait - failing_since_.value_or(now);
  if (warned_ || delay < kSilence || !context_.TakeWarning(now)) return;
  warned_ = true;
  Log(LogLevel::kWarning, "s3",
      fmt::format("{}: {} has failed {} time{} and is tried again in {:.1f} s: {}", Subject(), verb_, failures_,
                  failures_ == 1 ? "" : "s", absl::ToDoubleSeconds(wait), last_failure_));
}

S3Step S3Exchange::Judge(HttpResult&& result, absl::Time now) {
  error_code_.clear();
  speaks_https_ = as_if_away_ = not_of_s3_ = false;
  // An error's status says enough, even when its body was cut off.
  const bool whole = result.error == HttpErrorKind::kNone;
  if (!whole && (!head_ || head_->status < 300 || result.error == HttpErrorKind::kCancelled))
    return OnTransportError(result, now);
  const int status = head_->status;
  context_.pacer.OnAnswer(pace_kind_, bucket_, key_, status == 503 || status == 429, sent_, now);
  std::optional<S3ErrorBody> error;
  if (!result.text.empty()) error = ParseErrorXml(result.text);
  // Long operations begin with 200 and may end with an error all the same.
  if (status >= 200 && status < 300 && !error) return OnSuccess(std::move(result), now);
  Failure failure{status, error.value_or(S3ErrorBody{}), {}};
  failure.verdict = ClassifyS3Error(status, failure.body.code);
  error_code_ = failure.body.code;
  // The answer is not of S3, but of a server in front of it, in words of its own.
  speaks_https_ =
      status == 400 && error_code_.empty() && context_.plain() && result.text.find("HTTPS") != result.text.npos;
  not_of_s3_ = status >= 400 && status < 500 && whole && !error && !result.text.empty() && !speaks_https_;
  return OnErrorAnswer(std::move(failure), now);
}

S3Step S3Exchange::OnErrorAnswer(Failure failure, absl::Time now) {
  if (std::optional<S3Step> step = OnFailure(failure, now)) return *step;
  if (failure.http_status >= 500 || failure.http_status == 200) ambiguous_ = true;
  // A proxy in front of the store answers so, too.
  as_if_away_ = failure.http_status >= 502 && failure.http_status <= 504;
  // AWS answers a HEAD, which has no body, for a wrong region in this way.
  if (failure.http_status == 400 && failure.body.code.empty() && !Header("x-amz-bucket-region").empty()) {
    failure.verdict.action = S3Action::kRedirect;
  }
  switch (failure.verdict.action) {
    case S3Action::kFail:
      break;
    case S3Action::kRetry:
    case S3Action::kThrottle: {
      S3Step step = Retry(failure.verdict.code, Describe(failure), now);
      if (step.kind == S3Step::Kind::kWait && !step.away) {
        const std::optional<absl::Duration> asked = ParseRetryAfter(Header("retry-after"), now);
        if (asked) step.wait = std::max(step.wait, *asked);
      }
      return step;
    }
    case S3Action::kRedirect:
      if (std::optional<S3Step> step = OnRedirect(failure)) return *step;
      break;
    case S3Action::kRefresh:
      if (std::optional<S3Step> step = OnRejectedCredentials(now)) return *step;
      break;
    case S3Action::kFixClock:
      if (std::optional<S3Step> step = OnWrongClock(now)) return *step;
      break;
  }
  return FailWith(failure);
}

std::optional<S3Step> S3Exchange::OnRedirect(const Failure& failure) {
  const std::string_view header = Header("x-amz-bucket-region");
  const std::string_view region = header.empty() ? std::string_view(failure.body.region) : header;
  context_.LearnRegion(bucket_, region);
  // Another exchange may have learned it since this request was sent.
  if (++redirects_ > kMaxRedirects || context_.Region(bucket_) == region_) return std::nullopt;
  return Again();
}

std::optional<S3Step> S3Exchange::OnWrongClock(absl::Time now) {
  const std::optional<absl::Time> theirs = ParseHttpDate(Header("date"));
  if (!theirs || clock_fixed_) return std::nullopt;
  clock_fixed_ = true;
  if (context_.plain() && absl::AbsDuration(*theirs - now) > kMaxPlainClockFix) return std::nullopt;
  // Another exchange may have learnt it meanwhile; then this request merely came too early.
  if (absl::AbsDuration(*theirs - now - context_.clock_offset()) >= kMinClockFix)
    context_.LearnClockOffset(*theirs - now);
  return Again();
}

std::optional<S3Step> S3Exchange::OnRejectedCredentials(absl::Time now) {
  if (context_.config.anonymous || std::exchange(refreshed_, true)) return std::nullopt;
  if (!credentials_provider().Reject(credentials_, now)) return std::nullopt;
  return Again();
}

S3Step S3Exchange::OnTransportError(const HttpResult& result, absl::Time now) {
  const HttpErrorKind kind = result.error;
  const S3Verdict verdict = ClassifyTransportError(kind);
  if (kind == HttpErrorKind::kCancelled) {
    status_ = absl::CancelledError(fmt::format("{} was cancelled", verb_));
    return {};
  }
  // Such requests were sent and may have been carried out.
  const bool sent = kind != HttpErrorKind::kConnect && kind != HttpErrorKind::kTls && kind != HttpErrorKind::kProxy;
  if (sent) ambiguous_ = true;
  if (kind == HttpErrorKind::kStale) {
    // This is not a fault of the store: it closes connections that were idle. A fresh connection cannot be stale, so
    // this ends.
    fresh_ = true;
    return Again();
  }
  if (kind == HttpErrorKind::kRefused && final_refusal_) {
    const S3Step step = Fail(*final_refusal_, refusal_);
    SetS3Remedy(&status_, refusal_remedy_);
    return step;
  }
  as_if_away_ = !head_ && (kind == HttpErrorKind::kConnect || kind == HttpErrorKind::kTimeout ||
                           kind == HttpErrorKind::kReset || kind == HttpErrorKind::kClosedEarly);
  if (std::optional<S3Step> step = OnCut(result, now)) return *step;
  std::string what = kind == HttpErrorKind::kRefused && !refusal_.empty() ? refusal_ : result.detail;
  if (kind == HttpErrorKind::kTls && context_.plain()) return Fail(verdict.code, what + "; " + UseHttps());
  if (!verdict.remedy.empty()) what.append("; ").append(verdict.remedy);
  if (verdict.action == S3Action::kFail) return Fail(verdict.code, what);
  int attempts = context_.config.max_attempts;
  if (!context_.reached()) {
    if (kind == HttpErrorKind::kConnect) attempts = std::min(attempts, kMaxFirstConnects);
    if (kind == HttpErrorKind::kTimeout && !head_) {
      attempts = std::min(attempts, kMaxFirstTimeouts);
      what.append(
          "; nothing was ever answered there: check the endpoint (AWS_ENDPOINT_URL, --endpoint-url) and the way to it");
    }
    // A server that waits for a TLS handshake does this; to wait longer would not help.
    if (context_.plain() && (kind == HttpErrorKind::kReset || kind == HttpErrorKind::kClosedEarly)) {
      attempts = std::min(attempts, kMaxFirstAnswers);
      what.append("; a server that speaks https ends connections over http like this: if this one does, ")
          .append(UseHttps());
    }
  }
  const S3Step step = Retry(verdict.code, what, now, attempts);
  if (step.kind == S3Step::Kind::kDone && !refusal_remedy_.empty()) SetS3Remedy(&status_, refusal_remedy_);
  return step;
}

S3Step S3Exchange::Succeed() {
  context_.budget.OnSuccess();
  context_.SetAnswered(sent_);
  if (const std::optional<absl::Time> since = context_.outage.OnSuccess()) {
    Log(LogLevel::kWarning, "s3",
        fmt::format("{} is back, and was away since {}", context_.endpoint_name(), ClockTime(*since)));
  }
  status_ = absl::OkStatus();
  return {};
}

S3Step S3Exchange::Fail(absl::StatusCode code, std::string_view what) {
  const std::string tries = failures_ > 1 ? fmt::format(" after {} attempts", attempts_) : std::string();
  status_ = absl::Status(code, fmt::format("{} failed{}: {}", verb_, tries, what));
  SetS3Code(&status_, error_code_);
  return {};
}

std::optional<S3Step> S3Exchange::WaitOutOutage(absl::StatusCode code, std::string_view what, absl::Time now) {
  using Kind = Outage::Verdict::Kind;
  const Outage::Verdict verdict = context_.outage.OnFailure(now);
  switch (verdict.kind) {
    case Kind::kNone:
      return std::nullopt;
    case Kind::kOver:
      return Fail(code, fmt::format("{}; the store is away since {}, for longer than the limit for outages", what,
                                    ClockTime(verdict.since)));
    case Kind::kBegun:
      Log(LogLevel::kWarning, "s3",
          fmt::format("{} is away since {}; requests wait for it until {}: {}: {} failed: {}", context_.endpoint_name(),
                      ClockTime(verdict.since), ClockTime(verdict.until), Subject(), verb_, what));
      [[fallthrough]];
    case Kind::kWait:
      return S3Step{.kind = S3Step::Kind::kWait, .wait = Outage::kPoll, .away = true};
  }
  return std::nullopt;
}

S3Step S3Exchange::Retry(absl::StatusCode code, std::string_view what, absl::Time now, int attempts) {
  if (as_if_away_ && attempts > 1) {
    if (std::optional<S3Step> step = WaitOutOutage(code, what, now)) return *step;
  }
  // While others get through, this one will, too: in a storm that lasts, somebody always draws the bad lots.
  const S3Config& config = context_.config;
  const bool is_usual = attempts > 1 && attempts == config.max_attempts;
  if (is_usual && config.more_attempts_in_storms && context_.AnsweredLately(now))
    attempts *= kAttemptFactorWhileOthersSucceed;
  if (++failures_ >= attempts) return Fail(code, what);
  last_failure_ = what;
  if (!failing_since_) failing_since_ = now;
  const absl::Duration backoff = Backoff(failures_, HashKey(jitter_key_, {static_cast<uint64_t>(attempts_)}));
  absl::Duration wait = backoff + context_.budget.Spend(now);
  // A request that sleeps for longer would miss that the store is back.
  if (as_if_away_ && context_.outage.watches()) wait = std::min(wait, Outage::kQuiet);
  return {S3Step::Kind::kWait, wait};
}

S3Step S3Exchange::RetryGarbled(const absl::Status& why, absl::Time now) {
  return Retry(absl::StatusCode::kUnavailable,
               fmt::format("the answer is not S3's: {}; check AWS_ENDPOINT_URL", ToStd(why.message())), now,
               std::min(kMaxGarbledAnswers, context_.config.max_attempts));
}

S3Step S3Exchange::FailWith(const Failure& failure) {
  const S3Step step = Fail(failure.verdict.code, Describe(failure));
  SetS3Remedy(&status_, RemedyOf(failure));
  return step;
}

std::string S3Exchange::DenialRemedy(const Failure& failure) const {
  return RemedyOfDenial({.verb = verb_,
                         .code = failure.body.code,
                         .message = failure.body.message,
                         .bucket = NeedsBucket() ? std::string_view(bucket_) : std::string_view(),
                         .key = NeedsKey() ? std::string_view(key_) : std::string_view(),
                         .anonymous = context_.config.anonymous,
                         .requester_pays = context_.config.requester_pays,
                         .encrypts = !context_.config.encryption.empty()});
}

// The table says what an answer means to all verbs; a denial depends on the verb.
std::string S3Exchange::RemedyOf(const Failure& failure) const {
  if (not_of_s3_ && failure.http_status != 413) {  // which any server before the store may say of a large body
    return "the answer is not S3's but that of another server, such as a proxy: check HTTPS_PROXY, HTTP_PROXY and "
           "NO_PROXY, AWS_ENDPOINT_URL, and the rules of the network";
  }
  if (const std::string_view remedy = RemedyOfRequest(failure.http_status, failure.body.message); !remedy.empty())
    return std::string(remedy);
  const S3Verdict in_table = ClassifyS3Error(failure.http_status, failure.body.code);
  const bool is_denial = in_table.code == absl::StatusCode::kPermissionDenied ||
                         (failure.http_status == 403 && in_table.code == absl::StatusCode::kInvalidArgument);
  if (!is_denial || failure.verdict.remedy != in_table.remedy) return std::string(failure.verdict.remedy);
  return DenialRemedy(failure);
}

std::string S3Exchange::UseHttps() const {
  const std::string_view url = context_.config.endpoint_url;
  return fmt::format("set AWS_ENDPOINT_URL=https{}", url.substr(std::min(url.size(), url.find(':'))));
}

std::string S3Exchange::Describe(const Failure& failure) const {
  if (failure.body.code == kNoSuchBucket) {  // what the store says of it, and which request it was, says no more
    const std::string& endpoint = context_.config.endpoint_url;
    return fmt::format("{} at {} ({}, HTTP {}); check its name and AWS_ENDPOINT_URL, or create it first",
                       failure.verdict.remedy, endpoint.empty() ? "AWS" : endpoint, kNoSuchBucket, failure.http_status);
  }
  const std::string_view header = Header("x-amz-request-id");
  const std::string_view id = header.empty() ? std::string_view(failure.body.request_id) : header;
  std::string out;
  if (failure.body.code.empty()) {
    out = fmt::format("HTTP {} {}", failure.http_status, Quotable(head_->reason));
    if (!id.empty()) out.append(fmt::format(" (request {})", Quotable(id)));
  } else {
    out = Quotable(failure.body.code);
    if (!failure.body.message.empty()) out.append(": ").append(Quotable(failure.body.message));
    out.append(fmt::format(" (HTTP {}", failure.http_status));
    if (!id.empty()) out.append(", request ").append(Quotable(id));
    out.append(")");
  }
  if (const std::string remedy = RemedyOf(failure); !remedy.empty()) out.append("; ").append(remedy);
  if (speaks_https_) out.append("; the server says that it speaks https: ").append(UseHttps());
  return out;
}

}  // namespace millrace
