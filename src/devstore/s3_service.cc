#include "devstore/s3_service.h"

#include <fmt/format.h>

#include <chrono>

#include "absl/time/clock.h"
#include "base/rng.h"
#include "devstore/directory_session.h"
#include "devstore/reply_faults.h"
#include "devstore/s3_error.h"
#include "net/reply_head.h"
#include "s3/bucket_name.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxBodyBytes = uint64_t{5} << 30;  // of one PUT or part
constexpr uint64_t kMaxTextBytes = uint64_t{4} << 20;  // of a request in XML

using SteadyClock = std::chrono::steady_clock;

bool IsS3Method(std::string_view method) {
  return method == "GET" || method == "HEAD" || method == "PUT" || method == "POST" || method == "DELETE";
}

/// Returns what distinguishes requests for parts of the same thing, besides method and key.
std::string PartOf(const S3Request& request) {
  std::string part(request.Header("range").value_or(""));
  for (const std::string_view name : {"partNumber", "continuation-token", "start-after", "marker"}) {
    if (const auto value = request.Parameter(name)) part.append("&").append(*value);
  }
  return part;
}

RangeFault RangeFaultOf(const std::optional<FaultAction>& fault) {
  if (!fault) return RangeFault::kNone;
  switch (fault->kind) {
    case FaultKind::kWrongRange:
      return RangeFault::kAnother;
    case FaultKind::kShortRange:
      return RangeFault::kFirstHalf;
    case FaultKind::kWholeBody:
      return RangeFault::kWholeObject;
    default:
      return RangeFault::kNone;
  }
}

/// AWS reports a bucket's region by these errors.
bool LeadsElsewhere(const FaultAction& error) {
  return error.value < 400 || error.code == "IllegalLocationConstraintException";
}

}  // namespace

/// Holds one request from its head to its answer.
struct S3Call {
  S3Call(std::string id, HttpResponder to) : request_id(std::move(id)), responder(std::move(to)) {}

  const std::string request_id;
  HttpResponder responder;
  S3Request request;                     // of a request that could not be parsed, only the head
  const Operation* operation = nullptr;  // unless the request was refused before it was known
  AuthResult auth;
  std::string secret_key;  // that signs it
  std::optional<FaultAction> fault;
  SteadyClock::time_point arrived = SteadyClock::now();
  std::chrono::nanoseconds first_byte_delay{};
};

/// Takes the body of a request, checks it and keeps it as a document, or writes it as content while it comes.
class DevstoreExchange final : public HttpExchange {
 public:
  /// `call` is null when it is answered already; `body` when it is of no interest; `blob` unless it becomes content.
  DevstoreExchange(S3Service& service, std::shared_ptr<S3Call> call, std::unique_ptr<RequestBody> body = nullptr,
                   std::unique_ptr<BlobWriter> blob = nullptr)
      : service_(service), call_(std::move(call)), body_(std::move(body)), blob_(std::move(blob)) {}

  void OnBody(ByteSpan bytes) override {
    if (call_ == nullptr || body_ == nullptr) return;
    Check(body_->Update(bytes, [this](ByteSpan decoded) {
      if (blob_ != nullptr) return blob_->Append(decoded);
      call_->request.document.append(AsText(decoded));
      return absl::OkStatus();
    }));
  }

  void OnBodyEnd() override {
    if (call_ == nullptr) return;
    call_->arrived = SteadyClock::now();
    if (body_ != nullptr) Check(body_->Finish());
    if (call_ == nullptr) return;
    const std::shared_ptr<S3Call> call = std::move(call_);
    if (blob_ == nullptr) return service_.Perform(call);
    Reply reply = Store(*call);
    blob_ = nullptr;
    service_.Finish(*call, std::move(reply));
  }

 private:
  void Check(const absl::Status& status) {
    if (status.ok()) return;
    blob_ = nullptr;  // nothing is left of it when the client hears of the error, and sends it again
    service_.Finish(*std::exchange(call_, nullptr), status);
  }
  Reply Store(S3Call& call) {
    ASSIGN_OR_RETURN(std::shared_ptr<Content> content, blob_->Finish());
    return call.operation->store(service_.context_, call.request, *body_, std::move(content));
  }

