#include "volume/volume_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace millrace {
namespace {

using Kind = VolumeAction::Kind;

const absl::Time kThen = absl::FromUnixSeconds(1'800'000'000);

const VolumeGoal kGoal{
    .name = "job", .instance = "i-B", .zone = "b", .path = "/data", .create_gib = 10, .claim_id = "cB"};

Ec2Volume VolumeIn(const std::string& zone, Ec2Tags tags, const std::string& id = "vol-1") {
  tags["millrace:volume"] = "job";
  return {.id = id, .zone = zone, .state = "available", .type = "gp3", .tags = std::move(tags)};
}

Ec2Snapshot SnapshotFor(const std::string& claim) {
  return {"snap-1", "vol-1", "completed", "100%", {{"millrace:volume", "job"}, {"millrace:snapshot", claim}}};
}

// The volume in another zone, and both instances live.
VolumeSight SightWith(Ec2Tags tags) {
  VolumeSight sight;
  sight.now = kThen;
  sight.volumes = {VolumeIn("a", std::move(tags))};
  sight.instances = {{"i-A", "running"}, {"i-B", "running"}};
  return sight;
}

// Claims the volume of a sight. Returns the claim.
std::string ClaimIt(VolumeSight& sight) {
  const VolumeAction action = DecideMove(kGoal, sight);
  EXPECT_EQ(action.kind, Kind::kClaim) << action.text;
  sight.volumes[0].tags["millrace:claim"] = action.claim;
  sight.volumes[0].tags["millrace:id"] = action.volume;
  return action.claim;
}

// An instance that lost its claim, claims again, and finds the snapshot of its first claim completed by now: another
// instance may have written to the volume in between.
TEST(VolumePlan, TakesNoSnapshotOfAnEarlierClaimOfItsOwn) {
  VolumeSight sight = SightWith(Ec2Tags{});
  const std::string first = ClaimIt(sight);
  sight.volumes[0].tags["millrace:claim"] = "";
  for (const std::string& claim : {first, std::string("i-B cB")}) {
    VolumeSight later = sight;
    later.snapshots = {SnapshotFor(claim)};
    EXPECT_NE(ClaimIt(later), claim);
    const VolumeAction next = DecideMove(kGoal, later);
    EXPECT_EQ(next.kind, Kind::kDeleteSnapshot) << next.text;
    EXPECT_EQ(next.snapshot, "snap-1");
  }
}

TEST(VolumePlan, TakesASnapshotOfItsClaimUnlessItBeganBefore) {
  VolumeSight sight = SightWith(Ec2Tags{});
  const std::string claim = ClaimIt(sight);
  EXPECT_EQ(DecideMove(kGoal, sight).kind, Kind::kSnapshot);
  sight.snapshots = {SnapshotFor(claim)};
  EXPECT_EQ(DecideMove(kGoal, sight).kind, Kind::kCopy);  // EC2 does not say when
  sight.snapshots[0].started = kThen;
  EXPECT_EQ(DecideMove(kGoal, sight).kind, Kind::kCopy);
  sight.snapshots[0].started = kThen - absl::Milliseconds(1);
  EXPECT_EQ(DecideMove(kGoal, sight).kind, Kind::kDeleteSnapshot);
  // Claims of earlier versions have no time.
  sight.volumes[0].tags["millrace:claim"] = "i-B cB";
  sight.snapshots[0].tags["millrace:snapshot"] = "i-B cB";
  EXPECT_EQ(DecideMove(kGoal, sight).kind, Kind::kCopy);
}

TEST(VolumePlan, TakesNoCopyOfAnotherClaim) {
  VolumeSight sight = SightWith(Ec2Tags{});
  const std::string claim = ClaimIt(sight);
  const Ec2Tags tags{{"millrace:state", "copy-of vol-1"}, {"millrace:claim", "i-B earlier"}};
  sight.volumes.push_back(VolumeIn("b", tags, "vol-2"));
  EXPECT_EQ(DecideMove(kGoal, sight).kind, Kind::kDeleteVolume);
  sight.volumes[1].tags["millrace:claim"] = claim;
  EXPECT_EQ(DecideMove(kGoal, sight).kind, Kind::kAttach);
}

// It writes from now on, and may be gone before the next look.
TEST(VolumePlan, GivesItsClaimUpIfAnotherInstanceHasTheVolume) {
  VolumeSight sight = SightWith(Ec2Tags{});
  ClaimIt(sight);
  sight.volumes[0].attachments = {{"i-A", "/dev/sdf", "attached"}};
  const VolumeAction next = DecideMove(kGoal, sight);
  EXPECT_EQ(next.kind, Kind::kRelease) << next.text;
  EXPECT_EQ(next.volume, "vol-1");
  sight.volumes[0].tags["millrace:claim"] = "";
  EXPECT_EQ(DecideMove(kGoal, sight).kind, Kind::kWait);
}

TEST(VolumePlan, UsesNoTokenOfACopyInError) {
  VolumeSight sight = SightWith(Ec2Tags{});
  const std::string claim = ClaimIt(sight);
  sight.snapshots = {SnapshotFor(claim)};
  const VolumeAction copy = DecideMove(kGoal, sight);
  ASSERT_EQ(copy.kind, Kind::kCopy);
  sight.volumes.push_back(VolumeIn("b", {{"millrace:state", copy.state}, {"millrace:claim", claim}}, "vol-2"));
  sight.volumes[1].state = "error";
  const std::string again = ClaimIt(sight);
  EXPECT_NE(again, claim);
  EXPECT_EQ(DecideMove(kGoal, sight).kind, Kind::kDeleteVolume);
  sight.volumes.pop_back();
  sight.snapshots = {SnapshotFor(again)};
  const VolumeAction other = DecideMove(kGoal, sight);
  ASSERT_EQ(other.kind, Kind::kCopy);
  EXPECT_NE(other.token, copy.token);
}

TEST(VolumePlan, UsesNoTokenOfABlankInError) {
  VolumeSight sight;
  const VolumeAction blank = DecideMove(kGoal, sight);
  ASSERT_EQ(blank.kind, Kind::kCreateBlank);
  EXPECT_EQ(DecideMove(kGoal, sight).token, blank.token);  // an answer that was lost makes no second one
  sight.volumes = {VolumeIn("b", {{"millrace:state", "blank"}}, "vol-2")};
  sight.volumes[0].state = "error";
  const VolumeAction other = DecideMove(kGoal, sight);
  ASSERT_EQ(other.kind, Kind::kCreateBlank) << other.text;
  EXPECT_NE(other.token, blank.token);
  sight.volumes.push_back(VolumeIn("b", {{"millrace:state", "blank"}}, "vol-3"));
  const VolumeAction next = DecideMove(kGoal, sight);
  EXPECT_EQ(next.kind, Kind::kDeleteVolume);
  EXPECT_EQ(next.volume, "vol-2");
}

// No volume is deleted, not even a copy that comes first.
TEST(VolumePlan, RemovesNothingIfOneMustStay) {
  const VolumeGoal nowhere{.name = "job"};  // `rm` need not run on an instance
  const Ec2Volume copy = VolumeIn("b", {{"millrace:state", "copy-of vol-1"}}, "vol-0");
  const auto decide = [&](const Ec2Volume& volume, const std::string& state) {
    VolumeSight sight;
    sight.volumes = {copy, volume};
    sight.instances = {{"i-A", state}};
    return DecideRemove(nowhere, sight);
  };
  const Ec2Tags served{{"millrace:state", "serves 3"}, {"millrace:id", "vol-1"}};
  Ec2Tags claimed = served;
  claimed["millrace:claim"] = "i-A id";
  Ec2Tags restored = served;
  restored["millrace:id"] = "vol-9";

  const VolumeAction moving = decide(VolumeIn("a", claimed), "running");
  EXPECT_TRUE(absl::IsFailedPrecondition(moving.status)) << moving.text;
  EXPECT_NE(moving.status.message().find("is being moved by i-A, which is running; run `millrace volume detach job`"),
            absl::string_view::npos)
      << moving.status;
  EXPECT_NE(decide(VolumeIn("a", {}), "running").status.message().find("was never moved; take the tag"),
            absl::string_view::npos);
  EXPECT_NE(decide(VolumeIn("a", restored), "running").status.message().find("the tags of vol-9"),
            absl::string_view::npos);
  for (const auto& [tags, state] : std::vector<std::pair<Ec2Tags, std::string>>{
           {claimed, "terminated"}, {claimed, ""}, {served, "running"}, {{{"millrace:claim", ""}}, "running"}}) {
    EXPECT_EQ(decide(VolumeIn("a", tags), state).kind, Kind::kDeleteVolume) << state;
  }
  // This is a copy that an instance makes.
  Ec2Volume made = copy;
  made.tags["millrace:claim"] = "i-A id";
  EXPECT_TRUE(absl::IsFailedPrecondition(decide(made, "pending").status));
}

}  // namespace
}  // namespace millrace
