#include "diagnose/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "aws/endpoint.h"
#include "base/counted.h"
#include "base/crypto.h"
#include "base/size.h"
#include "s3/address.h"
#include "s3/bucket_name.h"
#include "s3/error.h"
#include "store/completion.h"

namespace millrace {

namespace {

// S3 refuses requests of clocks that are further off; a third of that says that this clock is not set.
constexpr absl::Duration kMaxClockOffset = absl::Minutes(15);
constexpr absl::Duration kNoticedClockOffset = absl::Minutes(5);
constexpr int kDoctorAttempts = 3;  // a doctor is to say soon what fails

}  // namespace

bool Diagnosis::healthy() const {
  return std::none_of(checks.begin(), checks.end(),
                      [](const HealthCheck& check) { return check.result == HealthCheck::Result::kFailed; });
}

Doctor::Doctor(std::string bucket, std::string key, std::function<void(const HealthCheck&)> on_check)
    : bucket_(std::move(bucket)), key_(std::move(key)), on_check_(std::move(on_check)), settings_(ExplainSettings()) {}

void Doctor::CheckAccess() {
  CheckSettings();
  if (!settings_.config.ok()) return;
  CheckNetwork();
  CheckPermissions();
}

void Doctor::Add(HealthCheck check) {
  diagnosis_.checks.push_back(std::move(check));
  on_check_(diagnosis_.checks.back());
}

void Doctor::Ok(std::string name, std::string text) {
  Add({std::move(name), HealthCheck::Result::kOk, std::move(text), {}});
}

void Doctor::Failed(std::string name, std::string text, std::string remedy) {
  Add({std::move(name), HealthCheck::Result::kFailed, std::move(text), std::move(remedy)});
}

void Doctor::Skipped(std::string name, const std::string& why) {
  Add({std::move(name), HealthCheck::Result::kSkipped, "not tried: " + why, {}});
}

void Doctor::CheckSettings() {
  if (!settings_.config.ok()) {
    return Failed("settings", std::string(ToStd(settings_.config.status().message())),
                  "correct the variable or file that it names");
  }
  if (config().anonymous) {
    Ok("credentials", "none, as MILLRACE_S3_ANONYMOUS asks: requests are not signed");
  } else if (config().credentials.anonymous() && !settings_.credentials_from.empty()) {
    Ok("credentials", fmt::format("will be fetched from {}", settings_.credentials_from));
  } else if (config().credentials.anonymous()) {
    Failed("credentials", "none were found in the environment and the profile",
           "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; for public data MILLRACE_S3_ANONYMOUS=1");
  } else {
    Ok("credentials", fmt::format("access key {} from {}{}", settings_.access_key, settings_.credentials_from,
                                  config().credentials.session_token.empty() ? "" : ", temporary (with a token)"));
  }
  Ok("region",
     fmt::format("{} from {}", config().region, settings_.region_from.empty() ? "the default" : settings_.region_from));
}

void Doctor::CheckNetwork() {
  std::optional<EndpointUrl> custom;
  if (!config().endpoint_url.empty()) {
    const absl::StatusOr<EndpointUrl> parsed = ParseEndpointUrl(config().endpoint_url);
    if (parsed.ok()) custom = *parsed;  // that it is one was seen with the settings
  }
  const S3Address address = AddressOf(custom, config().region, config().addressing, bucket_, "", config().aws_endpoint);
  const std::string url = fmt::format("{}://{}", address.server.tls ? "https" : "http", address.host);
  Ok("endpoint", fmt::format("{} from {}", url, custom ? settings_.endpoint_from : "the region: AWS"));

  const HttpProxy* const proxy = config().proxies.For(address.server);
  const HttpEndpoint& peer = proxy != nullptr ? proxy->server : address.server;
  if (proxy != nullptr) {
    Ok("proxy", fmt::format("requests go through {} of {}", HostAndPort(peer.host, peer.port), proxy->variable));
  }
  const std::string where = proxy != nullptr ? proxy->variable : "the endpoint (or the region)";
  const absl::StatusOr<std::vector<SocketAddress>> addresses = ResolveName(peer);
  if (!addresses.ok()) {
    return Failed("dns", fmt::format("{}: {}", peer.host, ToStd(addresses.status().message())),
                  fmt::format("check the host's name in {} and this machine's resolver", where));
  }
  Ok("dns", fmt::format("{} is {}{}", peer.host, addresses->front().text,
                        addresses->size() > 1 ? fmt::format(" and {} more", addresses->size() - 1) : ""));
  const absl::StatusOr<std::string> connected = TryConnect(*addresses);
  if (!connected.ok()) {
    return Failed("connect", fmt::format("port {}: {}", peer.port, ToStd(connected.status().message())),
                  fmt::format("check the port in {}, that the server runs, and the firewall",
                              proxy != nullptr ? proxy->variable : "the endpoint"));
  }
  Ok("connect", *connected);
  CheckServer(address);
}

/// Returns true if a server that got a plain HTTP request, and did not understand it, speaks TLS.
bool Doctor::SpeaksTls(const S3Address& address) {
  if (address.server.tls) return false;
  HttpEndpoint secure = address.server;
  secure.tls = true;
  const ProbeAnswer answer = Probe(runtime_, secure, address.host, address.path, config().ca_file, config().proxies);
  // An untrusted certificate is one, too; but a server without TLS does not have any.
  return answer.error == HttpErrorKind::kNone ||
         (answer.error == HttpErrorKind::kTls && answer.detail.find("certificate") != std::string::npos);
}

void Doctor::CheckServer(const S3Address& address) {
  const ProbeAnswer answer =
      Probe(runtime_, address.server, address.host, address.path, config().ca_file, config().proxies);
  if (answer.error == HttpErrorKind::kTls && address.server.tls) {
    return Failed(
        "tls", answer.detail,
        "use http:// if the server has no TLS; for a private authority set AWS_CA_BUNDLE to its PEM file; check "
        "that the endpoint's name is that in the certificate");
  }
  if (answer.error == HttpErrorKind::kProxy) {
    return Failed("http", answer.detail,
                  "check HTTPS_PROXY and HTTP_PROXY, and name the store in NO_PROXY if it is reached without a proxy");
  }
  const bool failed = answer.error != HttpErrorKind::kNone;
  // Servers with TLS end such connections, or answer 400.
  if ((failed || answer.status == 400) && SpeaksTls(address)) {
    return Failed("http", failed ? answer.detail : "HTTP 400 to a request over plain HTTP",
                  fmt::format("the server speaks https: set AWS_ENDPOINT_URL=https{}",
                              config().endpoint_url.substr(std::string_view("http").size())));
  }
  if (failed) return Failed("http", answer.detail, "check that an S3 server listens there");
  if (address.server.tls) Ok("tls", config().ca_file.empty() ? "trusted" : "trusted, with " + config().ca_file);
  Ok("http", fmt::format("answers{}", answer.server.empty() ? "" : " as " + answer.server.substr(0, 80)));
  reached_ = true;
  if (!answer.region.empty() && answer.region != config().region) {
    diagnosis_.advice.push_back(
        fmt::format("the bucket is in {}, so each process first asks in the wrong place: set AWS_REGION={}",
                    answer.region, answer.region));
  }
  CheckClock(answer);
}

void Doctor::CheckClock(const ProbeAnswer& answer) {
  if (!answer.clock_offset) return Skipped("clock", "the server does not tell the time");
  const absl::Duration off = absl::AbsDuration(*answer.clock_offset);
  if (off < kNoticedClockOffset) return Ok("clock", "agrees with the server's");
  const std::string is = fmt::format("is {} {} the server's", absl::FormatDuration(absl::Trunc(off, absl::Seconds(1))),
                                     *answer.clock_offset > absl::ZeroDuration() ? "behind" : "ahead of");
  if (off > kMaxClockOffset) {
    return Failed("clock", is,
                  "set this machine's clock (NTP): S3 refuses signatures that are more than 15 minutes off");
  }
  Ok("clock", is + ", which S3 accepts");
  diagnosis_.advice.push_back(
      "set this machine's clock (NTP): S3 refuses signatures of clocks that are more than 15 minutes off");
}

std::string Doctor::Remedy(const absl::Status& status, std::string_view permission) const {
  const std::string from = settings_.credentials_from.empty() ? "the credentials" : settings_.credentials_from;
  const std::string code = S3CodeOf(status);
  if (code == "SignatureDoesNotMatch") {
    return fmt::format("the secret key does not belong to this access key: check both where {} is set", from);
  }
  if (code == "InvalidAccessKeyId") {
    return fmt::format(
        "this server does not know the access key {}: check {}, and that the endpoint is that of these "
        "keys",
        settings_.access_key, from);
  }
  if (code == "RequestTimeTooSkewed") return "set this machine's clock (NTP)";
  if (code == "ExpiredToken" || code == "InvalidToken" || code == "TokenRefreshRequired")
    return fmt::format("renew the temporary credentials in {}", from);
  if (code == "NoSuchBucket") return "check the bucket's name, and that the endpoint is the one that has it";
  if (absl::IsNotFound(status)) return "check the key: capitals count, and so does every '/'";
  // The store's answer says more than the permission that is usual.
  if (std::string remedy = S3RemedyOf(status); !remedy.empty()) return remedy;
  if (absl::IsPermissionDenied(status)) {
    return fmt::format("ask the owner of the bucket for {}", permission);
  }
  if (absl::IsUnauthenticated(status)) return fmt::format("check {}", from);
  return "try again; if it stays so, ask the operator of the server";
}

void Doctor::CheckPermissions() {
  const bool no_keys = !config().anonymous && config().credentials.anonymous() && settings_.credentials_from.empty();
  if (!reached_ || no_keys) {
    for (const char* name : {"list", "head", "get"}) {
      Skipped(name, no_keys ? "there are no credentials" : "the server cannot be reached");
    }
    return;
  }
  S3Config settings = config();
  settings.max_attempts = kDoctorAttempts;
  client_ = std::make_unique<S3Client>(runtime_, std::move(settings));
  CheckList();
  CheckRead();
}

void Doctor::CheckList() {
  ListOptions options;
  options.prefix = key_;
  Completion<absl::StatusOr<ListPage>> completion;
  client_->List(bucket_, std::move(options), completion.Callback());
  absl::StatusOr<ListPage> page = completion.Wait();
  if (!page.ok()) {
    Failed("list", std::string(ToStd(page.status().message())),
           Remedy(page.status(), fmt::format("s3:ListBucket on {}", BucketResource(bucket_))));
    // Credentials that may not list may still read.
    const bool denied = absl::IsPermissionDenied(page.status());
    if (denied && !key_.empty() && !key_.ends_with('/')) objects_.push_back({.key = key_});
    return;
  }
  for (ObjectInfo& object : page->objects) {
    if (!object.key.ends_with('/')) objects_.push_back(std::move(object));
  }
  if (objects_.empty() && !key_.empty()) {
    return Failed("list", fmt::format("allowed, but no key begins with {}", key_),
                  "check the key: capitals count, and so does every '/'");
  }
  Ok("list", Counted(objects_.size(), "object") + (page->continuation.empty() ? "" : " and more"));
}

void Doctor::CheckRead() {
  if (objects_.empty()) {
    for (const char* name : {"head", "get"}) Skipped(name, "no object is known; name one");
    return;
  }
  ObjectInfo& object = objects_.front();
  const std::string permission = fmt::format("s3:GetObject on {}", ObjectResource(bucket_, "*"));
  Completion<absl::StatusOr<ObjectInfo>> head_done;
  client_->Head(bucket_, object.key, head_done.Callback());
  const absl::StatusOr<ObjectInfo> head = head_done.Wait();
  if (head.ok()) {
    object = *head;
    Ok("head", fmt::format("s3://{}/{}, {}", bucket_, object.key, FormatSize(object.size)));
  } else {
    Failed("head", std::string(ToStd(head.status().message())), Remedy(head.status(), permission));
  }
  GetOptions options;
  const uint64_t length = std::min<uint64_t>(object.size, 1);
  options.range = {0, length};
  std::byte byte{};
  Completion<absl::StatusOr<GetResult>> get_done;
  client_->Get(bucket_, object.key, MutableByteSpan(&byte, length), std::move(options), get_done.Callback());
  const absl::Status got = get_done.Wait().status();
  if (!got.ok()) return Failed("get", std::string(ToStd(got.message())), Remedy(got, permission));
  Ok("get", fmt::format("the first byte of s3://{}/{}", bucket_, object.key));
  readable_ = head.ok();
}

void Doctor::CheckWrite() {
  if (client_ == nullptr) {
    for (const char* name : {"write", "delete"}) Skipped(name, "the steps before have failed");
    return;
  }
  const size_t folder = key_.rfind('/');
  const std::string key =
      key_.substr(0, folder == std::string::npos ? 0 : folder + 1) + ".millrace-doctor-" + RandomHex(8);
  const std::string uri = fmt::format("s3://{}/{}", bucket_, key);
  Completion<absl::StatusOr<ObjectInfo>> put_done;
  client_->Put(bucket_, key, AsBytes("doctor"), {}, put_done.Callback());
  if (const absl::Status put = put_done.Wait().status(); !put.ok()) {
    Failed("write", std::string(ToStd(put.message())),
           Remedy(put, fmt::format("s3:PutObject on {}", ObjectResource(bucket_, "*"))));
    return Skipped("delete", "nothing was written");
  }
  Ok("write", uri);
  Completion<absl::Status> delete_done;
  client_->Delete(bucket_, key, delete_done.Callback());
  const absl::Status deleted = delete_done.Wait();
  if (deleted.ok()) return Ok("delete", uri);
  Failed("delete", fmt::format("{} remains: {}", uri, ToStd(deleted.message())),
         Remedy(deleted, fmt::format("s3:DeleteObject on {}", ObjectResource(bucket_, "*"))));
}

void Doctor::MeasureSpeed(ReadProgress progress) {
  if (!settings_.config.ok()) return;
  uint64_t bytes = 0;
  for (const ObjectInfo& object : objects_) bytes += object.size;
  if (!readable_) return Skipped("speed", "nothing can be read");
  if (bytes == 0) return Skipped("speed", "the objects are empty");
  const absl::StatusOr<StoreSpeed> measured = MeasureStore(*client_, bucket_, objects_, progress);
  if (!measured.ok()) {
    return Failed("speed", std::string(ToStd(measured.status().message())), Remedy(measured.status(), "s3:GetObject"));
  }
  diagnosis_.speed = *measured;
  Ok("first byte", fmt::format("median {:.1f} ms, p99 {:.1f} ms of {} reads", measured->first_byte_median_ms,
                               measured->first_byte_p99_ms, measured->reads));
  if (!measured->has_rates) {
    Skipped("speed", fmt::format("no object has {}; smaller ones show the latency once more", FormatSize(kRateBytes)));
  } else {
    Ok("speed", fmt::format("{}/s by one connection, {}/s by {}",
                            FormatSize(static_cast<uint64_t>(measured->one_bytes_per_second)),
                            FormatSize(static_cast<uint64_t>(measured->many_bytes_per_second)), kManyConnections));
  }
  for (std::string& line : AdviseOnSpeed(*measured)) diagnosis_.advice.push_back(std::move(line));
}

}  // namespace millrace
