#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/usage.h"
#include "cli/volume_commands.h"

namespace millrace::cli {

namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

struct VolumeCommandFlags {
  VolumeFlags volume;
  std::string pattern = "*";
  bool dry_run = false;
  bool json = false;
};

void SayVolume(const std::string& text) {
  PrintError("millrace volume: {}\n", Printable(text));
}

absl::Status Move(const VolumeCommandFlags& flags) {
  RETURN_IF_ERROR(CheckVolumeName(flags.volume.options.name));
  ASSIGN_OR_RETURN(const VolumeOptions options, TakeVolume(flags.volume));
  ASSIGN_OR_RETURN(const VolumeHere here, BringVolume(options, SayVolume));
  if (!flags.json) return absl::OkStatus();
  return WriteStdout(JSON_OF(here.volume, here.zone, here.device, options.path).Versioned("volume.move"));
}

absl::Status DetachHere(const VolumeCommandFlags& flags) {
  return ReleaseVolume(flags.volume.options, SayVolume);
}

absl::Status RemoveAll(const VolumeCommandFlags& flags) {
  RETURN_IF_ERROR(CheckVolumeName(flags.volume.options.name));
  VolumeSession session;
  RETURN_IF_ERROR(session.Open(flags.volume.options, /*here=*/false));
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
    return WriteStdout(JSON_OF(name, Named("volume", volume.id), volume.zone, volume.state,
                               Named("gib", volume.size_gib), instance, serves)
                           .Versioned("volume.ls"));
  }
  return WriteStdout(
      Printable(fmt::format("{}  {}  {}  {} GiB  {}{}{}", name, volume.id, volume.zone, volume.size_gib, volume.state,
                            instance.empty() ? "" : " by " + instance, serves ? "" : "  (unfinished copy)")) +
      "\n");
}

absl::Status PrintSnapshot(const Ec2Snapshot& snapshot, bool json) {
  const std::string name = TagText(snapshot.tags, kVolumeNameTag);
  if (json) {
    return WriteStdout(JSON_OF(name, Named("snapshot", snapshot.id), Named("of", snapshot.volume), snapshot.state)
                           .Versioned("volume.ls"));
  }
  return WriteStdout(Printable(fmt::format("{}  {} of {}  {} {}", name, snapshot.id, snapshot.volume, snapshot.state,
                                           snapshot.progress)) +
                     "\n");
}

absl::Status List(const VolumeCommandFlags& flags) {
  VolumeSession session;
  RETURN_IF_ERROR(session.Open(flags.volume.options, /*here=*/false));
  session.goal().name = flags.pattern;
  ASSIGN_OR_RETURN(const VolumeSight sight, session.world().LookAtVolumes());
  for (const Ec2Volume& volume : sight.volumes) RETURN_IF_ERROR(PrintVolume(volume, flags.json));
  for (const Ec2Snapshot& snapshot : sight.snapshots) RETURN_IF_ERROR(PrintSnapshot(snapshot, flags.json));
  return absl::OkStatus();
}

constexpr const char* kVolumeFooter =
    R"(A volume of EBS can be attached only in its own availability zone. `move` makes it follow the job: it makes a
snapshot, makes a volume of it in this zone, and mounts that. The older volume and the snapshot are deleted when the new one
is mounted. If `move` is
killed, run it again, here or on another instance: it continues where it was, and nothing is lost or left over.

The volume is the one with the tag millrace:volume=NAME. Tag a volume of yours to have it moved. docs/volumes.md lists the
permissions, and the costs of a volume while it is moved.

Examples:
  millrace volume move run-7 /data --create 500GiB     on each instance of the job, when it boots
  millrace volume detach run-7                         before an instance ends: the next one need not wait
  millrace volume ls
  millrace volume rm run-7                             when the job is done)";

void AddAction(const Command& command, const std::shared_ptr<VolumeCommandFlags>& flags,
               absl::Status (*action)(const VolumeCommandFlags&)) {
  command.Run([flags, action, name = "volume " + command.name()] { return ExitStatus(name, action(*flags)); });
}

