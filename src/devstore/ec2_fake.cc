#include "devstore/ec2_fake.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "base/number.h"
#include "s3/xml.h"

namespace millrace {

namespace {

using StringMap = std::map<std::string, std::string>;
namespace fs = std::filesystem;

std::string Leaf(std::string_view name, std::string_view text) {
  return fmt::format("<{}>{}</{}>", name, XmlEscape(text), name);
}

std::string Leaf(std::string_view name, uint64_t value) {
  return Leaf(name, std::to_string(value));
}

std::string TagSet(const StringMap& tags) {
  std::string out;
  for (const auto& [key, value] : tags) out += fmt::format("<item>{}{}</item>", Leaf("key", key), Leaf("value", value));
  return fmt::format("<tagSet>{}</tagSet>", out);
}

std::string Answer(std::string_view action, std::string_view inside) {
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{0}Response xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">"
      "<requestId>00000000-0000-0000-0000-000000000000</requestId>{1}</{0}Response>",
      action, inside);
}

std::string True(std::string_view action) {
  return Answer(action, "<return>true</return>");
}

void AddTagValues(const StringMap& tags, FilterValues& values) {
  for (const auto& [key, value] : tags) {
    values.emplace("tag:" + key, value);
    values.emplace("tag-key", key);
  }
}

/// A description without ids is of all.
bool IsAskedFor(const std::vector<std::string>& ids, const std::string& id) {
  return ids.empty() || std::find(ids.begin(), ids.end(), id) != ids.end();
}

absl::Status CopyContents(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::create_directories(to, error);
  if (!error && !from.empty()) fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::copy_symlinks, error);
  if (!error) return absl::OkStatus();
  return Ec2Fault("InternalError", fmt::format("{}: {}", to, error.message()), 500);
}

void RemoveFolder(const std::string& folder) {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

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

std::string Ec2Fake::LinkOf(const FakeVolume& volume) const {
  std::string compact = volume.id;
  std::erase(compact, '-');
  return fmt::format("{}/disk/by-id/nvme-Amazon_Elastic_Block_Store_{}",
                     FolderOf("instances", volume.attachment->instance), compact);
}

absl::Status Ec2Fake::CheckZone(const std::string& zone) const {
  if (zone == region_ + "a" || zone == region_ + "b" || zone == region_ + "c") return absl::OkStatus();
  return Ec2Refusal("InvalidParameterValue", "Invalid availability zone: [{}]", zone);
}

absl::StatusOr<Ec2Fake::FakeVolume*> Ec2Fake::FindVolume(const std::string& id) {
  const auto found = volumes_.find(id);
  if (found == volumes_.end()) return Ec2Refusal("InvalidVolume.NotFound", "The volume '{}' does not exist.", id);
  return &found->second;
}

absl::StatusOr<Ec2Fake::FakeInstance*> Ec2Fake::FindInstance(const std::string& id) {
  const auto found = instances_.find(id);
  if (found == instances_.end())
    return Ec2Refusal("InvalidInstanceID.NotFound", "The instance ID '{}' does not exist", id);
  return &found->second;
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
  const std::string placement = Leaf("availabilityZone", instance.zone);
  instances_[id] = std::move(instance);
  return Answer("RunInstances",
                fmt::format("<instancesSet><item>{}<instanceState><code>0</code><name>pending</name></instanceState>"
                            "<placement>{}</placement></item></instancesSet>",
                            Leaf("instanceId", id), placement));
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
    items += fmt::format("<item>{}<currentState><code>32</code>{}</currentState></item>", Leaf("instanceId", id),
                         Leaf("name", instance->state));
  }
  return Answer("TerminateInstances", fmt::format("<instancesSet>{}</instancesSet>", items));
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
      devices += fmt::format("<item>{}<ebs>{}{}</ebs></item>", Leaf("deviceName", volume.attachment->device),
                             Leaf("volumeId", volume_id), Leaf("status", volume.attachment->state));
    }
    items += fmt::format(
        "<item><reservationId>r-1</reservationId><instancesSet><item>{}{}<instanceState>{}</instanceState>"
        "<placement>{}</placement><blockDeviceMapping>{}</blockDeviceMapping>{}</item></instancesSet></item>",
        Leaf("instanceId", id), Leaf("instanceType", instance.type), Leaf("name", instance.state),
        Leaf("availabilityZone", instance.zone), devices, TagSet(instance.tags));
  }
  return Answer("DescribeInstances", fmt::format("<reservationSet>{}</reservationSet>", items));
}

