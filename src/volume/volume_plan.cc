#include "volume/volume_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/crypto.h"
#include "base/number.h"

namespace millrace {

namespace {

using Kind = VolumeAction::Kind;

constexpr std::string_view kServes = "serves ";
constexpr std::string_view kCopyOf = "copy-of ";
constexpr std::string_view kBlank = "blank";
// EC2 itself does these steps in seconds; more means that something is wrong.
constexpr absl::Duration kSoon = absl::Minutes(10);
constexpr char kTimeOfClaim[] = "%Y-%m-%dT%H:%M:%SZ";

std::string TagOf(const Ec2Tags& tags, std::string_view name) {
  const auto found = tags.find(std::string(name));
  return found == tags.end() ? std::string() : found->second;
}

VolumeAction FailWith(absl::Status status) {
  return {.kind = Kind::kFail, .status = std::move(status)};
}

VolumeAction WaitFor(std::string text, absl::Duration limit) {
  return {.kind = Kind::kWait, .text = std::move(text), .limit = limit};
}

std::string Named(const Ec2Volume& volume) {
  return fmt::format("{} ({})", volume.id, volume.zone);
}

std::string StateOf(const VolumeSight& sight, const std::string& instance) {
  const auto found = sight.instances.find(instance);
  return found == sight.instances.end() ? std::string() : found->second;
}

bool Lives(const VolumeSight& sight, const std::string& instance) {
  const std::string state = StateOf(sight, instance);
  return !instance.empty() && !state.empty() && state != "terminated" && state != "stopped";
}

// Returns the time when the claim was made; InfinitePast if it does not say so.
absl::Time TimeOfClaim(const std::string& claim) {
  absl::Time time;
  const std::string text = claim.substr(claim.rfind(' ') + 1);
  return absl::ParseTime(kTimeOfClaim, text, &time, nullptr) ? time : absl::InfinitePast();
}

// The key of the claim stays when the claim is given up.
bool WasEverMoved(const Ec2Volume& volume) {
  return volume.tags.contains(std::string(kVolumeStateTag)) || volume.tags.contains(std::string(kVolumeClaimTag));
}

// Returns the volume whose tags it has, if that is another one.
std::string RestoredFrom(const Ec2Volume& volume) {
  std::string id = TagOf(volume.tags, kVolumeIdTag);
  return id == volume.id ? std::string() : id;
}

// Returns "" if it may be deleted.
std::string WhyNotRemoved(const VolumeGoal& goal, const VolumeSight& sight, const Ec2Volume& volume) {
  if (!volume.attachments.empty()) {
    return fmt::format("{} is attached to {}; run `millrace volume detach {}` there, or end that instance",
                       Named(volume), volume.attachments.front().instance, goal.name);
  }
  if (const std::string claimed = ClaimInstance(volume); Lives(sight, claimed)) {
    return fmt::format(
        "{} is being moved by {}, which is {}; run `millrace volume detach {}` there, or end that instance",
        Named(volume), claimed, StateOf(sight, claimed), goal.name);
  }
  const std::string remedy = fmt::format("take the tag {} from it, or delete it yourself", kVolumeNameTag);
  if (const std::string id = RestoredFrom(volume); !id.empty()) {
    return fmt::format("{} has the tags of {}, as if it was restored from a backup of that; {}", Named(volume), id,
                       remedy);
  }
  if (WasEverMoved(volume)) return std::string();
  return fmt::format("{} has the tag {}={}, but was never moved; {}", Named(volume), kVolumeNameTag, goal.name, remedy);
}

VolumeAction DeleteSnapshot(const Ec2Snapshot& snapshot) {
  return {.kind = Kind::kDeleteSnapshot,
          .text = fmt::format("deletes {} of {}", snapshot.id, snapshot.volume),
          .snapshot = snapshot.id};
}

class MovePlan {
 public:
  MovePlan(const VolumeGoal& goal, const VolumeSight& sight) : goal_(goal), sight_(sight) {}

