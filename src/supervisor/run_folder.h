#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "supervisor/notice.h"

namespace millrace {

/// Represents a folder of this user alone, in TMPDIR, else in memory. Through it a supervisor and the programs below it
/// communicate, whatever processes lie between them: millrace.heartbeat() and millrace.notice() in Python. It is
/// removed with its owner. If the owner was killed, the next owner on the same machine removes it.
class RunFolder {
 public:
  static absl::StatusOr<std::unique_ptr<RunFolder>> Make();
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  /// The file whose time of change is that of the last heartbeat (MILLRACE_HEARTBEAT).
  std::string heartbeat_file() const { return folder_ + "/heartbeat"; }
  /// The file that holds the newest notice as JSON, once there is one (MILLRACE_NOTICE).
  std::string notice_file() const { return folder_ + "/notice"; }

  /// The file to which programs add the stacks of their threads when StackSignal() comes (MILLRACE_STACKS).
  std::string stacks_file() const { return folder_ + "/stacks"; }

  /// The first and the last step that the program has told with its heartbeats (millrace.heartbeat(step)) in this
  /// attempt; nullopt: none.
  std::optional<std::pair<uint64_t, uint64_t>> Steps() const;

  /// Call it before an attempt: nothing is known of its program.
  absl::Status Begin();
  /// Returns true if there was a heartbeat since the last call.
  bool TakeHeartbeat();
  /// Returns true if the program looks for notices by itself: it has looked once.
  bool ProgramWatches() const;
  /// `end`: when the program will be killed; nullopt: it will not.
  absl::Status Tell(const Notice& notice, std::optional<absl::Time> end) const;

 private:
  RunFolder(std::string folder, UniqueFd lock) : folder_(std::move(folder)), lock_(std::move(lock)) {}
  std::string watched_file() const { return notice_file() + ".watched"; }

  const std::string folder_;
  const UniqueFd lock_;  // held as long as the owner lives
  timespec last_{};
};

}  // namespace millrace
