#include "cli/run_print.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_replace.h"
#include "base/crypto.h"
#include "base/shell_word.h"
#include "cli/console.h"
#include "cli/run_words.h"
#include "cli/volume_commands.h"
#include "volume/volume_plan.h"

namespace millrace::cli {

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kS3 = "s3://";
constexpr std::string_view kJobTag = "millrace:job";
constexpr std::string_view kResourceJob = "aws:ResourceTag/millrace:job";

absl::Status PrintUsage(std::string text) {
  return AsUsage(absl::InvalidArgumentError(std::move(text)));
}

constexpr std::string_view kUserDataHead = R"(#!/bin/bash
# Printed by `millrace run --print user-data`. An instance runs it when it boots for the first time: the job runs until the work is
# done, or until EC2 takes the instance back; the next one then goes on. The image has millrace, the AWS command line, and the program.
set -euo pipefail

)";

constexpr std::string_view kUserDataBody = R"(
mkdir -p "$WORK/logs"
exec >>"$WORK/logs/user-data.log" 2>&1
imds=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}
token=$(curl -sSf --max-time 5 --retry 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$imds/latest/api/token")
ask() { curl -sSf --max-time 5 --retry 5 -H "X-aws-ec2-metadata-token: $token" "$imds/latest/meta-data/$1"; }
INSTANCE=$(ask instance-id)
AWS_REGION=${AWS_REGION:-$(ask placement/region)}
export CHECKPOINT WORK INSTANCE AWS_REGION

# Once the job has ended here: the logs are kept, and unless it has to go on elsewhere, the fleet and this instance end.
cat >"$WORK/on-end.sh" <<'END_OF_HOOK'
)";

constexpr std::string_view kUserDataHook = R"(millrace sync "$WORK/logs" "$CHECKPOINT/logs/$INSTANCE"
if [ "$MILLRACE_OUTCOME" != elsewhere ]; then
  fleet=$(aws ec2 describe-spot-instance-requests --filters "Name=instance-id,Values=$INSTANCE" \
    --query "SpotInstanceRequests[0].Tags[?Key=='aws:ec2spot:fleet-request-id'].Value | [0]" --output text)
  aws ec2 cancel-spot-fleet-requests --spot-fleet-request-ids "$fleet" --terminate-instances
fi
END_OF_HOOK

)";

absl::StatusOr<std::string> UserData(const RunFlags& flags) {
  ASSIGN_OR_RETURN(const std::string kept, KeptText(flags));
  std::string out(kUserDataHead);
  out += fmt::format("CHECKPOINT={}\nWORK=${{WORK:-/var/lib/millrace-run}}\n", ShellWord(flags.checkpoint));
  out += "COMMAND=(";
  for (size_t i = 0; i < flags.command.size(); ++i) out += (i == 0 ? "" : " ") + ShellWord(flags.command[i]);
  out += ")\n";
  out += kUserDataBody;
  if (!flags.on_end.empty()) out += flags.on_end + "\n";
  out += kUserDataHook;
  const std::string journal = flags.journal.empty() ? "\"$WORK/logs/run.jsonl\"" : ShellWord(flags.journal);
  const std::string logs = flags.log_dir.empty() ? "\"$WORK/logs\"" : ShellWord(flags.log_dir);
  out += fmt::format(
      "exec millrace run --checkpoint \"$CHECKPOINT\"{} \\\n  --journal {} --log-dir {} --on-end \"sh "
      "'$WORK/on-end.sh'\" "
      "-- \"${{COMMAND[@]}}\"\n",
      kept, journal, logs);
  return out;
}

