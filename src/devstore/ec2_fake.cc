#include "devstore/ec2_fake.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "devstore/ec2_answer.h"

namespace millrace {

namespace {

using StringMap = std::map<std::string, std::string>;
namespace fs = std::filesystem;

}  // namespace

absl::StatusOr<std::string> Ec2Fake::Do(const Ec2Query& query) {
  struct Known {
    std::string_view name;
    Result (Ec2Fake::*run)(const Ec2Query&);
    std::vector<std::string_view> required;
    std::vector<std::string_view> others;
  };
  static const std::vector<Known> kActions = {
      {"RunInstances",
       &Ec2Fake::RunInstances,
       {"ImageId", "MinCount", "MaxCount", "Placement.AvailabilityZone"},
       {"InstanceType", "ClientToken", "TagSpecification.ResourceType", "TagSpecification.Tag.Key",
        "TagSpecification.Tag.Value"}},
      {"TerminateInstances", &Ec2Fake::TerminateInstances, {"InstanceId"}, {}},
      {"DescribeInstances", &Ec2Fake::DescribeInstances, {}, {"InstanceId", "Filter.Name", "Filter.Value"}},
      {"CreateVolume",
       &Ec2Fake::CreateVolume,
       {"AvailabilityZone"},
       {"Size", "SnapshotId", "VolumeType", "Iops", "Throughput", "ClientToken", "TagSpecification.ResourceType",
        "TagSpecification.Tag.Key", "TagSpecification.Tag.Value"}},
      {"DeleteVolume", &Ec2Fake::DeleteVolume, {"VolumeId"}, {}},
      {"DescribeVolumes", &Ec2Fake::DescribeVolumes, {}, {"VolumeId", "Filter.Name", "Filter.Value"}},
      {"AttachVolume", &Ec2Fake::AttachVolume, {"VolumeId", "InstanceId", "Device"}, {}},
      {"DetachVolume", &Ec2Fake::DetachVolume, {"VolumeId"}, {"InstanceId", "Device"}},
      {"CreateSnapshot",
       &Ec2Fake::CreateSnapshot,
       {"VolumeId"},
       {"Description", "TagSpecification.ResourceType", "TagSpecification.Tag.Key", "TagSpecification.Tag.Value"}},
      {"DeleteSnapshot", &Ec2Fake::DeleteSnapshot, {"SnapshotId"}, {}},
      {"DescribeSnapshots", &Ec2Fake::DescribeSnapshots, {}, {"SnapshotId", "Owner", "Filter.Name", "Filter.Value"}},
      {"CreateTags", &Ec2Fake::CreateTags, {"ResourceId"}, {"Tag.Key", "Tag.Value"}},
  };
  for (const Known& known : kActions) {
    if (known.name != query.action()) continue;
    RETURN_IF_ERROR(query.CheckNames(known.required, known.others));
    std::lock_guard lock(mutex_);
    return (this->*known.run)(query);
  }
  return Ec2Refusal("InvalidAction", "The action {} is not valid for this web service.", query.action());
}

std::optional<std::string> Ec2Fake::Metadata(const std::string& instance, std::string_view name) {
  std::lock_guard lock(mutex_);
  const auto found = instances_.find(instance);
  if (found == instances_.end() || found->second.state == "terminated") return std::nullopt;
  if (name == "instance-id") return instance;
  if (name == "instance-type") return found->second.type;
  if (name == "placement/availability-zone") return found->second.zone;
  if (name == "placement/region") return region_;
  if (name == "spot/instance-action" && found->second.interruption) {
    return fmt::format("{{\"action\": \"terminate\", \"time\": \"{}\"}}",
                       absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", *found->second.interruption, absl::UTCTimeZone()));
  }
  return std::nullopt;
}

bool Ec2Fake::Interrupt(const std::string& instance, absl::Time at) {
  std::lock_guard lock(mutex_);
  const auto found = instances_.find(instance);
  if (found == instances_.end() || found->second.state == "terminated") return false;
  found->second.interruption = at;
  return true;
}

std::string Ec2Fake::NewId(std::string_view kind) {
  return fmt::format("{}-{:017x}", kind, ++last_id_);
}

std::string Ec2Fake::FolderOf(std::string_view kind, const std::string& id) const {
  return fmt::format("{}/{}/{}", folder_, kind, id);
}

absl::Status Ec2Fake::CheckZone(const std::string& zone) const {
  if (zone == region_ + "a" || zone == region_ + "b" || zone == region_ + "c") return absl::OkStatus();
  return Ec2Refusal("InvalidParameterValue", "Invalid availability zone: [{}]", zone);
}

absl::StatusOr<Ec2Fake::FakeInstance*> Ec2Fake::FindInstance(const std::string& id) {
  const auto found = instances_.find(id);
  if (found == instances_.end())
    return Ec2Refusal("InvalidInstanceID.NotFound", "The instance ID '{}' does not exist", id);
  return &found->second;
}

absl::Status Ec2Fake::CopyContents(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::create_directories(to, error);
  if (!error && !from.empty()) fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::copy_symlinks, error);
  if (!error) return absl::OkStatus();
  return Ec2Fault("InternalError", fmt::format("{}: {}", to, error.message()), 500);
}

absl::StatusOr<StringMap> Ec2Fake::TagsFor(const Ec2Query& query, std::string_view kind) const {
  const std::string type = query.Value("TagSpecification.1.ResourceType");
  StringMap tags = query.Tags("TagSpecification.1.");
  if (tags.empty() && type.empty()) return tags;
  if (type != kind || tags.empty()) {
    return Ec2Refusal("InvalidParameterValue", "'{}' is not a valid taggable resource type for this operation.", type);
  }
  for (const auto& [key, value] : tags) {
    if (key.empty() || key.starts_with("aws:"))
      return Ec2Refusal("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved: {}", key);
  }
  return tags;
}

Ec2Fake::Result Ec2Fake::RunInstances(const Ec2Query& query) {
  RETURN_IF_ERROR(CheckZone(query.Value("Placement.AvailabilityZone")));
  if (query.Value("MinCount") != "1" || query.Value("MaxCount") != "1")
    return Ec2Fault("Unsupported", "devstore runs one instance a call");
  FakeInstance instance{.id = NewId("i"),
                        .zone = query.Value("Placement.AvailabilityZone"),
                        .type = query.Has("InstanceType") ? query.Value("InstanceType") : "m1.small",
                        .state = "running",
                        .looks = 0,
                        .interruption = std::nullopt,
                        .tags = {}};
  ASSIGN_OR_RETURN(instance.tags, TagsFor(query, "instance"));
  RETURN_IF_ERROR(CopyContents("", FolderOf("instances", instance.id) + "/disk/by-id"));
  const std::string id = instance.id;
  const std::string placement = Ec2Leaf("availabilityZone", instance.zone);
  instances_[id] = std::move(instance);
  return Ec2Answer("RunInstances",
                   fmt::format("<instancesSet><item>{}<instanceState><code>0</code><name>pending</name></instanceState>"
                               "<placement>{}</placement></item></instancesSet>",
                               Ec2Leaf("instanceId", id), placement));
}

Ec2Fake::Result Ec2Fake::TerminateInstances(const Ec2Query& query) {
  std::string items;
  for (const std::string& id : query.List("InstanceId")) {
    ASSIGN_OR_RETURN(FakeInstance* const instance, FindInstance(id));
    instance->state = looks_ > 0 ? "shutting-down" : "terminated";
    instance->looks = looks_;
    for (auto& [volume_id, volume] : volumes_) {
      if (volume.attachment && volume.attachment->instance == id && looks_ == 0) Detach(volume);
    }
    items += fmt::format("<item>{}<currentState><code>32</code>{}</currentState></item>", Ec2Leaf("instanceId", id),
                         Ec2Leaf("name", instance->state));
  }
  return Ec2Answer("TerminateInstances", fmt::format("<instancesSet>{}</instancesSet>", items));
}

Ec2Fake::Result Ec2Fake::DescribeInstances(const Ec2Query& query) {
  const std::vector<Ec2Query::Filter> filters = query.Filters();
  RETURN_IF_ERROR(CheckFilters(filters, {"instance-id", "availability-zone", "instance-state-name"}));
  const std::vector<std::string> ids = query.List("InstanceId");
  for (const std::string& id : ids) RETURN_IF_ERROR(FindInstance(id).status());
  std::string items;
  for (auto& [id, instance] : instances_) {
    if (instance.state == "shutting-down" && instance.looks-- <= 0) {
      instance.state = "terminated";
      for (auto& [volume_id, volume] : volumes_) {
        if (volume.attachment && volume.attachment->instance == id) Detach(volume);
      }
    }
    FilterValues values{
        {"instance-id", id}, {"availability-zone", instance.zone}, {"instance-state-name", instance.state}};
    AddTagValues(instance.tags, values);
    if (!IsAskedFor(ids, id) || !PassesFilters(filters, values)) continue;
    std::string devices;
    for (const auto& [volume_id, volume] : volumes_) {
      if (!volume.attachment || volume.attachment->instance != id) continue;
      devices += fmt::format("<item>{}<ebs>{}{}</ebs></item>", Ec2Leaf("deviceName", volume.attachment->device),
                             Ec2Leaf("volumeId", volume_id), Ec2Leaf("status", volume.attachment->state));
    }
    items += fmt::format(
        "<item><reservationId>r-1</reservationId><instancesSet><item>{}{}<instanceState>{}</instanceState>"
        "<placement>{}</placement><blockDeviceMapping>{}</blockDeviceMapping>{}</item></instancesSet></item>",
        Ec2Leaf("instanceId", id), Ec2Leaf("instanceType", instance.type), Ec2Leaf("name", instance.state),
        Ec2Leaf("availabilityZone", instance.zone), devices, Ec2TagSet(instance.tags));
  }
  return Ec2Answer("DescribeInstances", fmt::format("<reservationSet>{}</reservationSet>", items));
}

Ec2Fake::Result Ec2Fake::CreateTags(const Ec2Query& query) {
  const StringMap tags = query.Tags("");
  if (tags.empty()) return Ec2Fault("MissingParameter", "The request must contain the parameter Tag");
  const std::vector<std::string> ids = query.List("ResourceId");
  const auto tags_of = [this](const std::string& id) -> StringMap* {
    if (const auto found = volumes_.find(id); found != volumes_.end()) return &found->second.tags;
    if (const auto found = snapshots_.find(id); found != snapshots_.end()) return &found->second.tags;
    if (const auto found = instances_.find(id); found != instances_.end()) return &found->second.tags;
    return nullptr;
  };
  for (const std::string& id : ids) {
    if (tags_of(id) == nullptr) return Ec2Refusal("InvalidID", "The ID '{}' is not valid", id);
  }
  for (const std::string& id : ids) {
    for (const auto& [key, value] : tags) (*tags_of(id))[key] = value;
  }
  return Ec2True("CreateTags");
}

}  // namespace millrace
