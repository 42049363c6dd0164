#pragma once

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/interrupt.h"
#include "base/long_task.h"
#include "base/usage_error.h"

namespace millrace::cli {

/// The exit status after the reader of standard output went away: that of shells for programs that SIGPIPE ended.
inline constexpr int kOutputClosed = 141;

/// Writes a message to stderr. One that cannot be written is lost: there is nowhere to complain.
template <typename... Args>
void PrintError(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

/// Prints "millrace COMMAND: message" on stderr, without a command "millrace: message". Returns the exit status: 2 for
/// errors that AsUsage marked, 128 + N if signal N interrupted the command, else 1. Prints nothing for Aborted, which
/// says that standard output was closed, and returns kOutputClosed.
int Fail(std::string_view command, const absl::Status& status);

/// Returns the exit status of a command that has ended with this. An error is printed by Fail, which returns the
/// status. A value that is a number is the exit status; false is 1, anything else 0.
int ExitStatus(std::string_view command, const absl::Status& status);
int ExitStatus(std::string_view command, const absl::StatusOr<bool>& succeeded);
int ExitStatus(std::string_view command, const absl::StatusOr<int>& status);

/// Does the same as Fail for a command of which `failed` steps failed; `failures` are the first of them, by URI. Prints
/// each message once, and how many more there were.
void FailEach(std::string_view command, const std::map<std::string, absl::Status>& failures, uint64_t failed);

/// Reports a malformed URI, or a malformed URI of one object, as wrong usage.
absl::Status CheckUri(const std::string& uri);
absl::Status CheckObjectUri(const std::string& uri);

/// Blocks SIGTERM and SIGINT from its making on, so that only Wait takes them. Make it before there are threads.
class StopSignals {
 public:
  StopSignals();
  void Wait() const;

 private:
  sigset_t signals_{};
};

/// Asks on stderr, and reads a line from stdin. True if the answer is "y" or "yes". Call it only if AtTerminal().
bool Confirm(const std::string& question);
/// True if a person can be asked: stdin and stderr are terminals.
bool AtTerminal();

/// Writes all of it to standard output. Aborted if its reader is gone (`millrace cat x | head`).
absl::Status WriteStdout(std::string_view text);

/// The text of a line of progress: how much of a total is done (0: the total is not known), and how fast. The rate
/// appears after two seconds or a hundredth of the work, since earlier figures mean nothing.
std::string ProgressText(std::string_view label, uint64_t done, uint64_t total, double seconds, bool bytes);

/// Represents one line of progress on stderr, redrawn in place, with rate and time left. It is silent unless stderr is
/// a terminal, and if MILLRACE_PROGRESS is "off". Thread-safe.
class ProgressLine {
 public:
  enum class Unit { kItems, kBytes };
  ProgressLine(std::string label, Unit unit);
  ~ProgressLine() { Clear(); }
  void Update(uint64_t done, uint64_t total);  // total 0: not known yet
  void Clear();                                // before anything else is printed
  /// For work that ends before this line does.
  LongTask Task(std::stop_token stop) {
    return {.progress = [this](uint64_t done, uint64_t total) { Update(done, total); }, .stop = std::move(stop)};
  }

 private:
  std::mutex mutex_;
  const std::string label_;
  const Unit unit_;
  const bool enabled_;
  const std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point drawn_{};
  bool shown_ = false;
};

/// A name, or a message with names in it, as text for people: control characters become \x1b, \n and the like. Names
/// may hold any bytes; a terminal must not obey them, nor may one look like two lines. JSON has its own escapes.
std::string Printable(std::string_view text);

}  // namespace millrace::cli
