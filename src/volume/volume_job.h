#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "base/status.h"
#include "volume/volume_plan.h"

namespace millrace {

/// Is EC2 and this machine, as a volume job sees them and acts on them. Each call may be the last one of the process.
class VolumeWorld {
 public:
  virtual ~VolumeWorld() = default;
  virtual absl::StatusOr<VolumeSight> Look() = 0;
  /// Does one action except kWait, kDone and kFail. Returns what it made: the id of a volume or snapshot; else "".
  /// Unavailable, FailedPrecondition and NotFound mean that what was seen has changed, or was not yet true; look again.
  virtual absl::StatusOr<std::string> Do(const VolumeAction& action) = 0;
  virtual absl::Time Now() = 0;
  virtual void Sleep(absl::Duration time) = 0;
};

using VolumeDecision = std::function<VolumeAction(const VolumeSight&)>;

/// Looks, decides and acts until the decision is kDone, which is returned, or kFail. It waits for actions of EC2. If
/// EC2 refuses an action for now, it tries again, up to ten times in a row. `say` gets each step: a sentence without
/// its end.
absl::StatusOr<VolumeAction> RunVolumeJob(VolumeWorld& world, const VolumeDecision& decide,
                                          const std::function<void(const std::string&)>& say);

}  // namespace millrace
