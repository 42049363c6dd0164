#include "cli/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <set>

#include "absl/strings/numbers.h"
#include "base/counted.h"
#include "base/size.h"
#include "base/utf8.h"
#include "cli/json_text.h"
#include "store/uri.h"

namespace millrace::cli {

namespace {

constexpr std::chrono::milliseconds kRedraw{100};

std::string Amount(double amount, bool bytes) {
  const auto whole = static_cast<uint64_t>(amount);
  return bytes ? FormatSize(whole) : fmt::format("{}", whole);
}

std::string Duration(double seconds) {
  if (seconds < 60) return fmt::format("{:.0f} s", seconds);
  if (seconds < 3600) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

// The descriptor to which progress and errors are reported, a JSON object a line, for the Python package
// (millrace.pack() and others). -1: nobody asks.
int ReportDescriptor() {
  static const int descriptor = [] {
    const char* const text = std::getenv("MILLRACE_REPORT_FD");
    int number = -1;
    if (text == nullptr || !absl::SimpleAtoi(text, &number) || number <= STDERR_FILENO) return -1;
    return fcntl(number, F_SETFD, FD_CLOEXEC) == 0 ? number : -1;  // no program that this one starts keeps it open
  }();
  return descriptor;
}

// --quiet and --no-progress set the variable.
bool ProgressIsWanted() {
  const char* const setting = std::getenv("MILLRACE_PROGRESS");
  return setting == nullptr || std::string_view(setting) != "off";
}

// A reader that is gone wants to know no more.
void TellReader(const std::string& line) {
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t n = write(ReportDescriptor(), rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    rest.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

int Fail(std::string_view command, const absl::Status& status) {
  if (absl::IsAborted(status)) return kOutputClosed;  // no reader is left
  if (ReportDescriptor() >= 0) {
    TellReader(
        JsonObject{{"code", absl::StatusCodeToString(status.code())}, {"error", ToStd(status.message())}}.Line());
  }
  PrintError("millrace{}{}: {}\n", command.empty() ? "" : " ", command, Printable(ToStd(status.message())));
  if (IsUsage(status)) return 2;
  return absl::IsCancelled(status) && Interrupted() ? 128 + InterruptSignal() : 1;
}

int ExitStatus(std::string_view command, const absl::Status& status) {
  return status.ok() ? 0 : Fail(command, status);
}

int ExitStatus(std::string_view command, const absl::StatusOr<bool>& succeeded) {
  return succeeded.ok() ? (*succeeded ? 0 : 1) : Fail(command, succeeded.status());
}

int ExitStatus(std::string_view command, const absl::StatusOr<int>& status) {
  return status.ok() ? *status : Fail(command, status.status());
}

void FailEach(std::string_view command, const std::map<std::string, absl::Status>& failures, uint64_t failed) {
  std::set<std::string_view> told;
  for (const auto& [uri, failure] : failures) {
    if (told.insert(ToStd(failure.message())).second) Fail(command, failure);
  }
  if (failed <= told.size()) return;
  PrintError("millrace {}: {} failed\n", command, Counted(failed - told.size(), "more object"));
}

absl::Status CheckUri(const std::string& uri) {
  return AsUsage(ParseUri(uri).status());
}

absl::Status CheckObjectUri(const std::string& uri) {
  return AsUsage(ParseObjectUri(uri).status());
}

StopSignals::StopSignals() {
  sigemptyset(&signals_);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&signals_, signal);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
}

void StopSignals::Wait() const {
  int received = 0;
  sigwait(&signals_, &received);
}

bool AtTerminal() {
  return isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
}

bool Confirm(const std::string& question) {
  PrintError("{} [y/N] ", Printable(question));
  std::string answer;
  if (!std::getline(std::cin, answer)) PrintError("\n");  // the end of the input is a refusal, too
  return answer == "y" || answer == "yes";
}

absl::Status WriteStdout(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(STDOUT_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EPIPE) return absl::AbortedError("the reader of standard output is gone");
    if (n < 0) return absl::UnknownError(fmt::format("writing to standard output failed: {}", std::strerror(errno)));
    text.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

std::string ProgressText(std::string_view label, uint64_t done, uint64_t total, double seconds, bool bytes) {
  constexpr double kTellingSeconds = 2;
  std::string text = fmt::format("{} {}", label, Amount(static_cast<double>(done), bytes));
  if (total > 0) text += fmt::format(" of {}", Amount(static_cast<double>(total), bytes));
  const bool tells = seconds >= kTellingSeconds || (total > 0 && done >= total / 100);
  if (!tells || done == 0 || seconds <= 0) return text;
  const double rate = static_cast<double>(done) / seconds;
  text += fmt::format(", {}/s", Amount(rate, bytes));
  if (total > done) text += fmt::format(", {} left", Duration(static_cast<double>(total - done) / rate));
  return text;
}

ProgressLine::ProgressLine(std::string label, Unit unit)
    : label_(std::move(label)),
      unit_(unit),
      enabled_(ReportDescriptor() >= 0 || (isatty(STDERR_FILENO) == 1 && ProgressIsWanted())),
      start_(std::chrono::steady_clock::now()) {}

void ProgressLine::Clear() {
  std::lock_guard lock(mutex_);
  if (std::exchange(shown_, false)) PrintError("\r\x1b[K");
}

void ProgressLine::Update(uint64_t done, uint64_t total) {
  if (!enabled_) return;
  std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (now - drawn_ < kRedraw) return;
  drawn_ = now;
  if (ReportDescriptor() >= 0)
    return TellReader(
        JSON_OF(Named("work", label_), done, total, Named("unit", unit_ == Unit::kBytes ? "bytes" : "items")).Line());
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  PrintError("\r\x1b[K{}", ProgressText(label_, done, total, seconds, unit_ == Unit::kBytes));
  std::fflush(stderr);
}

std::string Printable(std::string_view text) {
  return WithEscapedControls(text);
}

}  // namespace millrace::cli
