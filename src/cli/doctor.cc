#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "base/size.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/doctor_measure.h"
#include "cli/doctor_network.h"
#include "cli/doctor_settings.h"
#include "s3/endpoint.h"
#include "store/completion.h"
#include "store/uri.h"

namespace millrace::cli {

namespace {

// S3 refuses requests of clocks that are 15 minutes off; a third of that says that nobody sets this one.
constexpr absl::Duration kMaxClockOffset = absl::Minutes(5);
constexpr int kAttempts = 3;  // a doctor is to say soon what fails

struct DoctorFlags {
  std::string uri;
  bool json = false;
};

struct Check {
  enum class Result { kOk, kFailed, kSkipped };
  std::string name;
  Result result = Result::kOk;
  std::string text;
  std::string remedy;  // of kFailed
};

bool Says(const absl::Status& status, std::string_view code) {
  return ToStd(status.message()).find(code) != std::string_view::npos;
}

class Doctor {
 public:
  Doctor(const DoctorFlags& flags, ParsedUri uri) : flags_(flags), bucket_(std::move(uri.store)), key_(uri.path) {}

  // Whether all went well.
  absl::StatusOr<bool> Examine() {
    settings_ = ExplainSettings();
    CheckSettings();
    if (settings_->config.ok()) {
      CheckNetwork();
      CheckPermissions();
      MeasureSpeed();
    }
    if (!flags_.json) {
      for (const std::string& line : advice_) print_status_.Update(WriteStdout(fmt::format("advice: {}\n", line)));
    }
    for (const Check& check : checks_) healthy_ = healthy_ && check.result != Check::Result::kFailed;
    if (flags_.json) RETURN_IF_ERROR(WriteStdout(ToJson().dump(-1, ' ', false, kReplace) + '\n'));
    RETURN_IF_ERROR(print_status_);
    return healthy_;
  }

 private:
  static constexpr auto kReplace = nlohmann::json::error_handler_t::replace;

  void Add(Check check) {
    if (!flags_.json) {
      constexpr const char* kWords[] = {"ok", "FAILED", "-"};
      std::string line = fmt::format("{:<6} {}: {}", kWords[static_cast<int>(check.result)], check.name, check.text);
      if (!check.remedy.empty()) line += fmt::format(". Remedy: {}", check.remedy);
      print_status_.Update(WriteStdout(ForTerminal(line) + '\n'));
    }
    checks_.push_back(std::move(check));
  }
  void Ok(std::string name, std::string text) { Add({std::move(name), Check::Result::kOk, std::move(text), {}}); }
  void Failed(std::string name, std::string text, std::string remedy) {
    Add({std::move(name), Check::Result::kFailed, std::move(text), std::move(remedy)});
  }
  void Skipped(std::string name, std::string why) {
    Add({std::move(name), Check::Result::kSkipped, "not tried: " + why, {}});
  }

  const S3Config& config() const { return *settings_->config; }

  void CheckSettings();
  void CheckNetwork();
  void CheckServer(const S3Address& address);
  void CheckClock(const ProbeAnswer& answer);
  void CheckPermissions();
  void CheckList();
  void CheckRead();
  void MeasureSpeed();
  absl::StatusOr<Measured> MeasureShown();
  std::string Remedy(const absl::Status& status, std::string_view permission) const;
  nlohmann::json ToJson() const;

