#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/http_client.h"
#include "s3/context.h"
#include "s3/error.h"
#include "s3/xml.h"

namespace millrace {

/// Says what the driver of an exchange does next.
struct S3Step {
  enum class Kind { kSend, kWait, kDone };
  Kind kind = Kind::kDone;
  absl::Duration wait;  // of kWait; then comes kSend
  bool away = false;    // it waits for a store that is away
};

/// An exchange is one call of S3Client as a state machine without I/O, clock or threads: the retry loop of Millrace.
/// The driver
///   1. calls Begin,
///   2. on kSend calls TakeCredentials, waiting for them while there are none, then takes a turn, waiting and asking
///   again as it says, sends Request(), passes the response's head to OnHead and its end to OnResult, and continues
///   with the step returned,
///   3. on kWait waits, then sends,
///   4. on kDone calls Finish, once.
/// Abandon may end it at any moment between these calls (but not while a request is in flight).
///
/// Subclasses are the verbs. `context` must outlive it.
class S3Exchange {
 public:
  virtual ~S3Exchange() = default;
  S3Exchange(const S3Exchange&) = delete;
  S3Exchange& operator=(const S3Exchange&) = delete;

  S3Step Begin();
  /// The current credentials are those of the requests to come. False: there are none; wait for the context's.
  bool TakeCredentials(absl::Time now);
  /// Returns the source of its credentials: those of the settings, or the session of a directory bucket.
  CredentialsProvider& credentials_provider();
  Pacer::Turn TakeTurn(absl::Time now);
  bool MayHedge(absl::Time now);
  /// `hedge` means a second request beside the one in flight. Only one of the two counts: the other gets no OnHead, no
  /// OnResult.
  HttpRequest Request(absl::Time now, bool hedge = false);
  virtual bool hedged() const { return false; }
  HttpBodySink OnHead(HttpResponseHead head);
  S3Step OnResult(HttpResult&& result, absl::Time now);
  /// Reports to the caller how it ended.
  void Finish();
  void Abandon(absl::Status why) { status_ = std::move(why); }

 protected:
  /// `verb` is for messages: "GET", "LIST".
  S3Exchange(S3Context& context, std::string_view verb, std::string bucket, std::string key);

  /// This is a request before it is addressed and signed.
  struct Draft {
    std::string_view method;
    std::vector<std::pair<std::string, std::string>> query;  // decoded
    HttpHeaders headers;
    ByteSpan body;
    std::string_view payload_hash = kEmptyPayloadHash;
    std::atomic<uint64_t>* counter = nullptr;
    absl::Duration extra_timeout = absl::ZeroDuration();  // the answer may be so much later than usual
  };

  /// Describes an answer that is an error.
  struct Failure {
    int http_status = 0;
    S3ErrorBody body;
    S3Verdict verdict;
  };
  static bool IsNotImplemented(const Failure& failure) {
    return failure.http_status == 501 || failure.body.code == "NotImplemented";
  }

  // The verbs define these.
  virtual bool NeedsBucket() const { return true; }
  virtual bool NeedsKey() const { return true; }
  /// Returns true if requests about a directory bucket are signed by its session.
  virtual bool UsesSession() const { return true; }
  virtual absl::Status CheckArguments() { return absl::OkStatus(); }
  virtual Draft MakeDraft() = 0;
  /// The head of a 2xx answer has come. By default its body is text.
  virtual HttpBodySink OnSuccessHead(const HttpResponseHead&) { return HttpBodySink::Text(kMaxAnswerBytes); }
  /// A whole 2xx answer has come.
  virtual S3Step OnSuccess(HttpResult result, absl::Time now) = 0;
  /// Interprets an error answer that the verb understands better than the table; nullopt leaves it to the table.
  virtual std::optional<S3Step> OnFailure(const Failure&, absl::Time) { return std::nullopt; }
  /// The connection failed; `result` says how many bytes are good.
  virtual std::optional<S3Step> OnCut(const HttpResult&, absl::Time) { return std::nullopt; }
  /// Gives the status, and the result when it is OK, to the caller's callback.
  virtual void Deliver(absl::Status status) = 0;