  VolumeAction Next() const {
    const Ec2Volume* truth = nullptr;
    for (const Ec2Volume& volume : sight_.volumes) {
      if (const std::string id = RestoredFrom(volume); !id.empty()) return Restored(volume, id);
      const auto generation = VolumeGeneration(volume);
      if (!generation) continue;
      if (truth != nullptr && VolumeGeneration(*truth) == generation) return Ambiguous(*truth, volume);
      if (truth == nullptr || *VolumeGeneration(*truth) < *generation) truth = &volume;
    }
    if (truth == nullptr) return First();
    if (truth->state == "error") {
      return FailWith(absl::DataLossError(
          fmt::format("EC2 says that {} is in error; make a volume of its last snapshot, and tag it {}={}",
                      Named(*truth), kVolumeNameTag, goal_.name)));
    }
    const std::string claimed = ClaimInstance(*truth);
    if (const auto held = HeldElsewhere(*truth)) {
      // The other instance may write, so a snapshot or copy for this claim is worthless when that instance ends.
      return claimed == goal_.instance ? Release(*truth) : *held;
    }
    const bool here = AttachedHere(*truth);
    if (claimed != goal_.instance) {
      if (!here && Lives(sight_, claimed)) {
        return WaitFor(fmt::format("{} is being moved by {}, which is {}; end that instance, or let it finish",
                                   Named(*truth), claimed, StateOf(sight_, claimed)),
                       goal_.patience);
      }
      return Claim(*truth);
    }
    return truth->zone == goal_.zone ? SameZone(*truth) : OtherZone(*truth);
  }

 private:
  bool AttachedHere(const Ec2Volume& volume) const {
    return std::any_of(volume.attachments.begin(), volume.attachments.end(),
                       [this](const Ec2Attachment& at) { return at.instance == goal_.instance; });
  }

  VolumeAction Ambiguous(const Ec2Volume& a, const Ec2Volume& b) const {
    return FailWith(absl::FailedPreconditionError(
        fmt::format("both {} and {} have the tag {}={}; take it from the one that is not the volume of this job",
                    Named(a), Named(b), kVolumeNameTag, goal_.name)));
  }

  VolumeAction Restored(const Ec2Volume& volume, const std::string& original) const {
    return FailWith(absl::FailedPreconditionError(fmt::format(
        "{} has the tags of {}, as if it was restored from a backup of that. Remove the tag {} from it. Or, to "
        "continue with it, remove that tag from all other volumes of {}, and the tag {} from it",
        Named(volume), original, kVolumeNameTag, goal_.name, kVolumeIdTag)));
  }

  // Another instance has it: wait until it is free.
  std::optional<VolumeAction> HeldElsewhere(const Ec2Volume& volume) const {
    for (const Ec2Attachment& at : volume.attachments) {
      if (at.instance == goal_.instance) continue;
      const std::string state = StateOf(sight_, at.instance);
      if (state == "terminated")
        return WaitFor(fmt::format("EC2 detaches {} from {}", Named(volume), at.instance), kSoon);
      const std::string text =
          fmt::format("{} is attached to {}, which is {}; end that instance, or run `millrace volume detach {}` there",
                      Named(volume), at.instance, state.empty() ? "not known" : state, goal_.name);
      // It keeps its volumes as long as it is stopped.
      if (state == "stopped") return FailWith(absl::FailedPreconditionError(text));
      return WaitFor(text, goal_.patience);
    }
    return std::nullopt;
  }

  // A snapshot or copy for another claim may be older than the volume, so no two claims are the same.
  std::string NewClaim() const {
    return fmt::format("{} {} {}", goal_.instance, RandomHex(8),
                       absl::FormatTime(kTimeOfClaim, sight_.now, absl::UTCTimeZone()));
  }

  VolumeAction Claim(const Ec2Volume& volume) const {
    return {.kind = Kind::kClaim,
            .text = fmt::format("claims {}", Named(volume)),
            .volume = volume.id,
            .claim = NewClaim()};
  }

  static VolumeAction Release(const Ec2Volume& volume) {
    return {.kind = Kind::kRelease, .text = fmt::format("gives {} free", Named(volume)), .volume = volume.id};
  }

  VolumeAction DeleteVolume(const Ec2Volume& volume) const {
    return {.kind = Kind::kDeleteVolume, .text = fmt::format("deletes {}", Named(volume)), .volume = volume.id};
  }

