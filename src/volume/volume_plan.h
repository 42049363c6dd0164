#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "volume/ec2_documents.h"

/// A volume follows its job from zone to zone. All that is known is in EC2 and on this machine: the next step is a
/// function of the state that is seen there. So if a job is killed at any step, it continues at that step, on this
/// machine or on another one. Pure, except for the random id of each new claim.
///
/// The tag millrace:volume is the name of a volume, of its copies and of its snapshots. millrace:state says what a
/// volume is worth:
///   (no tag)          a volume of the user, before it was ever moved
///   "serves N"        the volume; N grows with each move, and the greatest N counts
///   "copy-of VOLUME"  a copy that nobody has written to yet
///   "blank"           a new volume that nobody has written to yet
/// One call of CreateTags makes a mounted copy the volume. Until then the older one is whole, and nothing is written to
/// the copy. Afterwards the older one and the snapshots are deleted.
///
/// The tag millrace:claim, on the volume, is "INSTANCE ID TIME": the instance that moves it, and since when. A claim of
/// an instance that lives is respected. Each claim has a new ID. So a process that loses its claim and claims again
/// does not take the copies that it made for the first one.
///
/// The tag millrace:id, written with the claim, is the volume's own id. A restore of a backup may have all tags of its
/// volume, but it has another id.
///
/// The tag millrace:snapshot, on the snapshots that a move makes, and millrace:claim, on copies, is the claim that they
/// were made for. Snapshots without it are backups that others made: they are neither used nor deleted.

namespace millrace {

inline constexpr std::string_view kVolumeNameTag = "millrace:volume";
inline constexpr std::string_view kVolumeStateTag = "millrace:state";
inline constexpr std::string_view kVolumeClaimTag = "millrace:claim";
inline constexpr std::string_view kVolumeIdTag = "millrace:id";
inline constexpr std::string_view kSnapshotTag = "millrace:snapshot";

struct VolumeGoal {
  std::string name;
  std::string instance;                // this machine,
  std::string zone;                    // and where it is
  std::string path;                    // of the mount
  std::optional<uint64_t> create_gib;  // make a blank volume if there is none
  std::string create_type = "gp3";
  std::string claim_id;                         // of this process: a blank volume that it makes is made once
  absl::Duration patience = absl::Minutes(10);  // for what other instances do
};

/// States the contents of a device.
enum class DeviceContent { kNothing, kFileSystem, kOther };

/// Describes a volume that is attached to this machine, as the machine sees it.
struct LocalVolume {
  std::string device;  // "": it has not appeared
  DeviceContent content = DeviceContent::kNothing;
  bool mounted = false;  // at the goal's path
};

/// Holds the state of all things of a name, as it was seen.
struct VolumeSight {
  absl::Time now = absl::InfinitePast();  // by EC2's clock, not later than it is there
  std::vector<Ec2Volume> volumes;         // without those that are being deleted
  std::vector<Ec2Snapshot> snapshots;
  std::map<std::string, std::string> instances;  // the states of those that the volumes name, as far as they are known
  std::vector<std::string> taken_devices;        // of this instance
  std::map<std::string, LocalVolume> here;       // by volume
  std::string mounted_source;                    // what is mounted at the goal's path; "": nothing
};

struct VolumeAction {
  enum class Kind {
    kWait,
    kCreateBlank,
    kClaim,     // write the claim of this process, and the millrace:id, on the volume
    kRelease,   // clear it
    kSnapshot,  // of the volume, for the claim `claim`
    kCopy,      // a volume like `like` from the snapshot, with `token` as its ClientToken
    kAttach,    // as `device`
    kDetach,    // unmounted before
    kMakeFileSystem,
    kMount,
    kCommit,  // the volume gets the state `state`, the claim `claim` and its millrace:id
    kDeleteVolume,
    kDeleteSnapshot,
    kDone,
    kFail,
  };

  Kind kind = Kind::kFail;
  std::string text;    // a sentence without its end, for people
  std::string volume;  // that it is done to, or that serves
  std::string snapshot;
  std::string device;
  std::string state;
  std::string claim;
  std::string token;
  Ec2Volume like;
  absl::Duration limit = absl::InfiniteDuration();  // of the wait, as long as `text` stays the same
  absl::Status status;                              // of kFail
};

/// Decides the next step on the way to the volume being mounted here, and nothing left over.
VolumeAction DecideMove(const VolumeGoal& goal, const VolumeSight& sight);

/// Decides the steps until the volume is attached to no instance. Nothing is done if it is not attached here.
VolumeAction DecideDetach(const VolumeGoal& goal, const VolumeSight& sight);

/// Decides the steps until the volume, its copies and the snapshots of moves are deleted. Fails before anything is
/// deleted if an instance has one or moves it, and if one was never moved or was restored from a backup.
VolumeAction DecideRemove(const VolumeGoal& goal, const VolumeSight& sight);

/// Returns the number of moves in millrace:state; 0 for a volume that was never moved; nullopt for copies and blanks.
std::optional<uint64_t> VolumeGeneration(const Ec2Volume& volume);

/// Returns true if a move made it, so that it may be used and deleted.
bool IsSnapshotOfMove(const Ec2Snapshot& snapshot);

/// Returns the instance of a claim; "" if there is none.
std::string ClaimInstance(const Ec2Volume& volume);

}  // namespace millrace
