#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "supervisor/notice.h"

namespace millrace {

struct AttemptLimits {
  static constexpr std::chrono::milliseconds kNoGraceLimit = std::chrono::hours(10 * 365 * 24);  // others kill it
  std::chrono::milliseconds grace{120 * 1000};          // from a signal that asks to end to SIGKILL
  std::optional<std::chrono::milliseconds> hang_after;  // without a sign of life
  std::optional<int> notice_signal;                     // that the user chose; 0: none
};

/// Decides when one execution of a command is signalled and killed: a state machine without I/O, clock or threads. The
/// caller reports events and their times, carries out the actions, and calls OnTime at Next().
///
/// - A signal that asks the supervisor to end is passed on. SIGTERM is not passed on if the program watches for notices
///   itself: then it is a notice. After a second signal, or after `grace`, the command is killed. If the scheduler has
///   said when it ends the job, the command is killed five seconds before that.
/// - After `hang_after` without a sign of life it gets SIGTERM, and after `grace` SIGKILL.
/// - If a final notice comes, it gets `notice_signal`, or SIGTERM unless the program watches for notices itself. It is
///   killed five seconds before the announced time, or after `grace` if none was announced. A notice that is not final
///   leads to `notice_signal` only, and to no end.
class AttemptWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Milliseconds = std::chrono::milliseconds;

  struct Action {
    int signal = 0;    // to the process group; 0: none
    std::string text;  // a sentence for the user; "" if there is nothing to say
  };

  AttemptWatch(AttemptLimits limits, Time start) : limits_(limits), alive_(start) {}

  /// `left`: until the time that the scheduler or the cloud has announced; nullopt: none was.
  /// `program_watches`: the program looks for notices by itself.
  Action OnStop(int signal, std::optional<Milliseconds> left, bool program_watches, Time now);
  Action OnNotice(const Notice& notice, std::optional<Milliseconds> left, bool program_watches, Time now);
  /// Takes a sign of life: output, a heartbeat, or one of base/life_sign.h.
  void OnAlive(Time when) { alive_ = std::max(alive_, when); }
  Action OnTime(Time now);
  /// The time of the next action; nullopt: nothing is due.
  std::optional<Time> Next() const;

  /// The command was asked to end: other processes of its group may be saving when it has ended.
  bool ending() const { return kill_at_.has_value(); }
  /// The time at which the command will be killed.
  std::optional<Time> kill_at() const { return kill_at_; }
  /// The time that processes that the command has left may take to end: 30 seconds, but no longer than the grace, and
  /// no longer than the command itself was promised.
  Milliseconds LimitOfLeft(Time now) const;
  bool stopped() const { return stopped_; }
  bool hang() const { return hang_; }
  bool leaves() const { return leaves_; }
  /// It was signalled because of advice to leave, less than `grace` ago.
  bool advised(Time now) const { return advised_ && now - *advised_ < limits_.grace; }

 private:
  Milliseconds TimeToEnd(std::optional<Milliseconds> left) const;
  void KillBy(Time time) { kill_at_ = kill_at_ ? std::min(*kill_at_, time) : time; }

  const AttemptLimits limits_;
  Time alive_;
  std::optional<Time> kill_at_;
  std::optional<Time> advised_;
  bool stopped_ = false;
  bool hang_ = false;
  bool leaves_ = false;
};

/// "1.5 s"
std::string SecondsText(std::chrono::milliseconds time);

}  // namespace millrace