  // Returns the next step on the way of a volume to its mount; nullopt if it is mounted.
  std::optional<VolumeAction> Serve(const Ec2Volume& volume, bool may_format) const {
    if (const auto held = HeldElsewhere(volume)) return held;
    if (volume.attachments.empty()) {
      if (volume.state != "available") return WaitFor(fmt::format("{} is {}", Named(volume), volume.state), kSoon);
      return Attach(volume);
    }
    const Ec2Attachment& at = volume.attachments.front();
    if (at.state != "attached") return WaitFor(fmt::format("{} is {}", Named(volume), at.state), kSoon);
    const auto found = sight_.here.find(volume.id);
    if (found == sight_.here.end() || found->second.device.empty()) {
      return WaitFor(fmt::format("{} is attached as {}, and its device has not appeared; if this is a container, name "
                                 "the folder of the host's devices by --dev",
                                 Named(volume), at.device),
                     kSoon);
    }
    return ServeDevice(volume, found->second, may_format);
  }

  std::optional<VolumeAction> ServeDevice(const Ec2Volume& volume, const LocalVolume& local, bool may_format) const {
    if (local.content != DeviceContent::kFileSystem) {
      if (may_format && local.content == DeviceContent::kNothing) {
        return VolumeAction{.kind = Kind::kMakeFileSystem,
                            .text = fmt::format("makes a file system on {}", local.device),
                            .volume = volume.id,
                            .device = local.device};
      }
      return FailWith(absl::FailedPreconditionError(fmt::format(
          "{} of {} holds {}; give the job a volume with a file system", local.device, Named(volume),
          local.content == DeviceContent::kNothing ? "no file system" : "something else than a file system")));
    }
    if (local.mounted) return std::nullopt;
    if (!sight_.mounted_source.empty()) {
      return FailWith(absl::FailedPreconditionError(
          fmt::format("{} is mounted at {} already; choose another path", sight_.mounted_source, goal_.path)));
    }
    return VolumeAction{.kind = Kind::kMount,
                        .text = fmt::format("mounts {} at {}", local.device, goal_.path),
                        .volume = volume.id,
                        .device = local.device};
  }

  VolumeAction Attach(const Ec2Volume& volume) const {
    for (char letter = 'f'; letter <= 'p'; ++letter) {
      const std::string device = fmt::format("/dev/sd{}", letter);
      if (std::find(sight_.taken_devices.begin(), sight_.taken_devices.end(), device) != sight_.taken_devices.end())
        continue;
      return {.kind = Kind::kAttach,
              .text = fmt::format("attaches {} as {}", Named(volume), device),
              .volume = volume.id,
              .device = device};
    }
    return FailWith(absl::ResourceExhaustedError(fmt::format(
        "the names /dev/sdf to /dev/sdp are all taken on {}; detach a volume that is not needed", goal_.instance)));
  }

  VolumeAction Commit(const Ec2Volume& volume, uint64_t generation, const std::string& claim) const {
    return {.kind = Kind::kCommit,
            .text = fmt::format("{} is now the volume of {}", Named(volume), goal_.name),
            .volume = volume.id,
            .state = fmt::format("{}{}", kServes, generation),
            .claim = claim};
  }

  // Decides the way to deletion of a volume that is not needed.
  VolumeAction Discard(const Ec2Volume& volume) const {
    if (!WasEverMoved(volume)) {
      return FailWith(absl::FailedPreconditionError(fmt::format(
          "{} has the tag {}={}, but was never moved, and another volume with that tag was. Remove that tag "
          "from it, or, to continue with it, from the other one",
          Named(volume), kVolumeNameTag, goal_.name)));
    }
    if (const auto held = HeldElsewhere(volume)) return *held;
    if (AttachedHere(volume)) {
      if (volume.attachments.front().state == "detaching")
        return WaitFor(fmt::format("{} is detaching", Named(volume)), kSoon);
      return {.kind = Kind::kDetach, .text = fmt::format("detaches {}", Named(volume)), .volume = volume.id};
    }
    if (volume.state == "available" || volume.state == "error") return DeleteVolume(volume);
    return WaitFor(fmt::format("{} is {}", Named(volume), volume.state), kSoon);
  }

  VolumeAction SameZone(const Ec2Volume& truth) const {
    // This comes before anything is written: copies and snapshots would be older than the volume.
    for (const Ec2Volume& volume : sight_.volumes) {
      if (&volume != &truth) return Discard(volume);
    }
    for (const Ec2Snapshot& snapshot : sight_.snapshots) {
      if (IsSnapshotOfMove(snapshot)) return DeleteSnapshot(snapshot);
    }
    if (const auto step = Serve(truth, /*may_format=*/false)) return *step;
    return {.kind = Kind::kDone,
            .text = fmt::format("{} is mounted at {}", Named(truth), goal_.path),
            .volume = truth.id,
            .device = sight_.here.at(truth.id).device};
  }

