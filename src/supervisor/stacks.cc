#include "supervisor/stacks.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/atomic_file.h"
#include "base/child_process.h"

namespace millrace {

namespace {

using StacksClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAllStacks{15'000};   // for all processes
constexpr std::chrono::milliseconds kStacksOfOne{5'000};  // for one of them
constexpr std::chrono::milliseconds kQuiet{300};          // after which a process has written all
constexpr std::chrono::milliseconds kLookAgain{20};
constexpr size_t kMostLines = 1000;

std::string ReadProcFile(pid_t pid, const char* name) {
  std::ifstream file(fmt::format("/proc/{}/{}", pid, name));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Returns all below this process, parents first.
std::vector<pid_t> Descendants() {
  std::vector<pid_t> all{getpid()};
  for (size_t i = 0; i < all.size(); ++i) {
    std::error_code error;
    for (std::filesystem::directory_iterator tasks(fmt::format("/proc/{}/task", all[i]), error);
         !error && tasks != std::filesystem::directory_iterator(); tasks.increment(error)) {
      std::ifstream list(tasks->path() / "children");
      for (pid_t pid = 0; list >> pid;) all.push_back(pid);
    }
  }
  all.erase(all.begin());
  return all;
}

// Returns true if the process handles the signal, and has the file open. The signal would end other processes.
bool WritesStacks(pid_t pid, const std::string& path) {
  const std::string status = ReadProcFile(pid, "status");
  const size_t at = status.find("\nSigCgt:");
  if (at == std::string::npos) return false;
  const uint64_t caught = std::strtoull(status.c_str() + at + 8, nullptr, 16);
  if ((caught >> (StackSignal() - 1) & 1) == 0) return false;
  std::error_code error;
  for (std::filesystem::directory_iterator open(fmt::format("/proc/{}/fd", pid), error);
       !error && open != std::filesystem::directory_iterator(); open.increment(error)) {
    std::error_code ignored;
    if (std::filesystem::read_symlink(open->path(), ignored) == path) return true;
  }
  return false;
}

uint64_t SizeOf(const std::string& path) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  return error ? 0 : size;
}

// Returns the text that the process adds to the file. A process that hangs within the kernel adds nothing.
std::string AskForStacks(pid_t pid, const std::string& path, StacksClock::time_point end) {
  const uint64_t before = SizeOf(path);
  uint64_t size = before;
  kill(pid, StackSignal());
  StacksClock::time_point changed = StacksClock::now();
  end = std::min(end, changed + kStacksOfOne);
  while (StacksClock::now() < end && (size == before || StacksClock::now() - changed < kQuiet)) {
    const timespec pause{0, std::chrono::nanoseconds(kLookAgain).count()};
    nanosleep(&pause, nullptr);
    const uint64_t now = SizeOf(path);
    if (now != size) changed = StacksClock::now();
    size = now;
  }
  std::ifstream written(path);
  written.seekg(static_cast<std::streamoff>(before));
  return {std::istreambuf_iterator<char>(written), std::istreambuf_iterator<char>()};
}

// Quotes nothing of what it printed, which may have secrets.
std::string WhyPySpyFailed(const ChildEnd& end, pid_t pid) {
  const std::string errors = absl::AsciiStrToLower(ToAbsl(end.errors));
  for (const char* const word : {"permission", "not permitted", "ptrace", "sudo"}) {
    if (errors.find(word) != std::string::npos)
      return fmt::format(
          "py-spy may not look into process {}: the capability SYS_PTRACE or kernel.yama.ptrace_scope=0 allows it",
          pid);
  }
  return fmt::format("py-spy has ended with status {} for process {}", end.exit_status, pid);
}

// py-spy prints the command line first, which may have secrets, and then the version of Python.
std::string WithoutCommand(std::string text) {
  if (!text.starts_with("Process ")) return text;
  const size_t version = text.find("\nPython v");
  const size_t end = version != std::string::npos ? version : text.find('\n');
  return end == std::string::npos ? "" : text.substr(end + 1);
}

}  // namespace

int StackSignal() {
  return SIGRTMAX - 2;
}

std::string TakeStacks(const std::string& file, const std::function<void(const std::string& line)>& line) {
  std::error_code error;
  const std::string path = std::filesystem::canonical(file, error);
  const StacksClock::time_point end = StacksClock::now() + kAllStacks;
  bool has_py_spy = true;
  std::string failed;
  size_t lines = 0;
  for (const pid_t pid : Descendants()) {
    if (StacksClock::now() >= end || lines >= kMostLines) break;
    std::string name = ReadProcFile(pid, "comm");
    while (name.ends_with('\n')) name.pop_back();
    std::string text;
    if (WritesStacks(pid, path)) text = AskForStacks(pid, path, end);
    if (text.empty() && has_py_spy && (name.starts_with("python") || name.starts_with("pt_"))) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - StacksClock::now());
      const absl::StatusOr<ChildEnd> said = RunChild({.words = {"py-spy", "dump", "--pid", std::to_string(pid)},
                                                      .keep_errors = true,
                                                      .limit = std::clamp(left, kLookAgain, kStacksOfOne)},
                                                     {});
      has_py_spy = !absl::IsNotFound(said.status());
      if (said.ok()) text = WithoutCommand(said->output);
      if (said.ok() && said->exit_status != 0) failed = WhyPySpyFailed(*said, pid);
    }
    if (text.empty()) continue;
    line(fmt::format("process {} ({}):", pid, name));
    for (size_t at = 0; at < text.size() && lines < kMostLines; ++lines) {
      const size_t newline = std::min(text.find('\n', at), text.size());
      line("  " + text.substr(at, newline - at));
      at = newline + 1;
    }
  }
  return failed;
}

void KeepStacks(const std::string& file, const std::string& log_path,
                const std::function<void(const std::string&)>& say) {
  std::string text;
  const std::string failed = TakeStacks(file, [&](const std::string& line) {
    say(line);
    text += line + '\n';
  });
  if (!failed.empty()) say(failed);
  if (text.empty())
    return say(failed.empty() ? "no process says where it hangs; those that import millrace do, or install py-spy"
                              : "no process says where it hangs; those that import millrace do");
  if (log_path.empty()) return;
  const std::string path = log_path + ".stacks";
  const absl::Status kept = WriteFileAtomically(path, text);
  say(kept.ok() ? fmt::format("the stacks are in {}", path) : std::string(ToStd(kept.message())));
}

}  // namespace millrace
