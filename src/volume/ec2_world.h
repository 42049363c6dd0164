#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "volume/ec2_client.h"
#include "volume/volume_job.h"

namespace millrace {

/// Finds and handles file systems on devices, by the programs of the host: blkid, findmnt, mkfs.ext4, mount, umount.
class HostDisks {
 public:
  /// `dev` is the folder of devices, "/dev".
  explicit HostDisks(std::string dev) : dev_(std::move(dev)) {}

  /// Returns the device of a volume that is attached as `name` ("/dev/sdf"), in its present form: by the volume's id,
  /// as udev links NVMe devices; else /dev/xvdf. Returns "" if it has not appeared.
  std::string FindDevice(const std::string& volume, const std::string& name) const;
  absl::StatusOr<DeviceContent> ContentOf(const std::string& device) const;
  /// Returns the device that is mounted at a path; "" if there is none.
  absl::StatusOr<std::string> MountedAt(const std::string& path) const;
  /// Returns the folders on which a device is mounted, also by bind mounts, the oldest first.
  absl::StatusOr<std::vector<std::string>> MountsOf(const std::string& device) const;
  /// Unmounts a device wherever it is mounted. Returns an error if that fails, or if another mount namespace still has
  /// it.
  absl::Status UnmountAll(const std::string& device) const;
  absl::Status MakeFileSystem(const std::string& device) const;
  absl::Status Mount(const std::string& device, const std::string& path) const;

 private:
  const std::string dev_;
};

/// Finds a process of another mount namespace, such as that of a container, which has file systems of a device mounted.
/// Returns "PID at PATH"; "" if there is none. `proc` is "/proc".
std::string MountedByOthers(const std::string& proc, dev_t device);

/// Sees a name's volumes in EC2 and on this machine, and acts on them.
class Ec2World final : public VolumeWorld {
 public:
  /// The instance of `goal` is "" if this is not an instance; the job then only looks and deletes. All outlive it.
  Ec2World(Ec2Client& client, const HostDisks& disks, const VolumeGoal& goal)
      : client_(client), disks_(disks), goal_(goal) {}

  absl::StatusOr<VolumeSight> Look() override;
  /// Looks only at volumes and snapshots. The name of the goal may be a pattern.
  absl::StatusOr<VolumeSight> LookAtVolumes();
  absl::StatusOr<std::string> Do(const VolumeAction& action) override;
  absl::Time Now() override;
  void Sleep(absl::Duration time) override;

 private:
  absl::Status LookAtInstances(VolumeSight& sight);
  absl::Status LookHere(VolumeSight& sight);
  absl::Status Call(const std::string& action, const Ec2Client::Parameters& parameters);
  absl::Status Tag(const std::string& resource, const Ec2Tags& tags);
  absl::StatusOr<std::string> CreateVolume(const VolumeAction& action);
  absl::StatusOr<std::string> CreateSnapshot(const VolumeAction& action);
  absl::Status Detach(const VolumeAction& action);

  Ec2Client& client_;
  const HostDisks& disks_;
  const VolumeGoal& goal_;
  VolumeSight last_;
};

}  // namespace millrace