void AddDev(const Command& command, VolumeOptions* options) {
  command.AddShown("--dev DIR", &options->dev, "The folder of devices; a container may have the host's in another one");
}

}  // namespace

absl::StatusOr<VolumeOptions> TakeVolume(const VolumeFlags& flags) {
  VolumeOptions options = flags.options;
  if (!flags.create.empty()) {
    ASSIGN_OR_RETURN(const uint64_t bytes, TakeSize("--create", flags.create));
    options.create_gib = (bytes + kGiB - 1) / kGiB;
  }
  ASSIGN_OR_RETURN(const std::chrono::nanoseconds wait, TakeDuration("--wait", flags.wait));
  options.wait = absl::FromChrono(wait);
  return options;
}

absl::StatusOr<VolumeOptions> ParseVolumeOption(const std::string& text) {
  const auto wrong = [&text] {
    return UsageError(
        "--volume takes NAME=PATH, and behind it create=, type=, wait= and dev= with commas between them; not '{}'",
        text);
  };
  VolumeFlags flags;
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return wrong();
  flags.options.name = text.substr(0, equals);
  const std::vector<std::string> items = absl::StrSplit(text.substr(equals + 1), ',');
  flags.options.path = items.front();
  for (const std::string& item : std::span(items).subspan(1)) {
    const size_t sign = std::min(item.find('='), item.size());
    const std::string key = item.substr(0, sign);
    std::string* const value = key == "create" ? &flags.create
                               : key == "type" ? &flags.options.type
                               : key == "wait" ? &flags.wait
                               : key == "dev"  ? &flags.options.dev
                                               : nullptr;
    if (value == nullptr || sign + 1 >= item.size()) return wrong();
    *value = item.substr(sign + 1);
  }
  if (flags.options.path.empty()) return wrong();
  RETURN_IF_ERROR(CheckVolumeName(flags.options.name));
  absl::StatusOr<VolumeOptions> options = TakeVolume(flags);
  return options.ok() ? options : Annotate(options.status(), fmt::format("--volume {}", flags.options.name));
}

void AddVolume(Command app) {
  const Command volume = app.AddCommand("volume", "Have a volume of EBS follow a job from zone to zone");
  auto flags = std::make_shared<VolumeCommandFlags>();

  const Command move = volume.AddCommand("move", "Bring the volume to this instance, and mount it");
  move.Add("name", &flags->volume.options.name, "The value of its tag millrace:volume").Required();
  move.Add("path", &flags->volume.options.path, "Where it is mounted").Required();
  move.Add("--create SIZE", &flags->volume.create, "If there is none, make one of this size (500GiB), with ext4 on it");
  move.AddShown("--type", &flags->volume.options.type, "The type of one that is made");
  move.AddShown("--wait", &flags->volume.wait, "How long to wait for another instance that has it");
  AddDev(move, &flags->volume.options);
  move.AddFlag("--json", &flags->json, "Print the mounted volume, as JSON");
  AddAction(move, flags, Move);

  const Command detach = volume.AddCommand("detach", "Unmount it and detach it from this instance");
  detach.Add("name", &flags->volume.options.name, "The value of its tag millrace:volume").Required();
  AddDev(detach, &flags->volume.options);
  AddAction(detach, flags, DetachHere);

  const Command list = volume.AddCommand("ls", "List volumes, copies and snapshots");
  list.AddShown("name", &flags->pattern, "The value of the tag millrace:volume, * for any characters");
  list.AddFlag("--json", &flags->json, "One JSON object a line");
  AddAction(list, flags, List);

  const Command remove = volume.AddCommand("rm", "Delete the volume, its copies and its snapshots, with all data");
  remove.Add("name", &flags->volume.options.name, "The value of its tag millrace:volume").Required();
  remove.AddFlag("--dry-run", &flags->dry_run, "Only print what would be deleted");
  AddAction(remove, flags, RemoveAll);
  volume.Footer(kVolumeFooter);
}

}  // namespace millrace::cli
