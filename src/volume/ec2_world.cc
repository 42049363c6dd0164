#include "volume/ec2_world.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "absl/time/clock.h"
#include "aws/xml_document.h"

namespace millrace {

namespace {

// Returns all pages of a description.
template <typename T, typename Parse>
absl::StatusOr<std::vector<T>> DescribeAll(Ec2Client& client, const std::string& action,
                                           Ec2Client::Parameters parameters, Parse parse) {
  constexpr int kMaxPages = 1000;
  std::vector<T> all;
  for (int page = 0; page < kMaxPages; ++page) {
    ASSIGN_OR_RETURN(const std::string answer, client.Call(action, parameters));
    absl::StatusOr<Ec2Page<T>> parsed = parse(answer);
    if (!parsed.ok()) return Annotate(parsed.status(), action);
    for (T& one : parsed->entries) all.push_back(std::move(one));
    if (parsed->next.empty()) return all;
    std::erase_if(parameters, [](const auto& parameter) { return parameter.first == "NextToken"; });
    parameters.emplace_back("NextToken", parsed->next);
  }
  return absl::InternalError(fmt::format("{} does not end", action));
}

Ec2Client::Parameters FilterBy(const std::string& name, const std::vector<std::string>& values) {
  Ec2Client::Parameters parameters{{"Filter.1.Name", name}};
  for (size_t i = 0; i < values.size(); ++i)
    parameters.emplace_back(fmt::format("Filter.1.Value.{}", i + 1), values[i]);
  return parameters;
}

void AddTags(const std::string& prefix, const Ec2Tags& tags, Ec2Client::Parameters& parameters) {
  int i = 0;
  for (const auto& [key, value] : tags) {
    ++i;
    parameters.emplace_back(fmt::format("{}Tag.{}.Key", prefix, i), key);
    parameters.emplace_back(fmt::format("{}Tag.{}.Value", prefix, i), value);
  }
}

// Returns the user's own tags, such as those that count costs.
Ec2Tags UserTags(const Ec2Tags& tags) {
  Ec2Tags kept;
  for (const auto& [key, value] : tags) {
    if (!key.starts_with("aws:") && !key.starts_with("millrace:")) kept[key] = value;
  }
  return kept;
}

absl::StatusOr<std::string> IdIn(const std::string& answer, const char* name) {
  ASSIGN_OR_RETURN(const XmlDocument document, XmlDocument::Parse(answer));
  std::string id(document.root().Text(name));
  if (id.empty()) return absl::InvalidArgumentError(fmt::format("EC2's answer has no {}", name));
  return id;
}

}  // namespace

absl::StatusOr<VolumeSight> Ec2World::LookAtVolumes() {
  VolumeSight sight;
  const std::string by_name = fmt::format("tag:{}", kVolumeNameTag);
  ASSIGN_OR_RETURN(sight.volumes,
                   DescribeAll<Ec2Volume>(client_, "DescribeVolumes", FilterBy(by_name, {goal_.name}), ParseVolumes));
  std::erase_if(sight.volumes,
                [](const Ec2Volume& volume) { return volume.state == "deleting" || volume.state == "deleted"; });
  Ec2Client::Parameters mine = FilterBy(by_name, {goal_.name});
  mine.emplace_back("Owner.1", "self");
  ASSIGN_OR_RETURN(sight.snapshots,
                   DescribeAll<Ec2Snapshot>(client_, "DescribeSnapshots", std::move(mine), ParseSnapshots));
  sight.now = client_.Now();
  return sight;
}

absl::StatusOr<VolumeSight> Ec2World::Look() {
  ASSIGN_OR_RETURN(VolumeSight sight, LookAtVolumes());
  RETURN_IF_ERROR(LookAtInstances(sight));
  if (!goal_.instance.empty()) RETURN_IF_ERROR(LookHere(sight));
  last_ = sight;
  return sight;
}

absl::Status Ec2World::LookAtInstances(VolumeSight& sight) {
  std::set<std::string> ids;
  if (!goal_.instance.empty()) ids.insert(goal_.instance);
  for (const Ec2Volume& volume : sight.volumes) {
    for (const Ec2Attachment& at : volume.attachments) ids.insert(at.instance);
    if (const std::string claimed = ClaimInstance(volume); !claimed.empty()) ids.insert(claimed);
  }
  if (ids.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<Ec2Instance> found,
                   DescribeAll<Ec2Instance>(client_, "DescribeInstances",
                                            FilterBy("instance-id", {ids.begin(), ids.end()}), ParseInstances));
  for (const Ec2Instance& instance : found) {
    sight.instances[instance.id] = instance.state;
    if (instance.id == goal_.instance) sight.taken_devices = instance.devices;
  }
  return absl::OkStatus();
}

absl::Status Ec2World::LookHere(VolumeSight& sight) {
  if (!goal_.path.empty()) {
    ASSIGN_OR_RETURN(sight.mounted_source, disks_.MountedAt(goal_.path));
  }
  for (const Ec2Volume& volume : sight.volumes) {
    for (const Ec2Attachment& at : volume.attachments) {
      if (at.instance != goal_.instance || at.state != "attached") continue;
      LocalVolume local;
      local.device = disks_.FindDevice(volume.id, at.device);
      if (!local.device.empty()) {
        ASSIGN_OR_RETURN(local.content, disks_.ContentOf(local.device));
        local.mounted = local.device == sight.mounted_source;
      }
      sight.here[volume.id] = local;
    }
  }
  return absl::OkStatus();
}

absl::Status Ec2World::Call(const std::string& action, const Ec2Client::Parameters& parameters) {
  return client_.Call(action, parameters).status();
}

absl::Status Ec2World::Tag(const std::string& resource, const Ec2Tags& tags) {
  Ec2Client::Parameters parameters{{"ResourceId.1", resource}};
  AddTags("", tags, parameters);
  return Call("CreateTags", parameters);
}

absl::StatusOr<std::string> Ec2World::CreateVolume(const VolumeAction& action) {
  Ec2Client::Parameters parameters{{"AvailabilityZone", goal_.zone}, {"ClientToken", action.token}};
  Ec2Tags tags = UserTags(action.like.tags);
  if (action.kind == VolumeAction::Kind::kCopy) {
    parameters.emplace_back("SnapshotId", action.snapshot);
    parameters.emplace_back("VolumeType", action.like.type);
    const bool chosen_iops = action.like.type == "gp3" || action.like.type == "io1" || action.like.type == "io2";
    if (chosen_iops && action.like.iops > 0) parameters.emplace_back("Iops", std::to_string(action.like.iops));
    if (action.like.throughput > 0) parameters.emplace_back("Throughput", std::to_string(action.like.throughput));
    tags[std::string(kVolumeClaimTag)] = action.claim;
  } else {
    parameters.emplace_back("Size", std::to_string(*goal_.create_gib));
    parameters.emplace_back("VolumeType", goal_.create_type);
    tags["Name"] = goal_.name;
  }
  tags[std::string(kVolumeNameTag)] = goal_.name;
  tags[std::string(kVolumeStateTag)] = action.state;
  parameters.emplace_back("TagSpecification.1.ResourceType", "volume");
  AddTags("TagSpecification.1.", tags, parameters);
  ASSIGN_OR_RETURN(const std::string answer, client_.Call("CreateVolume", parameters));
  return IdIn(answer, "volumeId");
}

absl::StatusOr<std::string> Ec2World::CreateSnapshot(const VolumeAction& action) {
  Ec2Client::Parameters parameters{{"VolumeId", action.volume},
                                   {"Description", fmt::format("millrace volume move {}", goal_.name)},
                                   {"TagSpecification.1.ResourceType", "snapshot"}};
  Ec2Tags tags;
  for (const Ec2Volume& volume : last_.volumes) {
    if (volume.id == action.volume) tags = UserTags(volume.tags);
  }
  tags[std::string(kVolumeNameTag)] = goal_.name;
  tags[std::string(kSnapshotTag)] = action.claim;
  AddTags("TagSpecification.1.", tags, parameters);
  ASSIGN_OR_RETURN(const std::string answer, client_.Call("CreateSnapshot", parameters));
  return IdIn(answer, "snapshotId");
}

absl::Status Ec2World::Detach(const VolumeAction& action) {
  const auto found = last_.here.find(action.volume);
  if (found != last_.here.end()) {
    if (found->second.device.empty()) {
      return absl::InternalError(fmt::format(
          "{} is attached, and may be mounted: its device has not appeared; if this is a container, name the folder of "
          "the host's devices by --dev",
          action.volume));
    }
    RETURN_IF_ERROR(disks_.UnmountAll(found->second.device));
  }
  return Call("DetachVolume", {{"VolumeId", action.volume}, {"InstanceId", goal_.instance}});
}

absl::StatusOr<std::string> Ec2World::Do(const VolumeAction& action) {
  using Kind = VolumeAction::Kind;
  absl::Status status;
  switch (action.kind) {
    case Kind::kCreateBlank:
    case Kind::kCopy:
      return CreateVolume(action);
    case Kind::kSnapshot:
      return CreateSnapshot(action);
    case Kind::kClaim:
      status = Tag(action.volume,
                   {{std::string(kVolumeClaimTag), action.claim}, {std::string(kVolumeIdTag), action.volume}});
      break;
    case Kind::kRelease:
      status = Tag(action.volume, {{std::string(kVolumeClaimTag), ""}});
      break;
    case Kind::kCommit:
      status = Tag(action.volume, {{std::string(kVolumeStateTag), action.state},
                                   {std::string(kVolumeClaimTag), action.claim},
                                   {std::string(kVolumeIdTag), action.volume}});
      break;
    case Kind::kAttach:
      status = Call("AttachVolume",
                    {{"VolumeId", action.volume}, {"InstanceId", goal_.instance}, {"Device", action.device}});
      break;
    case Kind::kDetach:
      status = Detach(action);
      break;
    case Kind::kMakeFileSystem:
      status = disks_.MakeFileSystem(action.device);
      break;
    case Kind::kMount:
      status = disks_.Mount(action.device, goal_.path);
      break;
    case Kind::kDeleteVolume:
      status = Call("DeleteVolume", {{"VolumeId", action.volume}});
      break;
    case Kind::kDeleteSnapshot:
      status = Call("DeleteSnapshot", {{"SnapshotId", action.snapshot}});
      break;
    case Kind::kWait:
    case Kind::kDone:
    case Kind::kFail:
      break;
  }
  // An object that is to be deleted may be gone.
  const bool deletes = action.kind == Kind::kDeleteVolume || action.kind == Kind::kDeleteSnapshot;
  if (deletes && absl::IsNotFound(status)) return std::string();
  if (!status.ok()) return status;
  return std::string();
}

absl::Time Ec2World::Now() {
  return absl::Now();
}

void Ec2World::Sleep(absl::Duration time) {
  absl::SleepFor(time);
}

}  // namespace millrace