  S3Service& service_;
  std::shared_ptr<S3Call> call_;
  const std::unique_ptr<RequestBody> body_;
  std::unique_ptr<BlobWriter> blob_;
};

S3Service::S3Service(Storage& storage, ThreadPool& workers, const DevstoreOptions& options,
                     std::vector<FaultRule> rules)
    : workers_(workers),
      auth_{{options.access_key, options.secret_key, ""}, options.region, options.anonymous},
      latency_(options.latency),
      bandwidth_(options.bandwidth),
      seed_(options.seed),
      clock_offset_(absl::Seconds(options.clock_offset_s)),
      access_log_(options.access_log),
      context_{storage, etags_, options.region, options.opaque_etags ? ETagKind::kOpaque : ETagKind::kMd5,
               options.secret_key},
      faults_(std::move(rules), options.seed),
      rates_(options.rate_per_prefix),
      next_id_(static_cast<uint64_t>(absl::GetCurrentTimeNanos())) {}

std::unique_ptr<HttpExchange> S3Service::OnRequest(HttpRequestHead head, const HttpRequestFacts& facts,
                                                   HttpResponder responder) {
  auto call = std::make_shared<S3Call>(fmt::format("{:016X}", Mix64(next_id_++)), std::move(responder));
  const auto refuse = [&](const absl::Status& error) {
    Finish(*call, error);
    return std::make_unique<DevstoreExchange>(*this, nullptr);
  };
  if (const absl::Status admitted = Admit(*call, std::move(head)); !admitted.ok()) return refuse(admitted);
  const Operation& operation = *call->operation;
  if (!operation.takes_document && operation.store == nullptr) {
    return std::make_unique<DevstoreExchange>(*this, std::move(call));
  }
  const ETagKind etags = IsDirectoryBucket(call->request.bucket) ? ETagKind::kOpaque : context_.etag_kind;
  auto body = RequestBody::Create(call->request, facts, call->auth, call->secret_key, etags,
                                  operation.takes_document ? kMaxTextBytes : kMaxBodyBytes);
  if (!body.ok()) return refuse(body.status());
  if (operation.takes_document) return std::make_unique<DevstoreExchange>(*this, std::move(call), *std::move(body));
  if (const absl::Status status = operation.check(context_, call->request); !status.ok()) return refuse(status);
  auto blob = context_.storage.NewBlob((*body)->announced_size());
  if (!blob.ok()) return refuse(blob.status());
  return std::make_unique<DevstoreExchange>(*this, std::move(call), *std::move(body), *std::move(blob));
}

/// Does everything that comes before the operation itself.
absl::Status S3Service::Admit(S3Call& call, HttpRequestHead head) {
  call.request.head = head;
  ASSIGN_OR_RETURN(call.request, ParseS3Request(std::move(head)));
  AuthSettings auth = auth_;
  const bool is_directory = IsDirectoryBucket(call.request.bucket);
  if (is_directory) {
    ASSIGN_OR_RETURN(auth, DirectoryAuth(call.request, auth_, absl::Now()));
  }
  ASSIGN_OR_RETURN(call.auth, Authenticate(call.request, auth, absl::Now() + clock_offset_));
  call.secret_key = auth.credentials.secret_key;
  if (is_directory) RETURN_IF_ERROR(CheckDirectoryRequest(call.request));
  ASSIGN_OR_RETURN(call.operation, FindOperation(call.request));
  return InjectBefore(call);
}

