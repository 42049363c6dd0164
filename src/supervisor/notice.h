#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/status.h"

/// Announcements that this machine will be taken away. Pure.

namespace millrace {

enum class NoticeKind {
  kInterruption,  // EC2 takes a spot instance back
  kMaintenance,   // a scheduled event of EC2: a reboot, a stop, a retirement
  kScaleIn,       // the Auto Scaling group ends this instance
  kRebalance,     // EC2 expects to take this spot instance back
  kSignal,        // SIGUSR1 or SIGUSR2, which a scheduler sends to the supervisor
};

struct Notice {
  NoticeKind kind = NoticeKind::kInterruption;
  std::string detail;            // "terminate", "system-reboot"; "" if the kind says all
  std::optional<absl::Time> at;  // when it takes place, by the clock of this machine
  bool final = true;             // this machine goes away; false: it may, or not soon
};

/// "interruption", "maintenance", "scale-in", "rebalance", "signal"
std::string_view NoticeWord(NoticeKind kind);

/// Parses an answer of the instance metadata service, whose clock is at `now`. InvalidArgument for other documents.
///
/// /spot/instance-action: {"action": "terminate", "time": "2026-01-01T00:00:00Z"}
absl::StatusOr<Notice> ParseInstanceAction(std::string_view json);
/// /events/recommendations/rebalance: {"noticeTime": "2026-01-01T00:00:00Z"}
absl::StatusOr<Notice> ParseRebalance(std::string_view json);
/// /events/maintenance/scheduled: the earliest active event of the list; nullopt if there is none. It is final if it
/// begins within five minutes.
absl::StatusOr<std::optional<Notice>> ParseMaintenance(std::string_view json, absl::Time now);
/// /autoscaling/target-lifecycle-state: a notice if it is "Terminated"; nullopt for all other states.
std::optional<Notice> ParseTargetState(std::string_view text);

/// Returns the time when Slurm kills a job that must end now: `text` is the value of SLURM_JOB_END_TIME, seconds since
/// 1970. At that time the job gets SIGTERM, and 30 seconds later SIGKILL (KillWait), which is what counts from ten
/// seconds before it on. Nullopt if it says nothing: if it is no number, or has passed, since the job was given more
/// time.
std::optional<absl::Time> ParseJobEndTime(std::string_view text, absl::Time now);

/// "EC2 will terminate this spot instance at 2026-01-01T00:00:00Z"
std::string NoticeText(const Notice& notice);

}  // namespace millrace