  // The copy must be made for this claim: the volume may have been written to since another one.
  bool IsCopyHere(const Ec2Volume& volume, const Ec2Volume& truth) const {
    return volume.zone == goal_.zone && volume.state != "error" &&
           TagOf(volume.tags, kVolumeStateTag) == fmt::format("{}{}", kCopyOf, truth.id) &&
           TagOf(volume.tags, kVolumeClaimTag) == TagOf(truth.tags, kVolumeClaimTag);
  }

  VolumeAction OtherZone(const Ec2Volume& truth) const {
    if (!truth.attachments.empty() || truth.state != "available")
      return WaitFor(fmt::format("{} is {}", Named(truth), truth.state), kSoon);
    const std::string claim = TagOf(truth.tags, kVolumeClaimTag);
    const Ec2Volume* copy = nullptr;
    for (const Ec2Volume& volume : sight_.volumes) {
      if (&volume == &truth) continue;
      if (!IsCopyHere(volume, truth)) {
        // The ClientToken of a copy that went wrong must not be used again.
        if (volume.state == "error" && TagOf(volume.tags, kVolumeClaimTag) == claim) return Claim(truth);
        return Discard(volume);
      }
      if (copy == nullptr || AttachedHere(volume)) copy = &volume;
    }
    if (copy == nullptr) return MakeCopy(truth, claim);
    if (const auto step = Serve(*copy, /*may_format=*/false)) return *step;
    return Commit(*copy, *VolumeGeneration(truth) + 1, claim);
  }

  VolumeAction MakeCopy(const Ec2Volume& truth, const std::string& claim) const {
    const Ec2Snapshot* pending = nullptr;
    for (const Ec2Snapshot& snapshot : sight_.snapshots) {
      if (snapshot.volume != truth.id || !IsSnapshotOfMove(snapshot)) continue;
      // The volume may have been written to since another claim, and before this one.
      if (TagOf(snapshot.tags, kSnapshotTag) != claim || snapshot.started < TimeOfClaim(claim))
        return DeleteSnapshot(snapshot);
      if (snapshot.state == "completed") return Copy(truth, snapshot, claim);
      if (snapshot.state == "pending") {
        pending = &snapshot;
        continue;
      }
      return {.kind = Kind::kDeleteSnapshot,
              .text = fmt::format("deletes {}, which is in state {}", snapshot.id, snapshot.state),
              .snapshot = snapshot.id};
    }
    if (pending != nullptr) {
      return WaitFor(fmt::format("snapshot {} of {}: {}", pending->id, Named(truth), pending->progress),
                     absl::InfiniteDuration());
    }
    return {.kind = Kind::kSnapshot,
            .text = fmt::format("makes a snapshot of {}", Named(truth)),
            .volume = truth.id,
            .claim = claim};
  }

  VolumeAction Copy(const Ec2Volume& truth, const Ec2Snapshot& snapshot, const std::string& claim) const {
    const std::string what = fmt::format("{} {} {}", claim, snapshot.id, goal_.zone);
    return {.kind = Kind::kCopy,
            .text = fmt::format("makes a volume of {} in {}", snapshot.id, goal_.zone),
            .snapshot = snapshot.id,
            .state = fmt::format("{}{}", kCopyOf, truth.id),
            .claim = claim,
            .token = HexEncode(Sha256(AsBytes(what))),
            .like = truth};
  }

