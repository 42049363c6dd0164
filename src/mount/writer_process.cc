#include "mount/writer_process.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace millrace {

pid_t ProcessOfThread(pid_t thread) {
  std::ifstream status(fmt::format("/proc/{}/status", thread));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Tgid:")) return std::stoi(line.substr(5));
  }
  return thread;
}

namespace {

// Returns true if the kernel shows us the exit status of that process. This needs the right that links such as this one
// need.
bool ShowsStatus(pid_t process) {
  char target = 0;
  return readlink(fmt::format("/proc/{}/cwd", process).c_str(), &target, 1) >= 0 || errno != EACCES;
}

}  // namespace

bool WasKilled(pid_t thread) {
  const pid_t process = ProcessOfThread(thread);
  std::ifstream stat(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(stat, text);
  const size_t name_end = text.rfind(')');  // a name may have anything in it
  if (name_end == text.npos) return false;
  // From field 3 on; see proc(5): 9 is what the kernel says of the process, 52 its exit status.
  std::istringstream fields(text.substr(name_end + 1));
  std::string word;
  unsigned long flags = 0;
  for (int number = 3; number < 52 && fields >> word; ++number) {
    if (number == 9) flags = std::stoul(word);
  }
  int status = 0;
  if (!(fields >> status)) return false;
  constexpr unsigned long kExiting = 0x4;
  constexpr unsigned long kSignaled = 0x400;
  if ((flags & kExiting) == 0) return false;
  // The status that is not shown is 0, as for another user's process.
  if (!ShowsStatus(process)) return (flags & kSignaled) != 0;
  const int signal = status & 0x7f;
  return signal != 0 && signal != SIGPIPE && signal != SIGXFSZ;  // those two a program brings on itself by writing
}

bool IsBeingKilled(pid_t thread) {
  constexpr auto bit = [](int number) { return uint64_t{1} << (number - 1); };
  // By default, these signals end no process.
  constexpr uint64_t kHarmless = bit(SIGCHLD) | bit(SIGCONT) | bit(SIGURG) | bit(SIGWINCH) | bit(SIGSTOP) |
                                 bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU);
  uint64_t pending = 0;
  uint64_t harmless = kHarmless;  // here: also those that are blocked, ignored or handled
  std::ifstream status(fmt::format("/proc/{}/status", thread));
  for (std::string line; std::getline(status, line);) {
    const std::string_view name = std::string_view(line).substr(0, line.find(':'));
    const bool is_pending = name == "SigPnd" || name == "ShdPnd";
    if (!is_pending && name != "SigBlk" && name != "SigIgn" && name != "SigCgt") continue;
    (is_pending ? pending : harmless) |= std::stoull(line.substr(name.size() + 1), nullptr, 16);
  }
  return (pending & (~harmless | bit(SIGKILL))) != 0;
}

}  // namespace millrace
