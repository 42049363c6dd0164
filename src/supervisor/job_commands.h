#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "supervisor/attempt_output.h"
#include "supervisor/job_process.h"
#include "supervisor/restart_policy.h"
#include "supervisor/run_folder.h"
#include "supervisor/run_journal.h"
#include "supervisor/supervisor.h"

/// The commands of a job, with what they find in their environment.

namespace millrace {

/// Returns the command of one attempt, which is 1 for the first. `folder` is not null unless the command has another
/// supervisor. `output` is null if the command writes to what this program writes to.
JobCommand AttemptCommand(const SupervisorOptions& options, uint64_t attempt, const RunFolder* folder,
                          const AttemptOutput* output);

/// Returns the command that runs a hook in a shell, after the last attempt.
JobCommand HookCommand(const SupervisorOptions& options, const std::string& command,
                       const RestartPolicy::Decision& decision, uint64_t attempt);

/// Runs a hook, and kills it after its limit or at a signal to stop. Failures are said. Returns the fields of the event
/// `hook`; nullopt if the hook could not be started.
std::optional<RunJournal::Fields> RunJobHook(SupervisorProcess& process, const SupervisorOptions& options,
                                             const char* name, const JobCommand& hook);

}  // namespace millrace