  const DoctorFlags& flags_;
  const std::string bucket_;
  const std::string key_;
  Runtime runtime_;
  std::unique_ptr<S3Client> client_;
  std::optional<ExplainedSettings> settings_;
  std::vector<Check> checks_;
  absl::Status print_status_;
  bool healthy_ = true;
  bool reached_ = false;             // the server answers
  bool readable_ = false;            // there is an object that can be read
  std::vector<ObjectInfo> objects_;  // that exist, the one asked for first
  std::optional<Measured> measured_;
  std::vector<std::string> advice_;
};

void Doctor::CheckSettings() {
  if (!settings_->config.ok()) {
    return Failed("settings", std::string(ToStd(settings_->config.status().message())),
                  "correct the variable or file that it names");
  }
  if (config().anonymous) {
    Ok("credentials", "none, as MILLRACE_S3_ANONYMOUS asks: requests are not signed");
  } else if (config().credentials.anonymous() && !settings_->credentials_from.empty()) {
    Ok("credentials", fmt::format("will be fetched from {}", settings_->credentials_from));
  } else if (config().credentials.anonymous()) {
    Failed("credentials", "none were found in the environment and the profile",
           "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; for public data MILLRACE_S3_ANONYMOUS=1");
  } else {
    Ok("credentials", fmt::format("access key {} from {}{}", settings_->access_key, settings_->credentials_from,
                                  config().credentials.session_token.empty() ? "" : ", temporary (with a token)"));
  }
  Ok("region", fmt::format("{} from {}", config().region,
                           settings_->region_from.empty() ? "the default" : settings_->region_from));
}

void Doctor::CheckNetwork() {
  std::optional<EndpointUrl> custom;
  if (!config().endpoint_url.empty()) {
    const absl::StatusOr<EndpointUrl> parsed = ParseEndpointUrl(config().endpoint_url);
    if (parsed.ok()) custom = *parsed;  // that it is one was seen with the settings
  }
  const S3Address address = AddressOf(custom, config().region, config().addressing, bucket_, "", config().aws_endpoint);
  const std::string url = fmt::format("{}://{}", address.server.tls ? "https" : "http", address.host);
  Ok("endpoint", fmt::format("{} from {}", url, custom ? settings_->endpoint_from : "the region: AWS"));

  const absl::StatusOr<std::vector<SocketAddress>> addresses = ResolveName(address.server);
  if (!addresses.ok()) {
    return Failed("dns", fmt::format("{}: {}", address.server.host, ToStd(addresses.status().message())),
                  "check the host's name in the endpoint (or the region) and this machine's resolver");
  }
  Ok("dns", fmt::format("{} is {}{}", address.server.host, addresses->front().text,
                        addresses->size() > 1 ? fmt::format(" and {} more", addresses->size() - 1) : ""));
  const absl::StatusOr<std::string> connected = TryConnect(*addresses);
  if (!connected.ok()) {
    return Failed("connect", fmt::format("port {}: {}", address.server.port, ToStd(connected.status().message())),
                  "check the port of the endpoint, that the server runs, and the firewall");
  }
  Ok("connect", *connected);
  CheckServer(address);
}

void Doctor::CheckServer(const S3Address& address) {
  const ProbeAnswer answer = Probe(runtime_, address.server, address.host, address.path, config().ca_file);
  if (answer.error == HttpErrorKind::kTls) {
    return Failed(
        "tls", answer.detail,
        "use http:// if the server has no TLS; for a private authority set AWS_CA_BUNDLE to its PEM file; check "
        "that the endpoint's name is that in the certificate");
  }
  if (answer.error != HttpErrorKind::kNone) {
    return Failed("http", answer.detail,
                  address.server.tls ? "check that an S3 server listens there"
                                     : "check that an S3 server listens there, and that it is not https");
  }
  if (address.server.tls) Ok("tls", config().ca_file.empty() ? "trusted" : "trusted, with " + config().ca_file);
  Ok("http", fmt::format("answers{}", answer.server.empty() ? "" : " as " + answer.server.substr(0, 80)));
  reached_ = true;
  if (!answer.region.empty() && answer.region != config().region) {
    advice_.push_back(
        fmt::format("the bucket is in {}, so each process first asks in the wrong place: set AWS_REGION={}",
                    answer.region, answer.region));
  }
  CheckClock(answer);
}

void Doctor::CheckClock(const ProbeAnswer& answer) {
  if (!answer.clock_offset) return Skipped("clock", "the server does not tell the time");
  const absl::Duration off = absl::AbsDuration(*answer.clock_offset);
  if (off < kMaxClockOffset) return Ok("clock", "agrees with the server's");
  Failed("clock",
         fmt::format("is {} {} the server's", absl::FormatDuration(absl::Trunc(off, absl::Seconds(1))),
                     *answer.clock_offset > absl::ZeroDuration() ? "behind" : "ahead of"),
         "set this machine's clock (NTP): S3 refuses signatures that are 15 minutes off");
}

std::string Doctor::Remedy(const absl::Status& status, std::string_view permission) const {
  const std::string from = settings_->credentials_from.empty() ? "the credentials" : settings_->credentials_from;
  if (Says(status, "SignatureDoesNotMatch")) {
    return fmt::format("the secret key does not belong to this access key: check both where {} is set", from);
  }
  if (Says(status, "InvalidAccessKeyId")) {
    return fmt::format(
        "this server does not know the access key {}: check {}, and that the endpoint is that of these "
        "keys",
        settings_->access_key, from);
  }
  if (Says(status, "RequestTimeTooSkewed")) return "set this machine's clock (NTP)";
  if (Says(status, "Token")) return fmt::format("renew the temporary credentials in {}", from);
  if (Says(status, "NoSuchBucket")) return "check the bucket's name, and that the endpoint is the one that has it";
  if (absl::IsNotFound(status)) return "check the key: capitals count, and so does every '/'";
  if (absl::IsPermissionDenied(status)) {
    return fmt::format("ask the owner of the bucket for {}", permission);
  }
  if (absl::IsUnauthenticated(status)) return fmt::format("check {}", from);
  return "try again; if it stays so, ask the operator of the server";
}

void Doctor::CheckPermissions() {
  const bool no_keys = !config().anonymous && config().credentials.anonymous() && settings_->credentials_from.empty();
  if (!reached_ || no_keys) {
    for (const char* name : {"list", "head", "get"}) {
      Skipped(name, no_keys ? "there are no credentials" : "the server cannot be reached");
    }
    return;
  }
  S3Config settings = config();
  settings.max_attempts = kAttempts;
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
           Remedy(page.status(), fmt::format("s3:ListBucket on arn:aws:s3:::{}", bucket_)));
    // Who may not list may still read.
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
  const std::string permission = fmt::format("s3:GetObject on arn:aws:s3:::{}/*", bucket_);
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

void Doctor::MeasureSpeed() {
  uint64_t bytes = 0;
  for (const ObjectInfo& object : objects_) bytes += object.size;
  if (!readable_) return Skipped("speed", "nothing can be read");
  if (bytes == 0) return Skipped("speed", "the objects are empty");
  const absl::StatusOr<Measured> measured = MeasureShown();
  if (!measured.ok()) {
    return Failed("speed", std::string(ToStd(measured.status().message())), Remedy(measured.status(), "s3:GetObject"));
  }
  measured_ = *measured;
  Ok("first byte", fmt::format("median {:.1f} ms, p99 {:.1f} ms of {} reads", measured->first_byte_median_ms,
                               measured->first_byte_p99_ms, measured->reads));
  if (!measured->has_rates) {
    Skipped("speed", fmt::format("no object has {}; smaller ones show the latency once more", FormatSize(kRateBytes)));
  } else {
    Ok("speed", fmt::format("{}/s by one connection, {}/s by {}",
                            FormatSize(static_cast<uint64_t>(measured->one_bytes_per_second)),
                            FormatSize(static_cast<uint64_t>(measured->many_bytes_per_second)), kManyConnections));
  }
  for (std::string& line : Advise(*measured)) advice_.push_back(std::move(line));
}

absl::StatusOr<Measured> Doctor::MeasureShown() {
  ProgressLine progress("measuring", ProgressLine::Unit::kBytes);
  return Measure(*client_, bucket_, objects_, progress);
}

nlohmann::json Doctor::ToJson() const {
  nlohmann::json json{{"ok", healthy_}, {"checks", nlohmann::json::array()}, {"advice", advice_}};
  for (const Check& check : checks_) {
    constexpr const char* kWords[] = {"ok", "failed", "skipped"};
    json["checks"].push_back({{"name", check.name},
                              {"result", kWords[static_cast<int>(check.result)]},
                              {"text", check.text},
                              {"remedy", check.remedy}});
  }
  if (measured_) {
    json["first_byte_ms"] = {{"median", measured_->first_byte_median_ms},
                             {"p99", measured_->first_byte_p99_ms},
                             {"reads", measured_->reads}};
  }
  if (measured_ && measured_->has_rates) {
    json["bytes_per_second"] = {{"one", measured_->one_bytes_per_second},
                                {"many", measured_->many_bytes_per_second},
                                {"connections", kManyConnections}};
  }
  return json;
}

void AddS3(CLI::App& doctor, Action* run) {
  CLI::App* s3 = doctor.add_subcommand("s3", "Why a bucket cannot be read, or how fast it can");
  auto flags = std::make_shared<DoctorFlags>();
  s3->add_option("uri", flags->uri, "s3://bucket, a prefix or an object")->required();
  s3->add_flag("--json", flags->json,
               R"(One JSON object: {"ok", "checks": [{"name", "result", "text", "remedy"}], "first_byte_ms", )"
               R"("bytes_per_second" (of objects of 1 MiB and more), "advice"})");
  s3->footer(
      "One line for each step: settings, name, connection, TLS, clock, permissions; what fails comes with its remedy. "
      "Then reads what is there for some seconds, half a GiB at most, and changes nothing. Secrets are never shown. "
      "Exit status 1 when something fails.\n\n"
      "Examples:\n"
      "  millrace doctor s3 s3://bucket/train/\n"
      "  AWS_PROFILE=lab millrace doctor s3 s3://bucket/train/shard-000000.tar --json | jq .checks");
  s3->callback([flags, run] {
    *run = [flags] {
      absl::StatusOr<ParsedUri> uri = ParseUri(flags->uri);
      if (uri.ok() && uri->scheme != ParsedUri::Scheme::kS3) {
        uri = absl::InvalidArgumentError(fmt::format("'{}' is not on S3; write s3://bucket/prefix", flags->uri));
      }
      if (!uri.ok()) {
        Fail("doctor", uri.status());
        return 2;
      }
      const absl::StatusOr<bool> healthy = Doctor(*flags, *std::move(uri)).Examine();
      if (!healthy.ok()) return Fail("doctor", healthy.status());
      return *healthy ? 0 : 1;
    };
  });
}

}  // namespace

void AddDoctor(CLI::App& app, Action* run) {
  CLI::App* doctor = app.add_subcommand("doctor", "Say why a store cannot be read, and how fast it is");
  doctor->require_subcommand(1);
  doctor->footer("Examples:\n  millrace doctor s3 s3://bucket/train/");
  AddS3(*doctor, run);
}

}  // namespace millrace::cli