std::vector<std::string> AtCommas(const std::string& text) {
  std::vector<std::string> items;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

// The values of --ec2.
absl::StatusOr<std::map<std::string, std::string>> TakeEc2(const RunFlags& flags) {
  static const std::set<std::string> kKnown = {"image",      "type", "subnet",         "profile",
                                               "fleet-role", "disk", "security-group", "key-name"};
  std::map<std::string, std::string> values{{"disk", "100"}};
  for (const std::string& text : flags.ec2) {
    const size_t equals = std::min(text.find('='), text.size());
    if (!kKnown.contains(text.substr(0, equals)) || equals + 1 >= text.size()) {
      return PrintUsage(fmt::format(
          "--ec2 takes image=, type=, subnet=, profile=, fleet-role=, disk=, security-group= or key-name=, not '{}'",
          text));
    }
    values[text.substr(0, equals)] = text.substr(equals + 1);
  }
  const std::string& disk = values["disk"];
  if (disk.size() > 5 || disk.find_first_not_of("0123456789") != std::string::npos)
    return PrintUsage(fmt::format("--ec2 disk= takes a number of GiB, not '{}'", disk));
  return values;
}

// The job's name for people: the last part of the checkpoint's URI.
std::string JobName(const std::string& checkpoint) {
  const size_t end = checkpoint.find_last_not_of('/') + 1;
  const size_t begin = checkpoint.rfind('/', end - 1) + 1;
  return checkpoint.substr(begin, end - begin);
}

// The value of the tag millrace:job. A tag has up to 256 characters.
std::string JobTag(const std::string& checkpoint) {
  constexpr size_t kMaxTagChars = 256;
  return checkpoint.size() <= kMaxTagChars ? checkpoint : HexEncode(Sha256(AsBytes(checkpoint)));
}

// The tags of the fleet and its instances. The policy of the role names the resources of the job by them.
OrderedJson TagsOfJob(const std::string& type, const std::string& checkpoint) {
  const OrderedJson name = {{"Key", "Name"}, {"Value", JobName(checkpoint)}};
  const OrderedJson job = {{"Key", kJobTag}, {"Value", JobTag(checkpoint)}};
  return OrderedJson::array({{{"ResourceType", type}, {"Tags", OrderedJson::array({name, job})}}});
}

absl::StatusOr<std::string> SpotFleet(const RunFlags& flags) {
  using Values = std::map<std::string, std::string>;
  ASSIGN_OR_RETURN(Values values, TakeEc2(flags));
  for (const char* name : {"image", "type", "subnet", "profile", "fleet-role"}) {
    if (!values.contains(name))
      return PrintUsage(fmt::format("--print spot-fleet also needs --ec2 {}=...; see `millrace run --help`", name));
  }
  ASSIGN_OR_RETURN(const std::string user_data, UserData(flags));
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(user_data.data()), user_data.size());
  OrderedJson launches = OrderedJson::array();
  for (const std::string& type : AtCommas(values["type"])) {
    OrderedJson launch = {{"ImageId", values["image"]},
                          {"InstanceType", type},
                          {"SubnetId", values["subnet"]},
                          {"IamInstanceProfile", {{"Arn", values["profile"]}}}};
    if (values.contains("key-name")) launch["KeyName"] = values["key-name"];
    if (values.contains("security-group")) {
      launch["SecurityGroups"] = OrderedJson::array();
      for (const std::string& group : AtCommas(values["security-group"]))
        launch["SecurityGroups"].push_back({{"GroupId", group}});
    }
    const OrderedJson disk = {
        {"VolumeSize", std::stoi(values["disk"])}, {"VolumeType", "gp3"}, {"DeleteOnTermination", true}};
    launch["BlockDeviceMappings"] = OrderedJson::array({{{"DeviceName", "/dev/xvda"}, {"Ebs", disk}}});
    launch["TagSpecifications"] = TagsOfJob("instance", flags.checkpoint);
    launch["UserData"] = Base64Encode(bytes);
    launches.push_back(std::move(launch));
  }
  const OrderedJson fleet = {{"IamFleetRole", values["fleet-role"]},
                             {"Type", "maintain"},
                             {"TargetCapacity", 1},
                             {"AllocationStrategy", "capacityOptimized"},
                             {"InstanceInterruptionBehavior", "terminate"},
                             {"TerminateInstancesWithExpiration", true},
                             {"TagSpecifications", TagsOfJob("spot-fleet-request", flags.checkpoint)},
                             {"LaunchSpecifications", launches}};
  return fleet.dump(2) + "\n";
}

