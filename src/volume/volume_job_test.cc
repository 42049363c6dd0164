#include "volume/volume_job.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "absl/status/status.h"

namespace millrace {
namespace {

using Kind = VolumeAction::Kind;

/// Provides EC2 and all machines, in memory. A volume's data are a text; what passes takes one look.
struct Cloud {
  struct Disk {
    Ec2Volume volume;
    std::string data;
    bool formatted = false;
    int looks = 0;
  };
  struct Shot {
    Ec2Snapshot snapshot;
    std::string data;
    bool formatted = false;
    int looks = 0;
  };

  std::map<std::string, Disk> disks;
  std::map<std::string, Shot> shots;
  std::map<std::string, std::string> instances;  // and their states
  std::map<std::string, std::string> zones;      // of instances
  std::map<std::string, std::string> mounts;     // of volumes, by instance
  std::map<std::string, std::string> tokens;
  int made = 0;

  std::string Launch(const std::string& zone) {
    const std::string id = fmt::format("i-{}", ++made);
    instances[id] = "running";
    zones[id] = zone;
    return id;
  }

  void Terminate(const std::string& instance) {
    instances[instance] = "terminated";
    mounts.erase(instance);
    for (auto& [id, disk] : disks) {
      std::erase_if(disk.volume.attachments, [&](const Ec2Attachment& at) { return at.instance == instance; });
      if (disk.volume.state == "in-use" && disk.volume.attachments.empty()) disk.volume.state = "available";
    }
  }

  std::string AddDisk(const std::string& zone, const std::string& data, Ec2Tags tags) {
    const std::string id = fmt::format("vol-{}", ++made);
    disks[id] = {{.id = id, .zone = zone, .state = "available", .type = "gp3", .tags = std::move(tags)}, data, true, 0};
    return id;
  }
};

/// The actions of one process on one instance; it is killed at a call.
class CloudWorld final : public VolumeWorld {
 public:
  CloudWorld(Cloud& cloud, const VolumeGoal& goal, int calls, bool after_effect)
      : cloud_(cloud), goal_(goal), calls_(calls), after_effect_(after_effect) {}

  absl::StatusOr<VolumeSight> Look() override {
    if (calls_-- == 0) return Killed();
    VolumeSight sight;
    for (auto& [id, disk] : cloud_.disks) {
      Pass(disk);
      sight.volumes.push_back(disk.volume);
      for (const Ec2Attachment& at : disk.volume.attachments) {
        if (at.instance != goal_.instance) continue;
        sight.taken_devices.push_back(at.device);
        if (at.state != "attached") continue;
        const auto mount = cloud_.mounts.find(goal_.instance);
        sight.here[id] = {"/dev/" + id, disk.formatted ? DeviceContent::kFileSystem : DeviceContent::kNothing,
                          mount != cloud_.mounts.end() && mount->second == id};
      }
    }
    for (auto& [id, shot] : cloud_.shots) {
      if (shot.looks-- <= 0) shot.snapshot.state = "completed";
      sight.snapshots.push_back(shot.snapshot);
    }
    sight.instances = cloud_.instances;
    if (const auto mount = cloud_.mounts.find(goal_.instance); mount != cloud_.mounts.end())
      sight.mounted_source = "/dev/" + mount->second;
    return sight;
  }

  absl::StatusOr<std::string> Do(const VolumeAction& action) override {
    if (calls_-- == 0) {
      if (after_effect_) (void)Act(action);
      return Killed();
    }
    return Act(action);
  }

  absl::Time Now() override { return now_; }
  void Sleep(absl::Duration time) override { now_ += time; }

 private:
  static absl::Status Killed() { return absl::CancelledError("killed"); }

  static void Pass(Cloud::Disk& disk) {
    if (disk.looks-- > 0) return;
    if (disk.volume.state == "creating") disk.volume.state = "available";
    if (disk.volume.attachments.empty()) return;
    if (disk.volume.attachments[0].state == "attaching") disk.volume.attachments[0].state = "attached";
    if (disk.volume.attachments[0].state == "detaching") {
      disk.volume.attachments.clear();
      disk.volume.state = "available";
    }
  }

