#include "job/spot_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/crypto.h"
#include "base/shell_word.h"
#include "base/usage_error.h"
#include "job/job_templates.h"
#include "s3/bucket_name.h"

namespace millrace {

namespace {

constexpr std::string_view kS3 = "s3://";

std::string UserData(const RunOptions& run, const SpotFileOptions& options) {
  const SupervisorOptions& supervisor = run.supervisor;
  TemplateValues hooks = TemplateValues::array();
  if (!supervisor.on_end.empty()) hooks.push_back({{"hook", supervisor.on_end}});
  return FillText(JobTemplate("user-data.sh"),
                  {{"checkpoint", ShellWord(supervisor.checkpoint)},
                   {"command", ShellWords(supervisor.command)},
                   {"on_end", hooks},
                   {"kept", options.kept.empty() ? "" : " " + ShellWords(options.kept)},
                   {"journal", run.journal.empty() ? "\"$WORK/logs/run.jsonl\"" : ShellWord(run.journal)},
                   {"logs", supervisor.log_folder.empty() ? "\"$WORK/logs\"" : ShellWord(supervisor.log_folder)}});
}

// Returns the values of --ec2.
absl::StatusOr<std::map<std::string, std::string>> TakeEc2(const SpotFileOptions& options) {
  static const std::set<std::string> kKnown = {"image",      "type", "subnet",         "profile",
                                               "fleet-role", "disk", "security-group", "key-name"};
  std::map<std::string, std::string> values{{"disk", "100"}};
  for (const std::string& text : options.ec2) {
    const size_t equals = std::min(text.find('='), text.size());
    if (!kKnown.contains(text.substr(0, equals)) || equals + 1 >= text.size()) {
      return UsageError(
          "--ec2 takes image=, type=, subnet=, profile=, fleet-role=, disk=, security-group= or key-name=, not '{}'",
          text);
    }
    values[text.substr(0, equals)] = text.substr(equals + 1);
  }
  const std::string& disk = values["disk"];
  if (disk.size() > 5 || disk.find_first_not_of("0123456789") != std::string::npos)
    return UsageError("--ec2 disk= takes a number of GiB, not '{}'", disk);
  return values;
}

// The job's name for people: the last part of the checkpoint's URI.
std::string JobName(const std::string& checkpoint) {
  const size_t end = checkpoint.find_last_not_of('/') + 1;
  const size_t begin = checkpoint.rfind('/', end - 1) + 1;
  return checkpoint.substr(begin, end - begin);
}

// Returns the value of the tag millrace:job. A tag has up to 256 characters.
std::string JobTag(const std::string& checkpoint) {
  constexpr size_t kMaxTagChars = 256;
  return checkpoint.size() <= kMaxTagChars ? checkpoint : HexEncode(Sha256(AsBytes(checkpoint)));
}

std::string Base64Of(const std::string& text) {
  return Base64Encode({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

absl::StatusOr<std::string> SpotFleet(const RunOptions& run, const SpotFileOptions& options) {
  ASSIGN_OR_RETURN(const auto given, TakeEc2(options));
  for (const char* name : {"image", "type", "subnet", "profile", "fleet-role"}) {
    if (!given.contains(name))
      return UsageError("--print spot-fleet also needs --ec2 {}=...; see `millrace run --help`", name);
  }
  TemplateValues values(given);
  values["disk"] = std::stoi(given.at("disk"));
  values["job"] = JobName(run.supervisor.checkpoint);
  values["tag"] = JobTag(run.supervisor.checkpoint);
  values["user-data"] = Base64Of(UserData(run, options));
  if (const auto groups = given.find("security-group"); groups != given.end()) {
    values["security-groups"] = TemplateValues::array();
    for (const absl::string_view group : absl::StrSplit(groups->second, ',', absl::SkipEmpty()))
      values["security-groups"].push_back({{"GroupId", std::string(group)}});
  }
  values["launches"] = TemplateValues::array();
  for (const absl::string_view type : absl::StrSplit(given.at("type"), ',', absl::SkipEmpty())) {
    values["type"] = std::string(type);
    values["launches"].push_back(FillJson(JobTemplate("spot-fleet-launch.json"), values));
  }
  return JsonFile(FillJson(JobTemplate("spot-fleet.json"), values));
}

/// Represents what a URI of S3 names.
struct S3Place {
  std::string bucket;
  std::string key;           // without a '/' at the end
  bool is_folder = false;    // it is a bucket, or its URI ends with '/'
  bool is_selected = false;  // the key is the text before the first wildcard or brace
  auto operator<=>(const S3Place& other) const = default;
};

// Reads the text behind "s3://", up to a character that ends a URI in options: "train=s3://bucket/train,mode=File".
S3Place PlaceAt(const std::string& text, size_t uri) {
  const size_t begin = uri + kS3.size();
  const size_t end = std::min(text.find_first_of(" ,;\"'@#}", begin), text.size());
  const std::string place = text.substr(begin, end - begin);
  const bool is_arn = IsBucketArn(place);
  const size_t slash = is_arn ? ArnLength(place) : std::min(place.find('/'), place.size());
  std::string key = slash < place.size() ? place.substr(slash + 1) : "";
  const size_t wildcard = key.find_first_of("*?[{");
  if (wildcard != std::string::npos) key.resize(wildcard);
  const bool is_selected = wildcard != std::string::npos;
  const bool is_folder = !is_selected && (key.empty() || key.ends_with('/'));
  while (!is_selected && key.ends_with('/')) key.pop_back();
  const std::string bucket = place.substr(0, slash);
  return {is_arn ? CanonicalArn(bucket) : bucket, key, is_folder, is_selected};
}

// Returns the data that the run may read.
std::set<S3Place> PlacesRead(const RunOptions& run) {
  std::set<S3Place> places;
  const auto take = [&places](const std::string& text) {
    for (size_t at = text.find(kS3); at != std::string::npos; at = text.find(kS3, at + 1)) {
      if (S3Place place = PlaceAt(text, at); !place.bucket.empty()) places.insert(std::move(place));
    }
  };
  for (const std::string& word : run.supervisor.command) take(word);
  for (const std::string& channel : run.job.channels) take(channel);
  for (const std::string& parameter : run.job.hyperparameters) take(parameter);
  return places;
}

// A text that is compared with a tag: "${" would begin a variable.
std::string InPolicy(const std::string& text) {
  return absl::StrReplaceAll(text, {{"$", "${$}"}});
}

// Returns the resource of an object, or with "*" at its end of all objects whose keys begin so.
std::string KeyResource(const S3Place& place, const std::string& key) {
  return ObjectResource(place.bucket, InPolicy(key));
}

std::string Below(const S3Place& place) {
  if (place.is_selected) return KeyResource(place, place.key + "*");
  return KeyResource(place, place.key.empty() ? "*" : place.key + "/*");
}

// Returns where the index of a data set is kept beside it (dataset/dataset_place.h). Only the store knows if the URI
// names an object or a folder, so both are covered. Neither covers other data with names that begin alike.
std::vector<std::string> IndexResources(const S3Place& place) {
  const size_t name = place.key.rfind('/') + 1;  // 0 without a '/'
  const std::string folder = place.key.substr(0, name);
  if (place.is_selected) return {KeyResource(place, folder + ".millrace/*")};
  std::vector<std::string> resources = {KeyResource(place, place.key + (place.key.empty() ? "" : "/") + ".millrace/*")};
  if (!place.is_folder)
    resources.push_back(KeyResource(place, folder + ".millrace/" + place.key.substr(name) + ".index*"));
  return resources;
}

std::vector<std::string> DataResources(const S3Place& place) {
  if (place.is_selected || place.is_folder) return {Below(place)};
  return {KeyResource(place, place.key), Below(place)};
}

std::string IamPolicy(const RunOptions& run) {
  const S3Place kept = PlaceAt(run.supervisor.checkpoint, 0);
  std::set<std::string> buckets;
  std::set<std::string> directory_buckets;  // their sessions may do everything
  std::set<std::string> read;
  std::set<std::string> index;
  const auto use = [&](const std::string& bucket) {
    (IsDirectoryBucket(bucket) ? directory_buckets : buckets).insert(BucketResource(bucket));
  };
  use(kept.bucket);
  for (const S3Place& place : PlacesRead(run)) {
    use(place.bucket);
    if (IsDirectoryBucket(place.bucket)) continue;
    for (const std::string& resource : DataResources(place)) read.insert(resource);
    for (const std::string& resource : IndexResources(place)) {
      read.insert(resource);
      index.insert(resource);
    }
  }
  std::vector<std::string> written;
  for (const std::string& uri : {run.job.output, run.job.checkpoints}) {
    if (!uri.starts_with(kS3)) continue;
    const S3Place place = PlaceAt(uri, 0);
    use(place.bucket);
    if (!IsDirectoryBucket(place.bucket)) written.push_back(Below(place));
  }
  TemplateValues values = {{"tag", InPolicy(JobTag(run.supervisor.checkpoint))}};
  if (!buckets.empty()) values["buckets"] = buckets;
  if (!directory_buckets.empty()) values["directory-buckets"] = directory_buckets;
  if (!IsDirectoryBucket(kept.bucket)) values["kept"] = Below(kept);
  if (!read.empty()) values["read"] = read;
  if (!index.empty()) values["index"] = index;
  if (!written.empty()) values["written"] = written;
  if (!run.volumes.empty()) {
    for (const VolumeOptions& volume : run.volumes) values["volumes"].push_back(InPolicy(volume.name));
    // The role may use volumes and snapshots with the tag of a volume, and tags new ones when it makes them. It cannot
    // tag others: it could then read or delete any volume of the account.
    values["volume-statements"] = FillJson(JobTemplate("iam-policy-volumes.json"), values);
  }
  return JsonFile(FillJson(JobTemplate("iam-policy.json"), values));
}

}  // namespace

absl::StatusOr<std::string> SpotFile(const RunOptions& run, const SpotFileOptions& options) {
  if (!run.supervisor.checkpoint.starts_with(kS3)) {
    return UsageError(
        "--print needs --checkpoint s3://BUCKET/JOB, where the next instance finds what this one has done");
  }
  if (!run.job.request.empty())
    return UsageError("--print knows nothing of what the file of --job names; give its channels as --channel");
  RunOptions plain = run;
  while (plain.supervisor.checkpoint.ends_with('/')) plain.supervisor.checkpoint.pop_back();
  if (options.kind == "user-data") return UserData(plain, options);
  return options.kind == "spot-fleet" ? SpotFleet(plain, options) : IamPolicy(plain);
}

}  // namespace millrace