/// A bucket and what lies below a key in it.
struct S3Place {
  std::string bucket;
  std::string key;
  auto operator<=>(const S3Place&) const = default;
};

// Of the text behind "s3://", up to what ends a URI in options: "train=s3://bucket/train,mode=File".
S3Place PlaceAt(const std::string& text, size_t uri) {
  const size_t begin = uri + kS3.size();
  const size_t end = std::min(text.find_first_of(" ,;\"'@#", begin), text.size());
  const std::string place = text.substr(begin, end - begin);
  const size_t slash = std::min(place.find('/'), place.size());
  std::string key = slash < place.size() ? place.substr(slash + 1) : "";
  while (key.ends_with('/')) key.pop_back();
  return {place.substr(0, slash), key};
}

std::set<S3Place> PlacesRead(const RunFlags& flags) {
  std::set<S3Place> places;
  const auto take = [&places](const std::string& text) {
    for (size_t at = text.find(kS3); at != std::string::npos; at = text.find(kS3, at + 1))
      places.insert(PlaceAt(text, at));
  };
  for (const std::string& word : flags.command) take(word);
  for (const std::string& channel : flags.job.channels) take(channel);
  for (const std::string& parameter : flags.job.hyperparameters) take(parameter);
  take(flags.job.output);  // is listed before it is written
  take(flags.job.checkpoints);
  places.erase(S3Place{});
  return places;
}

std::string ObjectArn(const S3Place& place) {
  return fmt::format("arn:aws:s3:::{}/{}*", place.bucket, place.key.empty() ? "" : place.key);
}

OrderedJson Allow(const std::string& id, const std::vector<std::string>& actions, const OrderedJson& resources) {
  return {{"Sid", id}, {"Effect", "Allow"}, {"Action", actions}, {"Resource", resources}};
}

OrderedJson AllowIf(const std::string& id, const std::vector<std::string>& actions, const OrderedJson& resources,
                    const OrderedJson& equal) {
  OrderedJson statement = Allow(id, actions, resources);
  statement["Condition"] = {{"StringEquals", equal}};
  return statement;
}

std::string Ec2Arn(std::string_view kind) {
  return fmt::format("arn:aws:ec2:*:*:{}/*", kind);
}

// A text that is compared with a tag: "${" would begin a variable.
std::string InPolicy(const std::string& text) {
  return absl::StrReplaceAll(text, {{"$", "${$}"}});
}

// The role may use volumes and snapshots with the tag of a volume, and tags new ones when it makes them. It cannot tag
// others: it could then read or delete any volume of the account.
void AllowVolumes(const std::vector<std::string>& names, const std::string& job, OrderedJson& statements) {
  if (names.empty()) return;
  const std::string volumes = Ec2Arn("volume");
  const std::string snapshots = Ec2Arn("snapshot");
  const OrderedJson has_tag = {{"aws:ResourceTag/millrace:volume", names}};
  const OrderedJson gets_tag = {{"aws:RequestTag/millrace:volume", names}};
  statements.push_back(
      Allow("LookAtVolumes", {"ec2:DescribeVolumes", "ec2:DescribeSnapshots", "ec2:DescribeInstances"}, "*"));
  statements.push_back(
      AllowIf("MoveVolumes", {"ec2:CreateSnapshot", "ec2:AttachVolume", "ec2:DetachVolume"}, volumes, has_tag));
  statements.push_back(AllowIf("AttachToInstancesOfTheJob", {"ec2:AttachVolume", "ec2:DetachVolume"},
                               Ec2Arn("instance"), {{kResourceJob, job}}));
  statements.push_back(AllowIf("MakeSnapshots", {"ec2:CreateSnapshot"}, snapshots, gets_tag));
  statements.push_back(AllowIf("MakeVolumes", {"ec2:CreateVolume"}, volumes, gets_tag));
  statements.push_back(AllowIf("MakeVolumesOfSnapshots", {"ec2:CreateVolume"}, snapshots, has_tag));
  OrderedJson tag_made = AllowIf("TagWhatIsMade", {"ec2:CreateTags"}, {volumes, snapshots}, gets_tag);
  tag_made["Condition"]["StringEquals"]["ec2:CreateAction"] = {"CreateSnapshot", "CreateVolume"};
  statements.push_back(std::move(tag_made));
  OrderedJson claim = AllowIf("ClaimVolumes", {"ec2:CreateTags"}, volumes, has_tag);
  claim["Condition"]["ForAllValues:StringEquals"] = {{"aws:TagKeys", {kVolumeClaimTag, kVolumeIdTag, kVolumeStateTag}}};
  statements.push_back(std::move(claim));
  statements.push_back(AllowIf("DeleteWhatWasMoved", {"ec2:DeleteVolume", "ec2:DeleteSnapshot"}, "*", has_tag));
}

