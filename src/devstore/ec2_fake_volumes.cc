#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "base/number.h"
#include "devstore/ec2_answer.h"
#include "devstore/ec2_fake.h"

// The calls of Ec2Fake about volumes and their snapshots.

namespace millrace {

namespace {

namespace fs = std::filesystem;

void RemoveFolder(const std::string& folder) {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

}  // namespace

std::string Ec2Fake::LinkOf(const FakeVolume& volume) const {
  std::string compact = volume.id;
  std::erase(compact, '-');
  return fmt::format("{}/disk/by-id/nvme-Amazon_Elastic_Block_Store_{}",
                     FolderOf("instances", volume.attachment->instance), compact);
}

absl::StatusOr<Ec2Fake::FakeVolume*> Ec2Fake::FindVolume(const std::string& id) {
  const auto found = volumes_.find(id);
  if (found == volumes_.end()) return Ec2Refusal("InvalidVolume.NotFound", "The volume '{}' does not exist.", id);
  return &found->second;
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
      return Ec2Answer("CreateVolume", VolumeFields(found->second));
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
  return Ec2Answer("CreateVolume", fields);
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
  return Ec2True("DeleteVolume");
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
    attachments = fmt::format(
        "<item>{}{}{}{}</item>", Ec2Leaf("volumeId", volume.id), Ec2Leaf("instanceId", volume.attachment->instance),
        Ec2Leaf("device", volume.attachment->device), Ec2Leaf("status", volume.attachment->state));
  }
  std::string fields = Ec2Leaf("volumeId", volume.id) + Ec2Leaf("size", volume.size) +
                       Ec2Leaf("snapshotId", volume.snapshot) + Ec2Leaf("availabilityZone", volume.zone) +
                       Ec2Leaf("status", volume.state) + Ec2Leaf("createTime", "2026-01-01T00:00:00.000Z") +
                       fmt::format("<attachmentSet>{}</attachmentSet>", attachments) + Ec2TagSet(volume.tags) +
                       Ec2Leaf("volumeType", volume.type) + Ec2Leaf("encrypted", "false");
  if (volume.iops > 0) fields += Ec2Leaf("iops", volume.iops);
  if (volume.throughput > 0) fields += Ec2Leaf("throughput", volume.throughput);
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
  return Ec2Answer("DescribeVolumes", fmt::format("<volumeSet>{}</volumeSet>", items));
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
  return Ec2Answer("AttachVolume", Ec2Leaf("volumeId", volume->id) + Ec2Leaf("instanceId", instance->id) +
                                       Ec2Leaf("device", device) + Ec2Leaf("status", "attaching"));
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
  return Ec2Answer("DetachVolume", Ec2Leaf("volumeId", volume->id) + Ec2Leaf("instanceId", holder) +
                                       Ec2Leaf("device", device) + Ec2Leaf("status", "detaching"));
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
  const std::string fields = Ec2Leaf("snapshotId", snapshot.id) + Ec2Leaf("volumeId", snapshot.volume) +
                             Ec2Leaf("status", "pending") + Ec2Leaf("volumeSize", snapshot.size) +
                             Ec2TagSet(snapshot.tags);
  snapshots_[snapshot.id] = std::move(snapshot);
  return Ec2Answer("CreateSnapshot", fields);
}

Ec2Fake::Result Ec2Fake::DeleteSnapshot(const Ec2Query& query) {
  const std::string id = query.Value("SnapshotId");
  if (snapshots_.erase(id) == 0) return Ec2Refusal("InvalidSnapshot.NotFound", "The snapshot '{}' does not exist.", id);
  RemoveFolder(FolderOf("snapshots", id));
  return Ec2True("DeleteSnapshot");
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
    items += fmt::format("<item>{}{}{}{}{}{}{}</item>", Ec2Leaf("snapshotId", id), Ec2Leaf("volumeId", snapshot.volume),
                         Ec2Leaf("status", snapshot.state), Ec2Leaf("startTime", snapshot.started),
                         Ec2Leaf("progress", pending ? "40%" : "100%"), Ec2Leaf("volumeSize", snapshot.size),
                         Ec2TagSet(snapshot.tags));
  }
  return Ec2Answer("DescribeSnapshots", fmt::format("<snapshotSet>{}</snapshotSet>", items));
}

}  // namespace millrace