  absl::StatusOr<std::string> Make(const VolumeAction& action, const std::string& data, bool formatted) {
    if (const auto known = cloud_.tokens.find(action.token); known != cloud_.tokens.end()) return known->second;
    const std::string id = cloud_.AddDisk(
        goal_.zone, data,
        {{"millrace:volume", goal_.name}, {"millrace:state", action.state}, {"millrace:claim", action.claim}});
    cloud_.disks[id].volume.state = "creating";
    cloud_.disks[id].looks = 1;
    cloud_.disks[id].formatted = formatted;
    cloud_.tokens[action.token] = id;
    return id;
  }

  absl::StatusOr<std::string> Act(const VolumeAction& action) {
    const auto refuse = [](const std::string& why) { return absl::FailedPreconditionError(why); };
    Cloud::Disk* const disk = cloud_.disks.contains(action.volume) ? &cloud_.disks[action.volume] : nullptr;
    switch (action.kind) {
      case Kind::kCreateBlank:
        return Make(action, "", false);
      case Kind::kCopy: {
        const Cloud::Shot& shot = cloud_.shots.at(action.snapshot);
        if (shot.snapshot.state != "completed") return refuse("snapshot pending");
        return Make(action, shot.data, shot.formatted);
      }
      case Kind::kSnapshot: {
        const std::string id = fmt::format("snap-{}", ++cloud_.made);
        cloud_.shots[id] = {
            {id, action.volume, "pending", "40%", {{"millrace:volume", "job"}, {"millrace:snapshot", action.claim}}},
            disk->data,
            disk->formatted,
            1};
        return id;
      }
      case Kind::kClaim:
      case Kind::kRelease:
        disk->volume.tags["millrace:claim"] = action.claim;
        if (action.kind == Kind::kClaim) disk->volume.tags["millrace:id"] = action.volume;
        return std::string();
      case Kind::kCommit:
        // This is the rule of the whole: what becomes the volume is served by now.
        EXPECT_EQ(cloud_.mounts[goal_.instance], action.volume);
        disk->volume.tags["millrace:claim"] = action.claim;
        disk->volume.tags["millrace:state"] = action.state;
        disk->volume.tags["millrace:id"] = action.volume;
        return std::string();
      case Kind::kAttach:
        if (disk->volume.state != "available") return refuse("not available");
        EXPECT_EQ(disk->volume.zone, goal_.zone);
        disk->volume.state = "in-use";
        disk->volume.attachments = {{goal_.instance, action.device, "attaching"}};
        disk->looks = 1;
        return std::string();
      case Kind::kDetach:
        cloud_.mounts.erase(goal_.instance);
        disk->volume.attachments[0].state = "detaching";
        disk->looks = 1;
        return std::string();
      case Kind::kMakeFileSystem:
        EXPECT_EQ(disk->data, "");
        disk->formatted = true;
        return std::string();
      case Kind::kMount:
        cloud_.mounts[goal_.instance] = action.volume;
        return std::string();
      case Kind::kDeleteVolume:
        if (!disk->volume.attachments.empty()) return refuse("in use");
        cloud_.disks.erase(action.volume);
        return std::string();
      case Kind::kDeleteSnapshot:
        cloud_.shots.erase(action.snapshot);
        return std::string();
      default:
        ADD_FAILURE() << "not an action";
        return std::string();
    }
  }

