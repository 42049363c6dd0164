#include "job/run_metrics.h"

#include <variant>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "supervisor/notice.h"

namespace millrace {

namespace {

/// Returns the value of a field; that of `otherwise` if there is none of its type.
template <typename T>
T FieldOr(const RunJournal::Fields& fields, std::string_view name, T otherwise) {
  for (const auto& [field, value] : fields) {
    if (field != name) continue;
    const T* const found = std::get_if<T>(&value);
    return found != nullptr ? *found : otherwise;
  }
  return otherwise;
}

double NowSeconds() {
  return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
}

}  // namespace

RunMetrics::RunMetrics() {
  for (const NoticeKind kind : {NoticeKind::kInterruption, NoticeKind::kMaintenance, NoticeKind::kScaleIn,
                                NoticeKind::kRebalance, NoticeKind::kSignal})
    notices_[std::string(NoticeWord(kind))] = 0;
}

void RunMetrics::OnEvent(std::string_view event, const RunJournal::Fields& fields) {
  const std::lock_guard lock(mutex_);
  if (event == "start") {
    allowed_ = FieldOr<int64_t>(fields, "attempts", 0);
  } else if (event == "attempt-start") {
    ++attempts_;
    running_ = true;
  } else if (event == "attempt-end") {
    running_ = false;
    seconds_ += FieldOr<double>(fields, "seconds", 0);
    const bool succeeded = FieldOr<int64_t>(fields, "status", 1) == 0;
    if (FieldOr<bool>(fields, "hang", false)) ++hangs_;
    ++ends_[succeeded ? "success" : FieldOr<std::string>(fields, "reason", "unknown")];
  } else if (event == "restart") {
    ++restarts_;
  } else if (event == "end") {
    outcome_ = FieldOr<std::string>(fields, "outcome", "unknown");
    ended_ = NowSeconds();
  } else if (event == "notice") {
    ++notices_[FieldOr<std::string>(fields, "kind", "unknown")];
  }
}

void RunMetrics::Collect(MetricsText* text) const {
  const std::lock_guard lock(mutex_);
  text->Gauge("millrace_run_command_running", "1 while the command runs, 0 between its attempts.", {},
              running_ ? 1 : 0);
  text->Gauge("millrace_run_attempts_allowed", "How many attempts there may be.", {}, static_cast<double>(allowed_));
  text->Counter("millrace_run_attempts_total", "How often the command was started.", {},
                static_cast<double>(attempts_));
  text->Counter("millrace_run_restarts_total", "How often it was decided to start it again.", {},
                static_cast<double>(restarts_));
  text->Counter("millrace_run_attempt_seconds_total", "Time of the attempts that have ended.", {}, seconds_);
  text->Counter("millrace_run_hangs_total", "Attempts that were ended since they gave no sign of life.", {},
                static_cast<double>(hangs_));
  for (const char* const outcome : {"success", "failure", "stopped", "elsewhere"}) {
    text->Gauge("millrace_run_ended", "1 for the way in which the job has ended.", {{"outcome", outcome}},
                outcome_ == outcome ? 1 : 0);
  }
  if (!outcome_.empty()) {
    text->Gauge("millrace_run_end_timestamp_seconds", "When the job has ended, as Unix time.", {}, ended_);
  } else {
    text->Gauge("millrace_run_alive_timestamp_seconds", "When the run said this, as Unix time; not after its end.", {},
                NowSeconds());
  }
  for (const auto& [reason, count] : ends_) {
    text->Counter("millrace_run_attempt_ends_total", "Attempts that have ended, by reason.", {{"reason", reason}},
                  static_cast<double>(count));
  }
  for (const auto& [kind, count] : notices_) {
    text->Counter("millrace_run_notices_total", "Notices that this machine will go away, by kind.", {{"kind", kind}},
                  static_cast<double>(count));
  }
}

}  // namespace millrace