absl::Status Ec2Fake::CheckNewVolume(const Ec2Query& query) {
  RETURN_IF_ERROR(CheckZone(query.Value("AvailabilityZone")));
  constexpr std::array<std::string_view, 7> kTypes = {"gp2", "gp3", "io1", "io2", "st1", "sc1", "standard"};
  const std::string type = query.Has("VolumeType") ? query.Value("VolumeType") : "gp2";
  if (std::find(kTypes.begin(), kTypes.end(), type) == kTypes.end())
    return Ec2Refusal("InvalidParameterValue", "Invalid volume type: {}", type);
  const bool provisioned = type == "io1" || type == "io2";
  if (provisioned && !query.Has("Iops"))
    return Ec2Refusal("MissingParameter", "The parameter iops must be specified for {} volumes.", type);
  if (!provisioned && type != "gp3" && query.Has("Iops"))
    return Ec2Refusal("InvalidParameterCombination", "The parameter iops is not supported for {}.", type);
  if (type != "gp3" && query.Has("Throughput")) {
    return Ec2Refusal("InvalidParameterCombination", "The parameter throughput is not supported for {} volumes.", type);
  }
  uint64_t least = 1;
  if (query.Has("SnapshotId")) {
    const auto snapshot = snapshots_.find(query.Value("SnapshotId"));
    if (snapshot == snapshots_.end()) {
      return Ec2Refusal("InvalidSnapshot.NotFound", "The snapshot '{}' does not exist.", query.Value("SnapshotId"));
    }
    if (snapshot->second.state != "completed")
      return Ec2Refusal("IncorrectState", "Snapshot is in invalid state - {}", snapshot->second.state);
    least = snapshot->second.size;
  } else if (!query.Has("Size")) {
    return Ec2Fault("MissingParameter", "The request must contain the parameter size or snapshotId");
  }
  if (!query.Has("Size")) return absl::OkStatus();
  const std::optional<uint64_t> size = ParseNumber<uint64_t>(query.Value("Size"));
  if (size && *size >= least && *size <= 65'536) return absl::OkStatus();
  return Ec2Refusal("InvalidParameterValue", "Volume of {} GiB is too small or too large", query.Value("Size"));
}

Ec2Fake::Result Ec2Fake::CreateVolume(const Ec2Query& query) {
  const std::string token = query.Value("ClientToken");
  std::string parameters;
  for (const char* name : {"AvailabilityZone", "Size", "SnapshotId", "VolumeType", "Iops", "Throughput"})
    parameters += query.Value(name) + "\n";
  if (token.size() > 64) return Ec2Fault("InvalidParameterValue", "The client token is longer than 64 characters.");
  if (const auto made = made_.find(token); !token.empty() && made != made_.end()) {
    if (made->second.parameters != parameters) {
      return Ec2Fault("IdempotentParameterMismatch",
                      "The client token was used with other parameters in an earlier request.");
    }
    if (const auto found = volumes_.find(made->second.volume); found != volumes_.end())
      return Answer("CreateVolume", VolumeFields(found->second));
    return Ec2Fault("InvalidVolume.NotFound", "The volume of that client token was deleted.");
  }
  RETURN_IF_ERROR(CheckNewVolume(query));
  FakeVolume volume{.id = NewId("vol"),
                    .zone = query.Value("AvailabilityZone"),
                    .state = looks_ > 0 ? "creating" : "available",
                    .snapshot = query.Value("SnapshotId"),
                    .type = query.Has("VolumeType") ? query.Value("VolumeType") : "gp2",
                    .token = token,
                    .size = ParseNumber<uint64_t>(query.Value("Size")).value_or(0),
                    .iops = ParseNumber<uint64_t>(query.Value("Iops")).value_or(0),
                    .throughput = ParseNumber<uint64_t>(query.Value("Throughput")).value_or(0),
                    .looks = looks_,
                    .attachment = std::nullopt,
                    .tags = {}};
  ASSIGN_OR_RETURN(volume.tags, TagsFor(query, "volume"));
  if (volume.size == 0) volume.size = snapshots_[volume.snapshot].size;
  if (volume.type == "gp3" && volume.iops == 0) volume.iops = 3000;
  if (volume.type == "gp3" && volume.throughput == 0) volume.throughput = 125;
  RETURN_IF_ERROR(CopyContents(volume.snapshot.empty() ? "" : FolderOf("snapshots", volume.snapshot),
                               FolderOf("volumes", volume.id)));
  if (!token.empty()) made_[token] = {parameters, volume.id};
  const std::string fields = VolumeFields(volume);
  volumes_[volume.id] = std::move(volume);
  return Answer("CreateVolume", fields);
}

Ec2Fake::Result Ec2Fake::DeleteVolume(const Ec2Query& query) {
  ASSIGN_OR_RETURN(FakeVolume* const volume, FindVolume(query.Value("VolumeId")));
  if (volume->attachment) {
    return Ec2Refusal("VolumeInUse", "Volume {} is currently attached to {}", volume->id, volume->attachment->instance);
  }
  if (volume->state != "available") {
    return Ec2Refusal("IncorrectState", "The volume '{}' is '{}'", volume->id, volume->state);
  }
  RemoveFolder(FolderOf("volumes", volume->id));
  if (looks_ == 0) {
    volumes_.erase(volume->id);
  } else {
    volume->state = "deleting";
    volume->looks = looks_;
  }
  return True("DeleteVolume");
}

// Counts one look at a volume, which ends its transient states.
void Ec2Fake::Pass(FakeVolume& volume) {
  if (volume.state == "creating" && volume.looks-- <= 0) volume.state = "available";
  if (!volume.attachment || volume.attachment->looks-- > 0) return;
  if (volume.attachment->state == "attaching") volume.attachment->state = "attached";
  if (volume.attachment->state == "detaching") Detach(volume);
}

void Ec2Fake::Detach(FakeVolume& volume) {
  std::error_code ignored;
  fs::remove(LinkOf(volume), ignored);
  volume.attachment.reset();
  volume.state = "available";
}

std::string Ec2Fake::VolumeFields(const FakeVolume& volume) const {
  std::string attachments;
  if (volume.attachment) {
    attachments = fmt::format("<item>{}{}{}{}</item>", Leaf("volumeId", volume.id),
                              Leaf("instanceId", volume.attachment->instance),
                              Leaf("device", volume.attachment->device), Leaf("status", volume.attachment->state));
  }
  std::string fields = Leaf("volumeId", volume.id) + Leaf("size", volume.size) + Leaf("snapshotId", volume.snapshot) +
                       Leaf("availabilityZone", volume.zone) + Leaf("status", volume.state) +
                       Leaf("createTime", "2026-01-01T00:00:00.000Z") +
                       fmt::format("<attachmentSet>{}</attachmentSet>", attachments) + TagSet(volume.tags) +
                       Leaf("volumeType", volume.type) + Leaf("encrypted", "false");
  if (volume.iops > 0) fields += Leaf("iops", volume.iops);
  if (volume.throughput > 0) fields += Leaf("throughput", volume.throughput);
  return fields;
}

Ec2Fake::Result Ec2Fake::DescribeVolumes(const Ec2Query& query) {
  const std::vector<Ec2Query::Filter> filters = query.Filters();
  RETURN_IF_ERROR(CheckFilters(filters, {"volume-id", "status", "availability-zone", "attachment.instance-id"}));
  const std::vector<std::string> ids = query.List("VolumeId");
  for (auto at = volumes_.begin(); at != volumes_.end();)
    at = at->second.state == "deleting" && at->second.looks-- <= 0 ? volumes_.erase(at) : std::next(at);
  for (const std::string& id : ids) RETURN_IF_ERROR(FindVolume(id).status());
  std::string items;
  for (auto& [id, volume] : volumes_) {
    FilterValues values{{"volume-id", id}, {"availability-zone", volume.zone}};
    AddTagValues(volume.tags, values);
    if (!IsAskedFor(ids, id)) continue;
    Pass(volume);
    values.emplace("status", volume.state);
    if (volume.attachment) values.emplace("attachment.instance-id", volume.attachment->instance);
    if (PassesFilters(filters, values)) items += fmt::format("<item>{}</item>", VolumeFields(volume));
  }
  return Answer("DescribeVolumes", fmt::format("<volumeSet>{}</volumeSet>", items));
}

Ec2Fake::Result Ec2Fake::AttachVolume(const Ec2Query& query) {
  ASSIGN_OR_RETURN(FakeVolume* const volume, FindVolume(query.Value("VolumeId")));
  ASSIGN_OR_RETURN(const FakeInstance* const instance, FindInstance(query.Value("InstanceId")));
  const std::string device = query.Value("Device");
  if (volume->attachment) return Ec2Refusal("VolumeInUse", "{} is already attached to an instance", volume->id);
  if (volume->state != "available") return Ec2Refusal("IncorrectState", "Volume {} is not 'available'", volume->id);
  if (instance->state != "running")
    return Ec2Refusal("IncorrectState", "Instance '{}' is not 'running'.", instance->id);
  if (instance->zone != volume->zone) {
    return Ec2Refusal("InvalidVolume.ZoneMismatch",
                      "The volume '{}' is not in the same availability zone as instance '{}'", volume->id,
                      instance->id);
  }
  if (!device.starts_with("/dev/sd") || device.size() != 8 || device.back() < 'f' || device.back() > 'p') {
    return Ec2Refusal("InvalidParameterValue",
                      "Value ({}) for parameter device is invalid. {} is not a valid EBS device name.", device, device);
  }
  for (const auto& [id, other] : volumes_) {
    if (!other.attachment || other.attachment->instance != instance->id || other.attachment->device != device) continue;
    return Ec2Refusal("InvalidParameterValue",
                      "Invalid value '{}' for unixDevice. Attachment point {} is already in use", device, device);
  }
  volume->state = "in-use";
  volume->attachment = FakeAttachment{instance->id, device, looks_ > 0 ? "attaching" : "attached", looks_};
  std::error_code error;
  fs::create_directory_symlink(fs::absolute(FolderOf("volumes", volume->id)), LinkOf(*volume), error);
  if (error) return Ec2Fault("InternalError", fmt::format("{}: {}", LinkOf(*volume), error.message()), 500);
  return Answer("AttachVolume", Leaf("volumeId", volume->id) + Leaf("instanceId", instance->id) +
                                    Leaf("device", device) + Leaf("status", "attaching"));
}

Ec2Fake::Result Ec2Fake::DetachVolume(const Ec2Query& query) {
  ASSIGN_OR_RETURN(FakeVolume* const volume, FindVolume(query.Value("VolumeId")));
  const std::string instance = query.Value("InstanceId");
  if (!volume->attachment || volume->attachment->state == "detaching")
    return Ec2Refusal("IncorrectState", "Volume '{}' is in the 'available' state.", volume->id);
  if (!instance.empty() && volume->attachment->instance != instance) {
    return Ec2Refusal("InvalidAttachment.NotFound", "The volume '{}' is not attached to instance '{}'.", volume->id,
                      instance);
  }
  const std::string device = volume->attachment->device;
  const std::string holder = volume->attachment->instance;
  if (looks_ == 0) {
    Detach(*volume);
  } else {
    volume->attachment->state = "detaching";
    volume->attachment->looks = looks_;
  }
  return Answer("DetachVolume", Leaf("volumeId", volume->id) + Leaf("instanceId", holder) + Leaf("device", device) +
                                    Leaf("status", "detaching"));
}

Ec2Fake::Result Ec2Fake::CreateSnapshot(const Ec2Query& query) {
  ASSIGN_OR_RETURN(const FakeVolume* const volume, FindVolume(query.Value("VolumeId")));
  if (volume->state != "available" && volume->state != "in-use")
    return Ec2Refusal("IncorrectState", "Volume '{}' is '{}'", volume->id, volume->state);
  FakeSnapshot snapshot{.id = NewId("snap"),
                        .volume = volume->id,
                        .state = looks_ > 0 ? "pending" : "completed",
                        .started = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()),
                        .size = volume->size,
                        .looks = looks_,
                        .tags = {}};
  ASSIGN_OR_RETURN(snapshot.tags, TagsFor(query, "snapshot"));
  RETURN_IF_ERROR(CopyContents(FolderOf("volumes", volume->id), FolderOf("snapshots", snapshot.id)));
  const std::string fields = Leaf("snapshotId", snapshot.id) + Leaf("volumeId", snapshot.volume) +
                             Leaf("status", "pending") + Leaf("volumeSize", snapshot.size) + TagSet(snapshot.tags);
  snapshots_[snapshot.id] = std::move(snapshot);
  return Answer("CreateSnapshot", fields);
}

