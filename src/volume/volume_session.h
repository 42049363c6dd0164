#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/status.h"
#include "net/runtime.h"
#include "volume/ec2_world.h"

namespace millrace {

/// Describes a volume, and how it comes to this instance.
struct VolumeOptions {
  std::string name;                    // the value of its tag millrace:volume
  std::string path;                    // of the mount
  std::optional<uint64_t> create_gib;  // if there is none, one of this size is made
  std::string type = "gp3";            // of one that is made
  absl::Duration wait = absl::Minutes(10);
  std::string dev = "/dev";  // the folder of devices
};

/// Checks the name of one volume; a usage error says how names look.
absl::Status CheckVolumeName(const std::string& name);

/// Is a connection to EC2 for the jobs of volume/volume_job.h. Not thread-safe.
class VolumeSession {
 public:
  /// If `here`, the job is about this instance, and not only about EC2.
  absl::Status Open(const VolumeOptions& options, bool here);

  VolumeGoal& goal() { return goal_; }
  Ec2World& world() { return *world_; }

 private:
  Runtime runtime_{{.io_threads = 1, .cpu_threads = 1}};
  VolumeGoal goal_;
  std::unique_ptr<HostDisks> disks_;
  std::unique_ptr<Ec2Client> client_;
  std::unique_ptr<Ec2World> world_;
};

/// Describes a volume that is mounted on this instance.
struct VolumeHere {
  std::string volume;
  std::string zone;
  std::string device;
};

/// Mounts the volume of that name here, whichever zone it is in (volume/volume_plan.h). `say` gets each step as text.
/// Leaves no threads.
absl::StatusOr<VolumeHere> BringVolume(const VolumeOptions& options,
                                       const std::function<void(const std::string&)>& say);

/// Unmounts it and detaches it from this instance, so that the next one need not wait for the end of this one.
absl::Status ReleaseVolume(const VolumeOptions& options, const std::function<void(const std::string&)>& say);

}  // namespace millrace