  Cloud& cloud_;
  const VolumeGoal& goal_;
  int calls_;
  const bool after_effect_;
  absl::Time now_;
};

constexpr int kNever = -1;

absl::StatusOr<VolumeAction> MoveHere(Cloud& cloud, const std::string& instance, int calls = kNever,
                                      bool after_effect = false, std::optional<uint64_t> create = std::nullopt) {
  const VolumeGoal goal{.name = "job",
                        .instance = instance,
                        .zone = cloud.zones[instance],
                        .path = "/data",
                        .create_gib = create,
                        .claim_id = fmt::format("claim{}", ++cloud.made)};
  CloudWorld world(cloud, goal, calls, after_effect);
  return RunVolumeJob(
      world, [&](const VolumeSight& sight) { return DecideMove(goal, sight); }, [](const std::string&) {});
}

// Checks that the volume is served here, whole, alone.
void ExpectServed(Cloud& cloud, const std::string& instance, const std::string& data) {
  ASSERT_EQ(cloud.disks.size(), 1U);
  EXPECT_TRUE(cloud.shots.empty());
  const auto& [id, disk] = *cloud.disks.begin();
  EXPECT_EQ(disk.data, data);
  EXPECT_EQ(disk.volume.zone, cloud.zones[instance]);
  EXPECT_EQ(cloud.mounts[instance], id);
  EXPECT_TRUE(VolumeGeneration(disk.volume).has_value());
}

Cloud WithVolume(const std::string& zone) {
  Cloud cloud;
  cloud.AddDisk(zone, "abc", {{"millrace:volume", "job"}});
  return cloud;
}

TEST(VolumeJob, FollowsToAnotherZone) {
  Cloud cloud = WithVolume("a");
  const std::string instance = cloud.Launch("b");
  ASSERT_TRUE(MoveHere(cloud, instance).ok());
  ExpectServed(cloud, instance, "abc");
  EXPECT_EQ(VolumeGeneration(cloud.disks.begin()->second.volume), 1U);
  ASSERT_TRUE(MoveHere(cloud, instance).ok());  // nothing is left to do
  ExpectServed(cloud, instance, "abc");
}

// Kills a move from zone a to zone b at each call, before and after its effect, and finishes it somewhere.
TEST(VolumeJob, IsKilledAtEachCall) {
  int kills = 0;
  for (const bool after_effect : {false, true}) {
    for (const std::string then : {"here", "a", "b", "c"}) {
      for (int calls = 0;; ++calls) {
        Cloud cloud = WithVolume("a");
        std::string instance = cloud.Launch("b");
        const absl::StatusOr<VolumeAction> first = MoveHere(cloud, instance, calls, after_effect);
        if (first.ok()) break;
        ASSERT_TRUE(absl::IsCancelled(first.status())) << first.status();
        ++kills;
        if (then != "here") {
          cloud.Terminate(instance);
          instance = cloud.Launch(then);
        }
        const absl::StatusOr<VolumeAction> second = MoveHere(cloud, instance);
        ASSERT_TRUE(second.ok()) << second.status() << " after " << calls << " calls, then " << then;
        ExpectServed(cloud, instance, "abc");
      }
    }
  }
  EXPECT_GT(kills, 100);
}

// This is the same with a volume that has to be made.
TEST(VolumeJob, IsKilledAtEachCallOfTheFirstMove) {
  for (const bool after_effect : {false, true}) {
    for (const bool elsewhere : {false, true}) {
      for (int calls = 0;; ++calls) {
        Cloud cloud;
        std::string instance = cloud.Launch("b");
        if (MoveHere(cloud, instance, calls, after_effect, 10).ok()) break;
        if (elsewhere) {
          cloud.Terminate(instance);
          instance = cloud.Launch("c");
        }
        const absl::StatusOr<VolumeAction> second = MoveHere(cloud, instance, kNever, false, 10);
        ASSERT_TRUE(second.ok()) << second.status() << " after " << calls << " calls";
        ExpectServed(cloud, instance, "");
      }
    }
  }
}

// Any interleaving of kills, ends of instances and work: what was written last is what is served.
TEST(VolumeJob, KeepsWhatWasWrittenLast) {
  std::mt19937 rng(5);
  const auto draw = [&rng](int below) { return std::uniform_int_distribution<int>(0, below - 1)(rng); };
  for (int trial = 0; trial < 200; ++trial) {
    Cloud cloud = WithVolume("a");
    std::string data = "abc";
    std::string instance = cloud.Launch("a");
    for (int i = 0; i < 12; ++i) {
      const absl::StatusOr<VolumeAction> moved = MoveHere(cloud, instance, draw(60), draw(2) == 0);
      if (moved.ok()) {
        Cloud::Disk& disk = cloud.disks.at(moved->volume);
        ASSERT_EQ(disk.data, data) << "trial " << trial;
        ASSERT_EQ(cloud.mounts[instance], moved->volume);
        disk.data = data += fmt::format(" {}", i);
      } else {
        ASSERT_TRUE(absl::IsCancelled(moved.status())) << moved.status();
      }
      if (draw(3) == 0) continue;
      cloud.Terminate(instance);
      instance = cloud.Launch(std::string(1, static_cast<char>('a' + draw(3))));
    }
    ASSERT_TRUE(MoveHere(cloud, instance).ok());
    ExpectServed(cloud, instance, data);
  }
}

TEST(VolumeJob, RespectsTheInstanceThatHasIt) {
  Cloud cloud = WithVolume("a");
  const std::string holder = cloud.Launch("a");
  ASSERT_TRUE(MoveHere(cloud, holder).ok());
  const std::string other = cloud.Launch("b");
  const absl::Status refused = MoveHere(cloud, other).status();
  EXPECT_TRUE(absl::IsUnavailable(refused));
  EXPECT_NE(refused.message().find("is attached to " + holder), absl::string_view::npos) << refused;
  ExpectServed(cloud, holder, "abc");
  cloud.instances[holder] = "stopped";
  EXPECT_TRUE(absl::IsFailedPrecondition(MoveHere(cloud, other).status()));
}

TEST(VolumeJob, RespectsTheInstanceThatMovesIt) {
  Cloud cloud = WithVolume("a");
  const std::string first = cloud.Launch("b");
  ASSERT_TRUE(absl::IsCancelled(MoveHere(cloud, first, 4, true).status()));  // after its claim, and a snapshot
  const std::string second = cloud.Launch("c");
  const absl::Status refused = MoveHere(cloud, second).status();
  EXPECT_NE(refused.message().find("is being moved by " + first), absl::string_view::npos) << refused;
  ASSERT_TRUE(MoveHere(cloud, first).ok());
  ExpectServed(cloud, first, "abc");
}

TEST(VolumeJob, NeverDeletesTheLastData) {
  Cloud cloud;
  cloud.AddDisk("a", "copy", {{"millrace:volume", "job"}, {"millrace:state", "copy-of vol-gone"}});
  const std::string instance = cloud.Launch("a");
  EXPECT_TRUE(absl::IsFailedPrecondition(MoveHere(cloud, instance, kNever, false, 10).status()));
  EXPECT_EQ(cloud.disks.size(), 1U);
  cloud.disks.clear();
  cloud.shots["snap-1"] = {{"snap-1", "vol-gone", "completed", "100%", {}}, "shot", true, 0};
  EXPECT_TRUE(absl::IsFailedPrecondition(MoveHere(cloud, instance, kNever, false, 10).status()));
  EXPECT_EQ(cloud.shots.size(), 1U);
}

// A backup has the tags of its volume, and is older than it.
TEST(VolumeJob, LeavesSnapshotsOfOthersAlone) {
  Cloud cloud = WithVolume("a");
  const std::string volume = cloud.disks.begin()->first;
  const Ec2Tags tags{{"millrace:volume", "job"}, {"team", "speech"}};
  cloud.shots["snap-backup"] = {{"snap-backup", volume, "completed", "100%", tags}, "old", true, 0};
  const std::string instance = cloud.Launch("b");
  ASSERT_TRUE(MoveHere(cloud, instance).ok());
  ASSERT_EQ(cloud.shots.size(), 1U);
  EXPECT_EQ(cloud.shots.begin()->first, "snap-backup");
  const Cloud::Shot backup = cloud.shots.begin()->second;
  cloud.shots.clear();
  ExpectServed(cloud, instance, "abc");

  cloud.Terminate(instance);
  cloud.shots["snap-backup"] = backup;
  const VolumeGoal goal{.name = "job"};
  CloudWorld world(cloud, goal, kNever, false);
  const auto decide = [&](const VolumeSight& sight) { return DecideRemove(goal, sight); };
  std::string said;
  const absl::StatusOr<VolumeAction> removed =
      RunVolumeJob(world, decide, [&said](const std::string& text) { said = text; });
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_TRUE(cloud.disks.empty());
  EXPECT_EQ(cloud.shots.size(), 1U);
  EXPECT_NE(said.find("1 snapshot"), std::string::npos) << said;
}

// One of an earlier claim may be older than what was written since.
TEST(VolumeJob, MakesASnapshotForEachClaim) {
  Cloud cloud = WithVolume("a");
  const std::string volume = cloud.disks.begin()->first;
  const Ec2Tags tags{{"millrace:volume", "job"}, {"millrace:snapshot", "i-gone claim0"}};
  cloud.shots["snap-old"] = {{"snap-old", volume, "completed", "100%", tags}, "old", true, 0};
  const std::string instance = cloud.Launch("b");
  ASSERT_TRUE(MoveHere(cloud, instance).ok());
  ExpectServed(cloud, instance, "abc");
}

TEST(VolumeJob, DeletesNoVolumeThatItNeverHad) {
  Cloud cloud = WithVolume("a");
  const std::string instance = cloud.Launch("b");
  ASSERT_TRUE(MoveHere(cloud, instance).ok());
  cloud.AddDisk("b", "of the user", {{"millrace:volume", "job"}});
  const absl::Status refused = MoveHere(cloud, instance).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_NE(refused.message().find("Remove that tag from it"), absl::string_view::npos) << refused;
  EXPECT_EQ(cloud.disks.size(), 2U);
}

// A restore of a backup may have all tags of the volume.
TEST(VolumeJob, DeletesNoRestoredVolume) {
  for (const bool moved : {true, false}) {  // or only claimed
    Cloud cloud = WithVolume("a");
    const std::string first = cloud.Launch(moved ? "b" : "a");
    ASSERT_TRUE(MoveHere(cloud, first).ok());
    const Ec2Tags tags = cloud.disks.begin()->second.volume.tags;
    cloud.Terminate(first);
    const std::string second = cloud.Launch("c");
    ASSERT_TRUE(MoveHere(cloud, second).ok());
    const std::string restored = cloud.AddDisk("c", "restored", tags);
    const absl::Status refused = MoveHere(cloud, second).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_NE(refused.message().find(restored), absl::string_view::npos) << refused;
    EXPECT_EQ(cloud.disks.size(), 2U);
  }
}

TEST(VolumeJob, SaysWhatIsWrong) {
  Cloud none;
  EXPECT_TRUE(absl::IsNotFound(MoveHere(none, none.Launch("a")).status()));

  Cloud two = WithVolume("a");
  two.AddDisk("b", "other", {{"millrace:volume", "job"}});
  EXPECT_TRUE(absl::IsFailedPrecondition(MoveHere(two, two.Launch("a")).status()));
  EXPECT_EQ(two.disks.size(), 2U);

  Cloud raw = WithVolume("a");
  raw.disks.begin()->second.formatted = false;
  const absl::Status unformatted = MoveHere(raw, raw.Launch("a"), kNever, false, 10).status();
  EXPECT_NE(unformatted.message().find("no file system"), absl::string_view::npos) << unformatted;
  EXPECT_FALSE(raw.disks.begin()->second.formatted);

  Cloud broken = WithVolume("a");
  broken.disks.begin()->second.volume.state = "error";
  EXPECT_TRUE(absl::IsDataLoss(MoveHere(broken, broken.Launch("a")).status()));
}

TEST(VolumeJob, DetachesAndRemoves) {
  Cloud cloud = WithVolume("a");
  const std::string instance = cloud.Launch("a");
  ASSERT_TRUE(MoveHere(cloud, instance).ok());
  const VolumeGoal goal{.name = "job", .instance = instance, .zone = "a", .path = "/data"};
  const auto run = [&](VolumeAction (*decide)(const VolumeGoal&, const VolumeSight&)) {
    CloudWorld world(cloud, goal, kNever, false);
    return RunVolumeJob(
               world, [&](const VolumeSight& sight) { return decide(goal, sight); }, [](const std::string&) {})
        .status();
  };
  EXPECT_TRUE(absl::IsFailedPrecondition(run(DecideRemove)));
  EXPECT_EQ(cloud.disks.size(), 1U);
  ASSERT_TRUE(run(DecideDetach).ok());
  EXPECT_TRUE(cloud.mounts.empty());
  EXPECT_EQ(ClaimInstance(cloud.disks.begin()->second.volume), "");
  // Another instance need not wait for the end of this one.
  const std::string other = cloud.Launch("b");
  ASSERT_TRUE(MoveHere(cloud, other).ok());
  ExpectServed(cloud, other, "abc");
  cloud.Terminate(other);
  ASSERT_TRUE(run(DecideRemove).ok());
  EXPECT_TRUE(cloud.disks.empty());
}

}  // namespace
}  // namespace millrace