Ec2Fake::Result Ec2Fake::DeleteSnapshot(const Ec2Query& query) {
  const std::string id = query.Value("SnapshotId");
  if (snapshots_.erase(id) == 0) return Ec2Refusal("InvalidSnapshot.NotFound", "The snapshot '{}' does not exist.", id);
  RemoveFolder(FolderOf("snapshots", id));
  return True("DeleteSnapshot");
}

Ec2Fake::Result Ec2Fake::DescribeSnapshots(const Ec2Query& query) {
  const std::vector<Ec2Query::Filter> filters = query.Filters();
  RETURN_IF_ERROR(CheckFilters(filters, {"snapshot-id", "status", "volume-id"}));
  const std::vector<std::string> owners = query.List("Owner");
  if (!owners.empty() && owners != std::vector<std::string>{"self"})
    return Ec2Fault("InvalidParameterValue", "devstore knows the owner self alone");
  const std::vector<std::string> ids = query.List("SnapshotId");
  std::string items;
  for (auto& [id, snapshot] : snapshots_) {
    if (!IsAskedFor(ids, id)) continue;
    const bool pending = snapshot.state == "pending" && snapshot.looks-- > 0;
    if (!pending) snapshot.state = "completed";
    FilterValues values{{"snapshot-id", id}, {"status", snapshot.state}, {"volume-id", snapshot.volume}};
    AddTagValues(snapshot.tags, values);
    if (!PassesFilters(filters, values)) continue;
    items += fmt::format("<item>{}{}{}{}{}{}{}</item>", Leaf("snapshotId", id), Leaf("volumeId", snapshot.volume),
                         Leaf("status", snapshot.state), Leaf("startTime", snapshot.started),
                         Leaf("progress", pending ? "40%" : "100%"), Leaf("volumeSize", snapshot.size),
                         TagSet(snapshot.tags));
  }
  return Answer("DescribeSnapshots", fmt::format("<snapshotSet>{}</snapshotSet>", items));
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
  return True("CreateTags");
}

}  // namespace millrace
