#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "job/job_channels.h"
#include "job/job_options.h"
#include "supervisor/supervisor.h"
#include "volume/volume_session.h"

namespace millrace {

/// Represents a git repository for the command.
struct CodeOptions {
  std::string source;           // URL[@REF]; "": none
  std::string folder = "code";  // of the clone
};

/// One run of a command on this host.
struct RunOptions {
  /// The command, its restarts, limits, records and hooks. The run sets the rest: `begun`, `folder`, `code`,
  /// `variables`, `metadata_service`, `journal` and `say`.
  SupervisorOptions supervisor;
  bool retries_given = false;    // those of a request do not count
  bool expects_notices = false;  // the metadata service is asked also elsewhere than on EC2
  std::string journal;           // a file; "": none
  CodeOptions code;
  std::vector<VolumeOptions> volumes;  // are brought here before the first attempt
  JobOptions job;
};

/// Brings volumes, channels, checkpoints and code to this host, then runs the command under a supervisor
/// (supervisor/supervisor.h) and saves what it made. Returns the exit status of the job. If something cannot be
/// prepared, the job ends before its first attempt (EndBeforeBegin). If the job has to continue on another machine, the
/// volumes are released. Call it once, in a program without threads or children.
absl::StatusOr<int> RunJob(const RunOptions& options, const JobTalk& talk);

/// Identifies the job: two runs with the same identity are runs of one job, so the second one may continue with the
/// files of the first. Limits and records do not count, so that they can be changed.
std::string JobIdentity(const RunOptions& options, const TrainingJob& job, const JobPlaces& places);

}  // namespace millrace
