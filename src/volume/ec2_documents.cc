#include "volume/ec2_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "aws/sigv4.h"
#include "aws/xml_document.h"
#include "base/number.h"

namespace millrace {

namespace {

constexpr std::string_view kApiVersion = "2016-11-15";

uint64_t Ec2Number(std::string_view text) {
  return ParseNumber<uint64_t>(text).value_or(0);
}

std::string TextOf(const XmlElement& element, const char* name) {
  return std::string(element.Text(name));
}

// Returns the items of a list of EC2.
std::vector<XmlElement> ItemsOf(const XmlElement& element, const char* list) {
  return element.Child(list).Children("item");
}

Ec2Tags TagsOf(const XmlElement& element) {
  Ec2Tags tags;
  for (const XmlElement& tag : ItemsOf(element, "tagSet")) tags[TextOf(tag, "key")] = tag.Text("value");
  return tags;
}

absl::StatusOr<XmlDocument> LoadAnswer(std::string_view xml, std::string_view root) {
  ASSIGN_OR_RETURN(XmlDocument answer, XmlDocument::Parse(xml));
  const std::string_view name = answer.root().name();
  if (name == root) return answer;
  return absl::InvalidArgumentError(
      fmt::format("EC2 answered <{}> in place of <{}>; check AWS_ENDPOINT_URL_EC2", name.substr(0, 64), root));
}

Ec2Volume VolumeOf(const XmlElement& item) {
  Ec2Volume volume{.id = TextOf(item, "volumeId"),
                   .zone = TextOf(item, "availabilityZone"),
                   .state = TextOf(item, "status"),
                   .snapshot = TextOf(item, "snapshotId"),
                   .size_gib = Ec2Number(item.Text("size")),
                   .type = TextOf(item, "volumeType"),
                   .iops = Ec2Number(item.Text("iops")),
                   .throughput = Ec2Number(item.Text("throughput")),
                   .attachments = {},
                   .tags = TagsOf(item)};
  for (const XmlElement& one : ItemsOf(item, "attachmentSet")) {
    if (one.Text("status") == "detached") continue;
    volume.attachments.push_back({TextOf(one, "instanceId"), TextOf(one, "device"), TextOf(one, "status")});
  }
  return volume;
}

Ec2Instance InstanceOf(const XmlElement& item) {
  Ec2Instance instance{
      .id = TextOf(item, "instanceId"), .state = TextOf(item.Child("instanceState"), "name"), .devices = {}};
  for (const XmlElement& device : ItemsOf(item, "blockDeviceMapping"))
    instance.devices.push_back(TextOf(device, "deviceName"));
  return instance;
}

struct Ec2ErrorText {
  std::string code;
  std::string message;
};

Ec2ErrorText ErrorOf(std::string_view xml) {
  const absl::StatusOr<XmlDocument> document = XmlDocument::Parse(xml);
  if (!document.ok()) return {};
  const XmlElement error = document->root().Child("Errors").Child("Error");
  return {TextOf(error, "Code"), TextOf(error, "Message")};
}

struct Ec2ErrorRule {
  std::string_view code;  // its beginning, if it ends with '*'; its end, if it begins with '*'
  absl::StatusCode status;
  std::string_view remedy;
};

constexpr std::string_view kCredentialsRemedy = "check AWS_ACCESS_KEY_ID, AWS_PROFILE or the role of the instance";
constexpr std::string_view kLimitRemedy = "a limit of the account; remove what is not needed, or ask AWS to raise it";

// The rules are in order; the first that matches decides.
constexpr std::array<Ec2ErrorRule, 22> kErrorRules = {{
    {"UnauthorizedOperation", absl::StatusCode::kPermissionDenied, ""},
    {"AuthFailure", absl::StatusCode::kUnauthenticated, kCredentialsRemedy},
    {"InvalidClientTokenId", absl::StatusCode::kUnauthenticated, kCredentialsRemedy},
    {"SignatureDoesNotMatch", absl::StatusCode::kUnauthenticated, kCredentialsRemedy},
    {"MissingAuthenticationToken", absl::StatusCode::kUnauthenticated, kCredentialsRemedy},
    {"RequestExpired", absl::StatusCode::kUnauthenticated, "check the clock of this machine"},
    {"RequestLimitExceeded", absl::StatusCode::kUnavailable, ""},
    {"Throttling*", absl::StatusCode::kUnavailable, ""},
    {"InternalError", absl::StatusCode::kUnavailable, ""},
    {"InternalFailure", absl::StatusCode::kUnavailable, ""},
    {"ServiceUnavailable", absl::StatusCode::kUnavailable, ""},
    {"Unavailable", absl::StatusCode::kUnavailable, ""},
    {"SnapshotCreationPerVolumeRateExceeded", absl::StatusCode::kUnavailable, ""},
    {"InsufficientVolumeCapacity", absl::StatusCode::kUnavailable, ""},
    {"IncorrectState*", absl::StatusCode::kFailedPrecondition, ""},
    {"VolumeInUse", absl::StatusCode::kFailedPrecondition, ""},
    {"InvalidSnapshot.InUse", absl::StatusCode::kFailedPrecondition, ""},
    {"*.NotFound", absl::StatusCode::kNotFound, ""},
    {"*LimitExceeded", absl::StatusCode::kResourceExhausted, kLimitRemedy},
    {"IdempotentParameterMismatch", absl::StatusCode::kFailedPrecondition, ""},
    {"InvalidVolume.ZoneMismatch", absl::StatusCode::kFailedPrecondition, ""},
    {"*", absl::StatusCode::kInvalidArgument, ""},
}};

bool RuleMatches(const Ec2ErrorRule& rule, std::string_view code) {
  if (rule.code == "*") return !code.empty();
  if (rule.code.ends_with('*')) return code.starts_with(rule.code.substr(0, rule.code.size() - 1));
  if (rule.code.starts_with('*')) return code.ends_with(rule.code.substr(1));
  return code == rule.code;
}

}  // namespace

absl::StatusOr<Ec2Page<Ec2Volume>> ParseVolumes(std::string_view xml) {
  ASSIGN_OR_RETURN(const XmlDocument answer, LoadAnswer(xml, "DescribeVolumesResponse"));
  Ec2Page<Ec2Volume> page{{}, TextOf(answer.root(), "nextToken")};
  for (const XmlElement& item : ItemsOf(answer.root(), "volumeSet")) page.entries.push_back(VolumeOf(item));
  return page;
}

absl::StatusOr<Ec2Page<Ec2Snapshot>> ParseSnapshots(std::string_view xml) {
  ASSIGN_OR_RETURN(const XmlDocument answer, LoadAnswer(xml, "DescribeSnapshotsResponse"));
  Ec2Page<Ec2Snapshot> page{{}, TextOf(answer.root(), "nextToken")};
  for (const XmlElement& item : ItemsOf(answer.root(), "snapshotSet")) {
    page.entries.push_back({TextOf(item, "snapshotId"), TextOf(item, "volumeId"), TextOf(item, "status"),
                            TextOf(item, "progress"), TagsOf(item)});
    absl::Time started;
    if (absl::ParseTime(absl::RFC3339_full, TextOf(item, "startTime"), &started, nullptr))
      page.entries.back().started = started;
  }
  return page;
}

absl::StatusOr<Ec2Page<Ec2Instance>> ParseInstances(std::string_view xml) {
  ASSIGN_OR_RETURN(const XmlDocument answer, LoadAnswer(xml, "DescribeInstancesResponse"));
  Ec2Page<Ec2Instance> page{{}, TextOf(answer.root(), "nextToken")};
  for (const XmlElement& reservation : ItemsOf(answer.root(), "reservationSet")) {
    for (const XmlElement& item : ItemsOf(reservation, "instancesSet")) page.entries.push_back(InstanceOf(item));
  }
  return page;
}

absl::Status Ec2Error(std::string_view action, int http_status, std::string_view xml) {
  const Ec2ErrorText error = ErrorOf(xml);
  for (const Ec2ErrorRule& rule : kErrorRules) {
    if (!RuleMatches(rule, error.code)) continue;
    std::string text = fmt::format("EC2 refused {}: {}: {}", action, error.code, error.message);
    if (rule.status == absl::StatusCode::kPermissionDenied)
      text += fmt::format("; allow ec2:{} in the policy of the role", action);
    if (!rule.remedy.empty()) text += fmt::format("; {}", rule.remedy);
    return absl::Status(rule.status, text);
  }
  const std::string text = fmt::format("EC2 answered {} with HTTP {}; check AWS_ENDPOINT_URL_EC2", action, http_status);
  return http_status >= 500 ? absl::UnavailableError(text) : absl::InvalidArgumentError(text);
}

bool IsExpiredSignature(std::string_view xml) {
  const std::string code = ErrorOf(xml).code;
  return code == "RequestExpired" || code == "ExpiredToken" || code == "ExpiredTokenException";
}

std::string Ec2Body(std::string_view action, const std::vector<std::pair<std::string, std::string>>& parameters) {
  std::string form = fmt::format("Action={}&Version={}", action, kApiVersion);
  for (const auto& [name, value] : parameters)
    form += fmt::format("&{}={}", UriEncode(name, /*keep_slash=*/false), UriEncode(value, /*keep_slash=*/false));
  return form;
}

}  // namespace millrace
