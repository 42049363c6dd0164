#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "checkpoint/checkpoints.h"
#include "cli/command_line.h"

/// This file has the commands of `millrace checkpoint`.

namespace millrace::cli {

inline constexpr const char* kCheckpointsHelp = "Where millrace.Checkpoints saves: s3://bucket/prefix or a folder";

/// Represents the checkpoints at each URI of a command, in their order.
using OpenCheckpoints = std::vector<std::unique_ptr<Checkpoints>>;
/// False: the exit status is 1, and the action has said why.
using CheckpointAction = std::function<absl::StatusOr<bool>(const OpenCheckpoints&, const std::stop_token&)>;
/// Opens the checkpoints at the URIs and does `act` with them; returns the exit status.
int WithCheckpoints(const std::vector<std::string>& uris, const CheckpointAction& act);
/// The same for the one URI of a command with these flags.
template <typename Flags, typename Act>
int WithCheckpointsOf(const Flags& flags, const Act& act) {
  return WithCheckpoints({flags.uri}, [&](const OpenCheckpoints& open, const std::stop_token& stop) {
    return act(flags, *open[0], stop);
  });
}

void AddCheckpointDiff(const Command& checkpoint);
void AddCheckpointCp(const Command& checkpoint);
void AddCheckpointExport(const Command& checkpoint);
void AddCheckpointGc(const Command& checkpoint);

}  // namespace millrace::cli
