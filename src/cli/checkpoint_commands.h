#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "checkpoint/checkpoints.h"
#include "cli/command_line.h"

/// The commands of `millrace checkpoint`.

namespace millrace::cli {

inline constexpr const char* kCheckpointsHelp = "Where millrace.Checkpoints saves: s3://bucket/prefix or a folder";

/// False: the exit status is 1, and the action has said why.
using CheckpointAction = std::function<absl::StatusOr<bool>(Checkpoints&, const std::stop_token&)>;
/// Opens the checkpoints at a URI and does `act` with them; returns the exit status.
int WithOneCheckpoints(const std::string& uri, const CheckpointAction& act);

using TwoCheckpointsAction = std::function<absl::StatusOr<bool>(Checkpoints&, Checkpoints&, const std::stop_token&)>;
int WithTwoCheckpoints(const std::string& uri, const std::string& other_uri, const TwoCheckpointsAction& act);

void AddCheckpointDiff(const Command& checkpoint);
void AddCheckpointCp(const Command& checkpoint);
void AddCheckpointGc(const Command& checkpoint);

}  // namespace millrace::cli
