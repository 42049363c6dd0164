#pragma once

#include <string>

#include "base/status.h"
#include "volume/volume_session.h"

namespace millrace::cli {

/// The options of a volume as they were given.
struct VolumeFlags {
  VolumeOptions options;
  std::string create;  // a size; "": none is made
  std::string wait = "10m";
};

/// Returns a usage error if its size or its time is none.
absl::StatusOr<VolumeOptions> TakeVolume(const VolumeFlags& flags);

/// "NAME=PATH[,create=SIZE][,type=TYPE][,wait=TIME][,dev=DIR]" as `millrace run --volume` takes it. A usage error if it
/// is something else.
absl::StatusOr<VolumeOptions> ParseVolumeOption(const std::string& text);

}  // namespace millrace::cli
