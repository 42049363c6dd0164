#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "aws/settings.h"
#include "base/crypto.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/usage.h"
#include "cli/volume_commands.h"
#include "net/runtime.h"
#include "volume/ec2_world.h"

namespace millrace::cli {

namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr size_t kMaxTagValue = 256;

struct VolumeCommandFlags {
  VolumeFlags volume;
  std::string pattern = "*";
  bool dry_run = false;
  bool json = false;
};

void SayVolume(const std::string& text) {
  PrintError("millrace volume: {}\n", Printable(text));
}

absl::Status CheckVolumeName(const std::string& name) {
  if (!name.empty() && name.size() <= kMaxTagValue && name.find_first_of("*?\\") == std::string::npos)
    return absl::OkStatus();
  return AsUsage(absl::InvalidArgumentError(
      fmt::format("'{}' is no name of a volume; give 1 to {} characters without *, ? and \\", name, kMaxTagValue)));
}

/// What all of these commands need.
class VolumeSession {
 public:
  // `here`: whether it is about this instance, and not only about EC2.
  absl::Status Open(const VolumeFlags& flags, bool here) {
    goal_.name = flags.name;
    goal_.claim_id = RandomHex(8);
    disks_ = std::make_unique<HostDisks>(flags.dev);
    std::string region;
    if (here) {
      ASSIGN_OR_RETURN(const Ec2Identity identity, AskEc2Identity(runtime_, ProcessEnvironment()));
      goal_.instance = identity.instance;
      goal_.zone = identity.zone;
      region = identity.region;
    }
    absl::StatusOr<std::unique_ptr<Ec2Client>> client = Ec2Client::Open(runtime_, ProcessEnvironment(), region);
    if (absl::IsInvalidArgument(client.status())) return AsUsage(client.status());
    ASSIGN_OR_RETURN(client_, std::move(client));
    world_ = std::make_unique<Ec2World>(*client_, *disks_, goal_);
    return absl::OkStatus();
  }

  VolumeGoal& goal() { return goal_; }
  Ec2World& world() { return *world_; }

