#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace millrace::cli {

/// What brings a volume to this instance.
struct VolumeFlags {
  std::string name;
  std::string path;
  std::string create;  // a size; "": none is made
  std::string type = "gp3";
  std::string wait = "10m";
  std::string dev = "/dev";
};

struct VolumeHere {
  std::string volume;
  std::string zone;
  std::string device;
};

/// Mounts the volume of that name here, whichever zone it is in (volume/volume_plan.h). `say` is told each step. Leaves
/// no threads.
absl::StatusOr<VolumeHere> BringVolume(const VolumeFlags& flags, const std::function<void(const std::string&)>& say);

/// Unmounts it and detaches it from this instance, so that the next one need not wait for the end of this one.
absl::Status ReleaseVolume(const VolumeFlags& flags, const std::function<void(const std::string&)>& say);

/// "NAME=PATH[,create=SIZE][,type=TYPE][,wait=TIME][,dev=DIR]" as `millrace run --volume` takes it. A usage error if it
/// is something else.
absl::StatusOr<VolumeFlags> ParseVolumeOption(const std::string& text);

}  // namespace millrace::cli
