#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "channel/channel_items.h"
#include "channel/training_job.h"

namespace millrace {

/// Represents a channel in FastFile mode.
struct MountInput {
  Channel channel;
  std::optional<ChannelItems> items;  // if they are not all objects below the URI: what of it this host gets
};

/// The file systems of channels in FastFile mode: each is served by a process of its own, so that RunSupervised finds
/// no threads. If this process dies, they unmount and end.
class ChannelMounts {
 public:
  /// Mounts them on the folders of the channels. Without threads. FailedPrecondition if such a folder holds files that
  /// Millrace did not copy there; the errors of Mount::Open.
  static absl::StatusOr<std::unique_ptr<ChannelMounts>> Make(const TrainingJob& job, std::vector<MountInput> inputs,
                                                             const std::function<void(const std::string&)>& say);
  /// Unmounts them; what programs still have open there gives errors.
  ~ChannelMounts();
  ChannelMounts(const ChannelMounts&) = delete;
  ChannelMounts& operator=(const ChannelMounts&) = delete;

  /// Says which channel lost its process, if one did.
  std::optional<absl::Status> TakeFailure();

 private:
  struct Served {
    std::string channel;
    std::string folder;
    pid_t pid = -1;
  };
  ChannelMounts() = default;
  absl::Status Mount(const TrainingJob& job, const MountInput& input, uint64_t memory_bytes);

  std::vector<Served> served_;
};

/// Removes from a folder what a mount of Millrace left whose process is dead; waits for one that is about to end. If
/// there is none, does nothing. FailedPrecondition if one stays that is alive.
absl::Status RemoveDeadMount(const std::string& folder);

}  // namespace millrace
