#include "volume/ec2_client.h"

#include <fmt/format.h>

#include <future>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "aws/credential_chain.h"
#include "aws/credential_loader.h"
#include "aws/endpoint.h"
#include "aws/imds.h"
#include "base/crypto.h"
#include "net/text_answer.h"

namespace millrace {

namespace {

constexpr std::chrono::seconds kCallLimit{60};
constexpr std::chrono::seconds kMetadataLimit{5};
constexpr size_t kMaxAnswerText = 16 << 20;

uint64_t Ec2JitterKey() {
  const std::string random = RandomHex(16);
  return Xxh3(AsBytes(random));
}

absl::StatusOr<EndpointUrl> Ec2Endpoint(const AwsSettings& settings, const std::string& region) {
  ASSIGN_OR_RETURN(const std::string custom, settings.ServiceUrl("ec2"));
  return ServiceEndpoint("ec2", region, custom, "AWS_ENDPOINT_URL_EC2");
}

/// Returns the text that the metadata service answers.
absl::StatusOr<std::string> AskMetadata(Runtime& runtime, HttpClient& http, TextRequest request,
                                        std::string_view base_path) {
  const std::string call = fmt::format("{} {}", request.head.method, request.head.target.substr(base_path.size()));
  request.limit = kMetadataLimit;
  TextAnswer answer = AskForText(http, runtime.loops().Next(), std::move(request)).get();
  constexpr std::string_view kRemedy =
      "run this on an EC2 instance whose metadata service is on, with a hop limit of 2 for containers";
  if (const std::string problem = answer.problem(); !problem.empty()) {
    return absl::UnavailableError(
        fmt::format("the instance metadata service does not answer ({}); {}", problem, kRemedy));
  }
  if (answer.head.status != 200 || answer.result.text.empty()) {
    return absl::FailedPreconditionError(
        fmt::format("the instance metadata service answered {} with HTTP {}; {}", call, answer.head.status, kRemedy));
  }
  return std::move(answer.result.text);
}

}  // namespace

absl::StatusOr<Ec2Identity> AskEc2Identity(Runtime& runtime, const AwsEnvironment& environment) {
  ASSIGN_OR_RETURN(const AwsSettings settings, AwsSettings::Load(environment));
  ASSIGN_OR_RETURN(const std::optional<EndpointUrl> url, InstanceMetadataService(settings));
  if (!url) {
    return absl::FailedPreconditionError(
        "AWS_EC2_METADATA_DISABLED is set, so this instance and its zone are not known; unset it");
  }
  HttpClient http(runtime.loops(), {});
  ImdsSession session(*url);
  ASSIGN_OR_RETURN(const std::string token, AskMetadata(runtime, http, session.TokenRequest(), url->base_path));
  if (const absl::Status taken = session.TakeToken(token, {}, absl::Now()); !taken.ok())
    return Annotate(taken, "the instance metadata service");
  const auto read = [&](std::string_view name) {
    const std::string path = fmt::format("/latest/meta-data/{}", name);
    return AskMetadata(runtime, http, session.ReadRequest(path), url->base_path);
  };
  Ec2Identity identity;
  ASSIGN_OR_RETURN(identity.instance, read("instance-id"));
  ASSIGN_OR_RETURN(identity.zone, read("placement/availability-zone"));
  ASSIGN_OR_RETURN(identity.region, read("placement/region"));
  if (!PlausibleRegion(identity.region)) {
    return absl::FailedPreconditionError("the instance metadata service names no region; set AWS_REGION");
  }
  return identity;
}

class Ec2Client::Impl {
 public:
  Impl(Runtime& runtime, std::shared_ptr<const AwsEnvironment> environment, EndpointUrl url, std::string region,
       HttpClientOptions options)
      : loop_(runtime.loops().Next()),
        url_(std::move(url)),
        region_(std::move(region)),
        environment_(std::move(environment)),
        credentials_(
            {}, [this](CredentialsProvider::Fetched done) { loader_.Fetch(std::move(done)); }, Ec2JitterKey()),
        http_(runtime.loops(), std::move(options)),
        loader_(runtime, http_, environment_, Ec2JitterKey()) {}

