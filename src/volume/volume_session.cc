#include "volume/volume_session.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "aws/settings.h"
#include "base/crypto.h"
#include "base/usage_error.h"

namespace millrace {

namespace {

constexpr size_t kMaxVolumeName = 256;  // of a value of a tag

}  // namespace

absl::Status CheckVolumeName(const std::string& name) {
  if (!name.empty() && name.size() <= kMaxVolumeName && name.find_first_of("*?\\") == std::string::npos)
    return absl::OkStatus();
  return UsageError("'{}' is no name of a volume; give 1 to {} characters without *, ? and \\", name, kMaxVolumeName);
}

absl::Status VolumeSession::Open(const VolumeOptions& options, bool here) {
  goal_.name = options.name;
  goal_.claim_id = RandomHex(8);
  disks_ = std::make_unique<HostDisks>(options.dev);
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

absl::StatusOr<VolumeHere> BringVolume(const VolumeOptions& options,
                                       const std::function<void(const std::string&)>& say) {
  RETURN_IF_ERROR(CheckVolumeName(options.name));
  if (options.path.empty()) return UsageError("the path of the mount is empty");
  VolumeSession session;
  RETURN_IF_ERROR(session.Open(options, /*here=*/true));
  VolumeGoal& goal = session.goal();
  goal.path = std::filesystem::absolute(options.path).lexically_normal();
  goal.create_gib = options.create_gib;
  goal.create_type = options.type;
  goal.patience = options.wait;
  const auto decide = [&](const VolumeSight& sight) { return DecideMove(goal, sight); };
  ASSIGN_OR_RETURN(const VolumeAction done, RunVolumeJob(session.world(), decide, say));
  return VolumeHere{done.volume, goal.zone, done.device};
}

absl::Status ReleaseVolume(const VolumeOptions& options, const std::function<void(const std::string&)>& say) {
  RETURN_IF_ERROR(CheckVolumeName(options.name));
  VolumeSession session;
  RETURN_IF_ERROR(session.Open(options, /*here=*/true));
  const auto decide = [&](const VolumeSight& sight) { return DecideDetach(session.goal(), sight); };
  return RunVolumeJob(session.world(), decide, say).status();
}

}  // namespace millrace
