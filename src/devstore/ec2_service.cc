#include "devstore/ec2_service.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "base/crypto.h"
#include "devstore/reply_faults.h"
#include "devstore/s3_error.h"
#include "s3/xml.h"

namespace millrace {

namespace {

constexpr size_t kMaxCallBytes = 1 << 20;

// EC2 has one code for most of what is wrong with a signature.
absl::Status AsEc2Refusal(const absl::Status& error) {
  if (IsS3Error(error, s3code::kRequestTimeTooSkewed)) return Ec2Fault("RequestExpired", ToStd(error.message()));
  return Ec2Fault("AuthFailure",
                  fmt::format("AWS was not able to validate the provided access credentials ({}: {})",
                              DescribeS3Error(error).name, ToStd(error.message())),
                  401);
}

HttpReply ErrorAnswer(const absl::Status& error) {
  const S3ErrorFacts facts = DescribeS3Error(error);
  HttpReply reply;
  reply.status = facts.http_status;
  reply.headers.Add("Content-Type", "text/xml;charset=UTF-8");
  reply.body.push_back(SendText{
      fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{}</Code><Message>{}"
                  "</Message></Error></Errors><RequestID>00000000-0000-0000-0000-000000000000</RequestID></Response>",
                  XmlEscape(facts.name), XmlEscape(facts.message))});
  return reply;
}

}  // namespace

/// Gathers the body of a call.
class Ec2Exchange final : public HttpExchange {
 public:
  Ec2Exchange(Ec2Service& service, HttpRequestHead head, HttpResponder responder)
      : service_(service), head_(std::move(head)), responder_(std::move(responder)) {}

  void OnBody(ByteSpan bytes) override {
    if (body_.size() + bytes.size() > kMaxCallBytes) {
      too_large_ = true;
      return;
    }
    body_.append(AsText(bytes));
  }

  void OnBodyEnd() override {
    if (ImdsFake::Takes(head_.target)) {
      HttpReply reply = service_.imds_.Answer(head_, absl::Now() + service_.clock_offset_);
      service_.Log(head_, "imds", reply.status);
      return responder_.Send(std::move(reply));
    }
    responder_.Send(too_large_ ? ErrorAnswer(Ec2Fault("RequestEntityTooLarge", "The request is too large.", 413))
                               : service_.AnswerCall(head_, body_));
  }

 private:
  Ec2Service& service_;
  const HttpRequestHead head_;
  HttpResponder responder_;
  std::string body_;
  bool too_large_ = false;
};

Ec2Service::Ec2Service(HttpHandler& s3, const DevstoreOptions& options, std::vector<FaultRule> rules)
    : s3_(s3),
      auth_{{options.access_key, options.secret_key, ""}, options.region, options.anonymous, "ec2"},
      clock_offset_(absl::Seconds(options.clock_offset_s)),
      access_log_(options.access_log),
      faults_(std::move(rules), options.seed),
      ec2_(options.ec2_folder, options.region, options.ec2_looks),
      imds_(ec2_) {}

std::unique_ptr<HttpExchange> Ec2Service::OnRequest(HttpRequestHead head, const HttpRequestFacts& facts,
                                                    HttpResponder responder) {
  const bool mine = ImdsFake::Takes(head.target) || (head.method == "POST" && head.target == "/");
  if (!mine) return s3_.OnRequest(std::move(head), facts, std::move(responder));
  return std::make_unique<Ec2Exchange>(*this, std::move(head), std::move(responder));
}

absl::StatusOr<std::string> Ec2Service::Perform(const HttpRequestHead& head, const std::string& body,
                                                std::string& action, std::optional<FaultAction>& fault) {
  AuthSettings auth = auth_;
  auth.body_hash = HexEncode(Sha256(AsBytes(body)));
  S3Request request;
  request.head = head;
  const absl::StatusOr<AuthResult> signature = Authenticate(request, auth, absl::Now() + clock_offset_);
  if (!signature.ok()) return AsEc2Refusal(signature.status());
  ASSIGN_OR_RETURN(const Ec2Query query, Ec2Query::Parse(body));
  action = query.action();
  const std::string key = "ec2/" + action;
  fault = faults_.Draw({head.method, key, "", 0}, std::chrono::steady_clock::now());
  if (fault && fault->kind == FaultKind::kError)
    return Ec2Fault(fault->code, "Injected by --fault.", static_cast<int>(fault->value));
  if (fault && fault->kind == FaultKind::kStatus)
    return Ec2Fault("InternalError", "Injected by --fault.", static_cast<int>(fault->value));
  return ec2_.Do(query);
}

HttpReply Ec2Service::AnswerCall(const HttpRequestHead& head, const std::string& body) {
  std::string action = "-";
  std::optional<FaultAction> fault;
  const absl::StatusOr<std::string> document = Perform(head, body, action, fault);
  HttpReply reply;
  if (document.ok()) {
    reply.headers.Add("Content-Type", "text/xml;charset=UTF-8");
    reply.body.push_back(SendText{*document});
  } else {
    reply = ErrorAnswer(document.status());
  }
  if (fault) ApplyFault(*fault, &reply);
  Log(head, action, reply.send_head ? reply.status : 0);
  return reply;
}

void Ec2Service::Log(const HttpRequestHead& head, std::string_view what, int status) {
  if (!access_log_) return;
  access_log_(fmt::format("{} {} {} {} {}", absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone()),
                          head.method, std::string_view(head.target).substr(0, head.target.find('?')), what, status));
}

}  // namespace millrace