  // There is no volume yet.
  VolumeAction First() const {
    for (const Ec2Volume& volume : sight_.volumes) {
      if (TagOf(volume.tags, kVolumeStateTag) == kBlank) continue;
      return FailWith(absl::FailedPreconditionError(fmt::format(
          "{} is a copy of a volume of {} that is gone, made before that was deleted; to continue with it, set "
          "its tag {} to \"{}1\"",
          Named(volume), goal_.name, kVolumeStateTag, kServes)));
    }
    if (!sight_.snapshots.empty()) {
      return FailWith(absl::FailedPreconditionError(
          fmt::format("there is no volume {}, but {} of it; make a volume of the snapshot and tag it {}={}, or delete "
                      "the snapshot",
                      goal_.name, sight_.snapshots.front().id, kVolumeNameTag, goal_.name)));
    }
    if (!goal_.create_gib) {
      return FailWith(absl::NotFoundError(
          fmt::format("no volume has the tag {}={}; check AWS_REGION, or have one made by --create SIZE",
                      kVolumeNameTag, goal_.name)));
    }
    const Ec2Volume* blank = nullptr;
    const Ec2Volume* broken = nullptr;
    std::string made_for = fmt::format("{} {}", goal_.name, goal_.claim_id);
    for (const Ec2Volume& volume : sight_.volumes) {
      if (volume.zone != goal_.zone) return Discard(volume);
      if (volume.state == "error") {
        broken = &volume;
        made_for += " " + volume.id;  // its ClientToken must not be used again
      } else if (blank == nullptr || AttachedHere(volume)) {
        blank = &volume;
      }
    }
    if (blank == nullptr) {
      return {.kind = Kind::kCreateBlank,
              .text = fmt::format("makes a volume of {} GiB in {}", *goal_.create_gib, goal_.zone),
              .state = std::string(kBlank),
              .token = HexEncode(Sha256(AsBytes(made_for)))};
    }
    if (broken != nullptr) return Discard(*broken);
    if (const auto step = Serve(*blank, /*may_format=*/true)) return *step;
    return Commit(*blank, 1, NewClaim());
  }

  const VolumeGoal& goal_;
  const VolumeSight& sight_;
};

}  // namespace

std::optional<uint64_t> VolumeGeneration(const Ec2Volume& volume) {
  const std::string state = TagOf(volume.tags, kVolumeStateTag);
  if (state.empty()) return 0;
  if (!state.starts_with(kServes)) return std::nullopt;
  return ParseNumber<uint64_t>(std::string_view(state).substr(kServes.size()));
}

bool IsSnapshotOfMove(const Ec2Snapshot& snapshot) {
  return snapshot.tags.contains(std::string(kSnapshotTag));
}

std::string ClaimInstance(const Ec2Volume& volume) {
  const std::string claim = TagOf(volume.tags, kVolumeClaimTag);
  return claim.substr(0, claim.find(' '));
}

VolumeAction DecideMove(const VolumeGoal& goal, const VolumeSight& sight) {
  return MovePlan(goal, sight).Next();
}

VolumeAction DecideDetach(const VolumeGoal& goal, const VolumeSight& sight) {
  for (const Ec2Volume& volume : sight.volumes) {
    for (const Ec2Attachment& at : volume.attachments) {
      if (at.instance != goal.instance) continue;
      if (at.state == "detaching" || at.state == "attaching")
        return WaitFor(fmt::format("{} is {}", Named(volume), at.state), kSoon);
      return {.kind = Kind::kDetach, .text = fmt::format("detaches {}", Named(volume)), .volume = volume.id};
    }
  }
  for (const Ec2Volume& volume : sight.volumes) {
    if (ClaimInstance(volume) != goal.instance) continue;
    return {.kind = Kind::kRelease, .text = fmt::format("gives {} free", Named(volume)), .volume = volume.id};
  }
  return {.kind = Kind::kDone, .text = fmt::format("no volume {} is attached here", goal.name)};
}

VolumeAction DecideRemove(const VolumeGoal& goal, const VolumeSight& sight) {
  for (const Ec2Volume& volume : sight.volumes) {
    if (const std::string reason = WhyNotRemoved(goal, sight, volume); !reason.empty())
      return FailWith(absl::FailedPreconditionError(reason));
  }
  for (const Ec2Volume& volume : sight.volumes) {
    if (volume.state != "available" && volume.state != "error")
      return WaitFor(fmt::format("{} is {}", Named(volume), volume.state), kSoon);
    return {.kind = Kind::kDeleteVolume, .text = fmt::format("deletes {}", Named(volume)), .volume = volume.id};
  }
  for (const Ec2Snapshot& snapshot : sight.snapshots) {
    if (IsSnapshotOfMove(snapshot)) return DeleteSnapshot(snapshot);
  }
  if (sight.snapshots.empty()) return {.kind = Kind::kDone, .text = fmt::format("nothing of {} is left", goal.name)};
  return {.kind = Kind::kDone,
          .text = fmt::format(
              "no volume of {} is left; {} that `millrace volume move` did not make stay", goal.name,
              sight.snapshots.size() == 1 ? "1 snapshot" : fmt::format("{} snapshots", sight.snapshots.size()))};
}

}  // namespace millrace