absl::Status S3Service::InjectBefore(S3Call& call) {
  const std::string subject = call.request.Subject();
  if (!rates_.Take(subject, call.arrived)) return S3Error(s3code::kSlowDown, "Please reduce your request rate.");
  if (faults_.empty() && !latency_.enabled()) return absl::OkStatus();
  const std::string part = PartOf(call.request);
  RequestIdentity identity{call.request.head.method, subject, part, 0};
  identity.attempt = attempts_.Next(identity);
  if (latency_.enabled()) call.first_byte_delay = FirstByteDelay(latency_, seed_, identity);
  call.fault = faults_.Draw(identity, call.arrived);
  call.request.range_fault = RangeFaultOf(call.fault);
  call.request.skips_key = call.fault && call.fault->kind == FaultKind::kSkipKey;
  if (!call.fault) return absl::OkStatus();
  switch (call.fault->kind) {
    case FaultKind::kStatus:
      return S3Error(CodeOfHttpStatus(static_cast<int>(call.fault->value)), "Injected by --fault.");
    case FaultKind::kError:
      return S3Error(s3code::kInternalError, "Injected by --fault.");  // ErrorReply has its code
    case FaultKind::kRetryAfter:
    case FaultKind::kLimit:
      return S3Error(s3code::kSlowDown, "Please reduce your request rate. (Injected by --fault.)");
    case FaultKind::kErrorIn200:
      return S3Error(s3code::kInternalError,
                     "We encountered an internal error. Please try again. (Injected by --fault.)");
    case FaultKind::kNewETag:
      etags_.Change(subject);
      break;
    default:
      break;
  }
  return absl::OkStatus();
}

/// Does an operation whose request is complete, here or on a worker.
void S3Service::Perform(const std::shared_ptr<S3Call>& call) {
  const auto run = [this, call] { Finish(*call, call->operation->run(context_, call->request)); };
  if (call->operation->is_quick) return run();
  workers_.Submit(run);
}

HttpReply S3Service::ErrorReply(const S3Call& call, const absl::Status& error) const {
  S3ErrorFacts facts = DescribeS3Error(error);
  HttpReply reply;
  reply.status = facts.http_status;
  reply.headers.Add("Content-Type", "application/xml");
  for (const auto& [name, value] : facts.details) {
    if (name == "ActualObjectSize") reply.headers.Add("Content-Range", "bytes */" + value);
    if (name == "Region") reply.headers.Add("x-amz-bucket-region", value);
  }
  if (call.fault && call.fault->kind == FaultKind::kStatus) reply.status = static_cast<int>(call.fault->value);
  if (call.fault && call.fault->kind == FaultKind::kError) {
    facts.name = call.fault->code;
    reply.status = static_cast<int>(call.fault->value);
    if (LeadsElsewhere(*call.fault)) reply.headers.Set("x-amz-bucket-region", context_.region);
  }
  if (call.fault && call.fault->kind == FaultKind::kErrorIn200) reply.status = 200;
  if (call.fault && call.fault->kind == FaultKind::kRetryAfter) {
    reply.headers.Add("Retry-After", std::to_string(call.fault->value));
  }
  const std::string resource = call.operation != nullptr ? call.request.Resource() : std::string(call.request.path());
  reply.body.push_back(SendText{S3ErrorXml(facts, resource, call.request_id)});
  return reply;
}

/// Sends the answer, as late and as damaged as the plan has it.
void S3Service::Finish(S3Call& call, Reply result) {
  HttpReply reply = result.ok() ? *std::move(result) : ErrorReply(call, result.status());
  reply.headers.Add("x-amz-request-id", call.request_id);
  reply.headers.Add("Server", "millrace-devstore");
  if (clock_offset_ != absl::ZeroDuration()) {
    reply.headers.Add("Date", HttpDate(absl::ToUnixSeconds(absl::Now() + clock_offset_)));
  }
  reply.not_before = LeavesAt(call.arrived, call.first_byte_delay);
  if (bandwidth_ > 0) LimitRate(bandwidth_, &reply);
  if (call.fault) ApplyFault(*call.fault, &reply);
  Account(call, reply);
  HttpResponder responder = std::move(call.responder);
  responder.Send(std::move(reply));
}

void S3Service::Account(const S3Call& call, const HttpReply& reply) {
  const std::string& asked = call.request.head.method;
  const std::string method = IsS3Method(asked) ? asked : "OTHER";  // a client must not grow the table
  const int status = reply.send_head ? reply.status : 0;
  std::string line;
  if (access_log_) {
    // The line never has the query: that of a presigned URL is a credential.
    line = fmt::format("{} {} {} {} {} {}{}", absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone()),
                       method, call.request.path(), call.operation != nullptr ? call.operation->name : "-", status,
                       BodySize(reply.body), call.fault ? " fault" : "");
  }
  std::lock_guard lock(mutex_);
  ++counters_[{method, status}];
  if (access_log_) access_log_(line);
}

std::map<std::pair<std::string, int>, uint64_t> S3Service::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace millrace