  absl::StatusOr<std::string> Call(const std::string& action, const Parameters& parameters) {
    const std::string body = Ec2Body(action, parameters);
    for (bool again = false;; again = true) {
      ASSIGN_OR_RETURN(const CredentialsProvider::Shared keys, WaitForKeys());
      HttpRequestHead head{"POST", url_.base_path + "/", {}};
      head.headers.Add("Host", HostHeader(url_.server));
      head.headers.Add("Content-Type", "application/x-www-form-urlencoded; charset=utf-8");
      SignRequest(head, HexEncode(Sha256(AsBytes(body))), *keys, {.region = region_, .service = "ec2"}, absl::Now());
      TextRequest request{.endpoint = url_.server, .head = std::move(head), .body = body};
      request.max_text = kMaxAnswerText;
      request.limit = kCallLimit;
      TextAnswer answer = AskForText(http_, loop_, std::move(request)).get();
      if (const std::string problem = answer.problem(); !problem.empty()) {
        return absl::UnavailableError(
            fmt::format("EC2 ({}) does not answer {}: {}", HostHeader(url_.server), action, problem));
      }
      const std::string& text = answer.result.text;
      if (const std::optional<absl::Time> date = answer.date()) clock_offset_ = *date - absl::Now();
      if (answer.head.status == 200) return text;
      if (!again && IsExpiredSignature(text) && credentials_.Reject(keys, absl::Now())) continue;
      return Ec2Error(action, answer.head.status, text);
    }
  }

  absl::Time Now() const { return absl::Now() + clock_offset_; }

  const std::string& region() const { return region_; }

 private:
  absl::StatusOr<CredentialsProvider::Shared> WaitForKeys() {
    CredentialsProvider::Shared keys = credentials_.Get(absl::Now());
    if (keys != nullptr) return keys;
    std::promise<absl::Status> promise;
    std::future<absl::Status> ready = promise.get_future();
    credentials_.Wait(absl::Now(), [&promise](absl::Status status) { promise.set_value(std::move(status)); });
    RETURN_IF_ERROR(ready.get());
    keys = credentials_.Get(absl::Now());
    if (keys == nullptr) return absl::UnauthenticatedError(ToAbsl(kNoCredentials));
    return keys;
  }

  EventLoop& loop_;
  absl::Duration clock_offset_;  // EC2's clock minus ours
  const EndpointUrl url_;
  const std::string region_;
  const std::shared_ptr<const AwsEnvironment> environment_;
  CredentialsProvider credentials_;
  HttpClient http_;
  CredentialLoader loader_;  // last, so that it dies first: it makes calls
};

absl::StatusOr<std::unique_ptr<Ec2Client>> Ec2Client::Open(Runtime& runtime, AwsEnvironment environment,
                                                           const std::string& region) {
  ASSIGN_OR_RETURN(const AwsSettings settings, AwsSettings::Load(environment));
  std::string chosen = region.empty() ? settings.First({"AWS_REGION", "AWS_DEFAULT_REGION"}, "region") : region;
  if (!PlausibleRegion(chosen)) {
    return absl::InvalidArgumentError(
        chosen.empty() ? std::string("no AWS region is set; set AWS_REGION or give --region")
                       : fmt::format("the AWS region '{}' is not a region's name; check AWS_REGION", chosen));
  }
  ASSIGN_OR_RETURN(EndpointUrl url, Ec2Endpoint(settings, chosen));
  HttpClientOptions options;
  options.ca_file = settings.First({"AWS_CA_BUNDLE"}, "ca_bundle");
  return std::unique_ptr<Ec2Client>(
      new Ec2Client(std::make_unique<Impl>(runtime, std::make_shared<const AwsEnvironment>(std::move(environment)),
                                           std::move(url), std::move(chosen), std::move(options))));
}

Ec2Client::Ec2Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Ec2Client::~Ec2Client() = default;

absl::StatusOr<std::string> Ec2Client::Call(const std::string& action, const Parameters& parameters) {
  return impl_->Call(action, parameters);
}

absl::Time Ec2Client::Now() const {
  return impl_->Now();
}

const std::string& Ec2Client::region() const {
  return impl_->region();
}

}  // namespace millrace