  // The verbs may answer with these.
  S3Step Succeed();
  S3Step Again() { return {S3Step::Kind::kSend, {}}; }
  S3Step Fail(absl::StatusCode code, std::string_view what);
  /// Tries again after a back-off, or fails when `attempts` attempts have failed.
  S3Step Retry(absl::StatusCode code, std::string_view what, absl::Time now, int attempts);
  S3Step Retry(absl::StatusCode code, std::string_view what, absl::Time now) {
    return Retry(code, what, now, context_.config.max_attempts);
  }
  /// Tries again a few times: the answer was not understood, which is rarely an accident.
  S3Step RetryGarbled(const absl::Status& why, absl::Time now);
  S3Step FailWith(const Failure& failure);
  /// Returns the permission or setting that helps against an answer that denies the request.
  std::string DenialRemedy(const Failure& failure) const;
  /// In OnSuccessHead: does not take the body; OnResult then retries, saying why.
  HttpBodySink Refuse(std::string why, std::string_view remedy = {});
  /// Refuses the body, and OnResult fails: to try again would not help. The message ends with the remedy.
  HttpBodySink RefuseForGood(absl::StatusCode code, std::string why, std::string_view remedy = {});
  void ForgiveFailures() {
    failures_ = 0;
    failing_since_.reset();
  }

  /// Returns InvalidArgument unless parts of uploads may have that number, and the upload has an id.
  static absl::Status CheckPart(std::string_view upload_id, int number);

  /// An attempt whose outcome is unknown may have been carried out by the store.
  bool ambiguous() const { return ambiguous_; }
  const std::optional<HttpResponseHead>& head() const { return head_; }
  S3Context& context() { return context_; }
  const S3Context& context() const { return context_; }
  const std::string& bucket() const { return bucket_; }
  const std::string& key() const { return key_; }
  bool is_directory() const { return is_directory_; }

  static constexpr size_t kMaxAnswerBytes = 16 << 20;  // a page of 1,000 keys of 1,024 bytes, escaped, with room
  static constexpr int kMaxPartNumber = 10'000;
  // A request that is signed has so many, without a token of a session. A draft that reserves them spares allocations.
  static constexpr size_t kUsualFields = 10;
  static constexpr size_t kUsualFieldBytes = 640;

 private:
  static constexpr size_t kMaxErrorBytes = 64 << 10;
  static constexpr int kMaxRedirects = 3;
  static constexpr int kMaxGarbledAnswers = 3;
  // While the endpoint has never been reached, and cannot be connected to; or ends connections over plain HTTP.
  static constexpr int kMaxFirstConnects = 4;
  static constexpr int kMaxFirstAnswers = 5;
  static constexpr int kMaxFirstTimeouts = 3;

  void Sign(HttpRequestHead& request, std::string_view payload_hash, absl::Time now) const;
  S3Step Judge(HttpResult&& result, absl::Time now);
  /// Returns nullopt if the store is not away.
  std::optional<S3Step> WaitOutOutage(absl::StatusCode code, std::string_view what, absl::Time now);
  void WarnOfDelay(absl::Duration wait, absl::Time now);
  std::string Subject() const;
  std::string_view Header(std::string_view name) const;
  S3Step OnErrorAnswer(Failure failure, absl::Time now);
  std::optional<S3Step> OnRedirect(const Failure& failure);
  std::optional<S3Step> OnWrongClock(absl::Time now);
  std::optional<S3Step> OnRejectedCredentials(absl::Time now);
  S3Step OnTransportError(const HttpResult& result, absl::Time now);
  std::string Describe(const Failure& failure) const;
  std::string RemedyOf(const Failure& failure) const;
  std::string UseHttps() const;

  S3Context& context_;
  const std::string_view verb_;
  const std::string bucket_;
  const std::string key_;
  const Pacer::Kind pace_kind_;
  const uint64_t jitter_key_;
  const bool is_directory_;                 // the bucket (s3/bucket_name.h)
  CredentialsProvider* session_ = nullptr;  // of the bucket, once it is asked for

  absl::Status status_;
  std::string error_code_;  // of the last answer, if it was an error
  int attempts_ = 0;        // requests made
  absl::Time sent_;         // the last of them
  int failures_ = 0;        // since the last progress
  std::optional<absl::Time> failing_since_;
  std::string last_failure_;
  bool warned_ = false;
  bool speaks_https_ = false;  // the server says so, to a request over plain HTTP
  bool not_of_s3_ = false;     // the last answer was an error in another server's words
  bool as_if_away_ = false;    // the last request failed as requests do without a server
  std::string region_;         // that the last request was sent to
  int redirects_ = 0;
  bool clock_fixed_ = false;
  CredentialsProvider::Shared credentials_;  // null when anonymous, and before TakeCredentials
  bool refreshed_ = false;                   // credentials, after the store rejected some
  bool fresh_ = false;                       // the next request needs a fresh connection
  bool ambiguous_ = false;
  std::optional<Draft> first_draft_;      // made by Begin for the first request
  std::optional<HttpResponseHead> head_;  // of the current attempt
  std::string refusal_;
  std::optional<absl::StatusCode> final_refusal_;
  std::string refusal_remedy_;
};

}  // namespace millrace