absl::StatusOr<std::string> IamPolicy(const RunFlags& flags) {
  const S3Place kept = PlaceAt(flags.checkpoint, 0);
  std::set<std::string> buckets{"arn:aws:s3:::" + kept.bucket};
  std::set<std::string> read;
  for (const S3Place& place : PlacesRead(flags)) {
    buckets.insert("arn:aws:s3:::" + place.bucket);
    read.insert(ObjectArn(place));
  }
  std::vector<std::string> names;
  for (const std::string& text : flags.volumes) {
    ASSIGN_OR_RETURN(const VolumeFlags volume, ParseVolumeOption(text));
    names.push_back(InPolicy(volume.name));
  }
  OrderedJson statements = OrderedJson::array();
  statements.push_back(Allow("List", {"s3:ListBucket", "s3:ListBucketMultipartUploads"}, buckets));
  if (!read.empty()) statements.push_back(Allow("ReadData", {"s3:GetObject"}, read));
  const auto below = [](const S3Place& place) {
    return fmt::format("arn:aws:s3:::{}/{}", place.bucket, place.key.empty() ? "*" : place.key + "/*");
  };
  statements.push_back(Allow(
      "KeepCheckpointsAndLogs",
      {"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"},
      below(kept)));
  std::vector<std::string> written;
  for (const std::string& uri : {flags.job.output, flags.job.checkpoints}) {
    if (uri.starts_with(kS3)) written.push_back(below(PlaceAt(uri, 0)));
  }
  if (!written.empty()) {
    statements.push_back(
        Allow("KeepOutput", {"s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"},
              written));
  }
  const std::string job = InPolicy(JobTag(flags.checkpoint));
  AllowVolumes(names, job, statements);
  statements.push_back(Allow("FindTheFleet", {"ec2:DescribeSpotInstanceRequests"}, "*"));
  statements.push_back(
      AllowIf("EndTheFleet", {"ec2:CancelSpotFleetRequests"}, Ec2Arn("spot-fleet-request"), {{kResourceJob, job}}));
  const OrderedJson policy = {{"Version", "2012-10-17"}, {"Statement", statements}};
  return policy.dump(2) + "\n";
}

}  // namespace

absl::StatusOr<std::string> PrintRunFile(const RunFlags& flags) {
  if (!flags.checkpoint.starts_with(kS3)) {
    return PrintUsage(
        "--print needs --checkpoint s3://BUCKET/JOB, where the next instance finds what this one has done");
  }
  if (!flags.job.request.empty())
    return PrintUsage("--print knows nothing of what the file of --job names; give its channels as --channel");
  RunFlags plain = flags;
  while (plain.checkpoint.ends_with('/')) plain.checkpoint.pop_back();
  if (flags.print == "user-data") return UserData(plain);
  return flags.print == "spot-fleet" ? SpotFleet(plain) : IamPolicy(plain);
}

}  // namespace millrace::cli