 private:
  Runtime runtime_{{.io_threads = 1, .cpu_threads = 1}};
  VolumeGoal goal_;
  std::unique_ptr<HostDisks> disks_;
  std::unique_ptr<Ec2Client> client_;
  std::unique_ptr<Ec2World> world_;
};

absl::Status Move(const VolumeCommandFlags& flags) {
  ASSIGN_OR_RETURN(const VolumeHere here, BringVolume(flags.volume, SayVolume));
  if (!flags.json) return absl::OkStatus();
  return WriteStdout(
      JsonObject{{"volume", here.volume}, {"zone", here.zone}, {"device", here.device}, {"path", flags.volume.path}}
          .Line());
}

absl::Status DetachHere(const VolumeCommandFlags& flags) {
  return ReleaseVolume(flags.volume, SayVolume);
}

absl::Status RemoveAll(const VolumeCommandFlags& flags) {
  RETURN_IF_ERROR(CheckVolumeName(flags.volume.name));
  VolumeSession session;
  RETURN_IF_ERROR(session.Open(flags.volume, /*here=*/false));
  const auto decide = [&](const VolumeSight& sight) { return DecideRemove(session.goal(), sight); };
  if (!flags.dry_run) return RunVolumeJob(session.world(), decide, SayVolume).status();
  ASSIGN_OR_RETURN(const VolumeSight sight, session.world().Look());
  if (const VolumeAction first = decide(sight); first.kind == VolumeAction::Kind::kFail) return first.status;
  for (const Ec2Volume& volume : sight.volumes)
    RETURN_IF_ERROR(WriteStdout(fmt::format("would delete {}\n", Printable(volume.id))));
  for (const Ec2Snapshot& snapshot : sight.snapshots) {
    if (IsSnapshotOfMove(snapshot))
      RETURN_IF_ERROR(WriteStdout(fmt::format("would delete {}\n", Printable(snapshot.id))));
  }
  return absl::OkStatus();
}

std::string TagText(const Ec2Tags& tags, std::string_view name) {
  const auto found = tags.find(std::string(name));
  return found == tags.end() ? std::string() : found->second;
}

absl::Status PrintVolume(const Ec2Volume& volume, bool json) {
  const std::string name = TagText(volume.tags, kVolumeNameTag);
  const std::string instance = volume.attachments.empty() ? "" : volume.attachments.front().instance;
  const bool serves = VolumeGeneration(volume).has_value();
  if (json) {
    return WriteStdout(JsonObject{
        {"name", name},
        {"volume", volume.id},
        {"zone", volume.zone},
        {"state", volume.state},
        {"gib", volume.size_gib},
        {"instance", instance},
        {"serves", serves}}.Line());
  }
  return WriteStdout(
      Printable(fmt::format("{}  {}  {}  {} GiB  {}{}{}", name, volume.id, volume.zone, volume.size_gib, volume.state,
                            instance.empty() ? "" : " by " + instance, serves ? "" : "  (unfinished copy)")) +
      "\n");
}

absl::Status PrintSnapshot(const Ec2Snapshot& snapshot, bool json) {
  const std::string name = TagText(snapshot.tags, kVolumeNameTag);
  if (json) {
    return WriteStdout(
        JsonObject{{"name", name}, {"snapshot", snapshot.id}, {"of", snapshot.volume}, {"state", snapshot.state}}
            .Line());
  }
  return WriteStdout(Printable(fmt::format("{}  {} of {}  {} {}", name, snapshot.id, snapshot.volume, snapshot.state,
                                           snapshot.progress)) +
                     "\n");
}

absl::Status List(const VolumeCommandFlags& flags) {
  VolumeSession session;
  RETURN_IF_ERROR(session.Open(flags.volume, /*here=*/false));
  session.goal().name = flags.pattern;
  ASSIGN_OR_RETURN(const VolumeSight sight, session.world().LookAtVolumes());
  for (const Ec2Volume& volume : sight.volumes) RETURN_IF_ERROR(PrintVolume(volume, flags.json));
  for (const Ec2Snapshot& snapshot : sight.snapshots) RETURN_IF_ERROR(PrintSnapshot(snapshot, flags.json));
  return absl::OkStatus();
}

constexpr const char* kVolumeFooter =
    R"(A volume of EBS can be attached only in its own availability zone. `move` makes it follow the job: a snapshot, a volume of
it in this zone, and the mount; the older volume and the snapshot are deleted when the new one is mounted. If `move` is
killed, run it again, here or on another instance: it goes on where it was, and nothing is lost or left over.

The volume is the one with the tag millrace:volume=NAME; tag a volume of yours to have it moved. docs/volumes.md lists the
permissions, and what a volume costs while it is moved.

Examples:
  millrace volume move run-7 /data --create 500GiB     on each instance of the job, when it boots
  millrace volume detach run-7                         before an instance ends: the next one need not wait
  millrace volume ls
  millrace volume rm run-7                             when the job is done)";

void AddAction(const Command& command, const std::shared_ptr<VolumeCommandFlags>& flags,
               absl::Status (*action)(const VolumeCommandFlags&)) {
  command.Run([flags, action, name = "volume " + command.name()] {
    const absl::Status status = action(*flags);
    return status.ok() ? 0 : Fail(name, status);
  });
}

void AddDev(const Command& command, VolumeFlags* flags) {
  command.Add("--dev", &flags->dev, "The folder of devices; a container may have the host's in another one")
      .ShowDefault()
      .Called("DIR");
}

}  // namespace

absl::StatusOr<VolumeHere> BringVolume(const VolumeFlags& flags, const std::function<void(const std::string&)>& say) {
  RETURN_IF_ERROR(CheckVolumeName(flags.name));
  if (flags.path.empty()) return AsUsage(absl::InvalidArgumentError("the path of the mount is empty"));
  std::optional<uint64_t> gib;
  if (!flags.create.empty()) {
    ASSIGN_OR_RETURN(const uint64_t bytes, TakeSize("--create", flags.create));
    gib = (bytes + kGiB - 1) / kGiB;
  }
  ASSIGN_OR_RETURN(const std::chrono::nanoseconds patience, TakeDuration("--wait", flags.wait));
  VolumeSession session;
  RETURN_IF_ERROR(session.Open(flags, /*here=*/true));
  VolumeGoal& goal = session.goal();
  goal.path = std::filesystem::absolute(flags.path).lexically_normal();
  goal.create_gib = gib;
  goal.create_type = flags.type;
  goal.patience = absl::FromChrono(patience);
  const auto decide = [&](const VolumeSight& sight) { return DecideMove(goal, sight); };
  ASSIGN_OR_RETURN(const VolumeAction done, RunVolumeJob(session.world(), decide, say));
  return VolumeHere{done.volume, goal.zone, done.device};
}

absl::Status ReleaseVolume(const VolumeFlags& flags, const std::function<void(const std::string&)>& say) {
  RETURN_IF_ERROR(CheckVolumeName(flags.name));
  VolumeSession session;
  RETURN_IF_ERROR(session.Open(flags, /*here=*/true));
  const auto decide = [&](const VolumeSight& sight) { return DecideDetach(session.goal(), sight); };
  return RunVolumeJob(session.world(), decide, say).status();
}

absl::StatusOr<VolumeFlags> ParseVolumeOption(const std::string& text) {
  const auto wrong = [&text] {
    return AsUsage(absl::InvalidArgumentError(fmt::format(
        "--volume takes NAME=PATH, and behind it create=, type=, wait= and dev= with commas between them; not '{}'",
        text)));
  };
  VolumeFlags flags;
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return wrong();
  flags.name = text.substr(0, equals);
  size_t at = std::min(text.find(',', equals), text.size());
  flags.path = text.substr(equals + 1, at - equals - 1);
  while (at < text.size()) {
    const size_t end = std::min(text.find(',', at + 1), text.size());
    const std::string item = text.substr(at + 1, end - at - 1);
    const size_t sign = std::min(item.find('='), item.size());
    const std::string key = item.substr(0, sign);
    std::string* const value = key == "create" ? &flags.create
                               : key == "type" ? &flags.type
                               : key == "wait" ? &flags.wait
                               : key == "dev"  ? &flags.dev
                                               : nullptr;
    if (value == nullptr || sign + 1 >= item.size()) return wrong();
    *value = item.substr(sign + 1);
    at = end;
  }
  if (flags.path.empty()) return wrong();
  RETURN_IF_ERROR(CheckVolumeName(flags.name));
  return flags;
}

void AddVolume(Command app) {
  const Command volume = app.AddCommand("volume", "Have a volume of EBS follow a job from zone to zone");
  auto flags = std::make_shared<VolumeCommandFlags>();

  const Command move = volume.AddCommand("move", "Bring the volume to this instance, and mount it");
  move.Add("name", &flags->volume.name, "The value of its tag millrace:volume").Required();
  move.Add("path", &flags->volume.path, "Where it is mounted").Required();
  move.Add("--create", &flags->volume.create, "If there is none, make one of this size (500GiB), with ext4 on it")
      .Called("SIZE");
  move.Add("--type", &flags->volume.type, "The type of one that is made").ShowDefault();
  move.Add("--wait", &flags->volume.wait, "How long to wait for another instance that has it").ShowDefault();
  AddDev(move, &flags->volume);
  move.AddFlag("--json", &flags->json, "Print what was mounted, as JSON");
  AddAction(move, flags, Move);

  const Command detach = volume.AddCommand("detach", "Unmount it and detach it from this instance");
  detach.Add("name", &flags->volume.name, "The value of its tag millrace:volume").Required();
  AddDev(detach, &flags->volume);
  AddAction(detach, flags, DetachHere);

  const Command list = volume.AddCommand("ls", "List volumes, copies and snapshots");
  list.Add("name", &flags->pattern, "The value of the tag millrace:volume, * for any characters").ShowDefault();
  list.AddFlag("--json", &flags->json, "One JSON object a line");
  AddAction(list, flags, List);

  const Command remove = volume.AddCommand("rm", "Delete the volume, its copies and its snapshots, with all data");
  remove.Add("name", &flags->volume.name, "The value of its tag millrace:volume").Required();
  remove.AddFlag("--dry-run", &flags->dry_run, "Only print what would be deleted");
  AddAction(remove, flags, RemoveAll);
  volume.Footer(kVolumeFooter);
}

}  // namespace millrace::cli
