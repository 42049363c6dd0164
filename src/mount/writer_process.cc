#include "mount/writer_process.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>
#include <string>

namespace millrace {

pid_t ProcessOfThread(pid_t thread) {
  std::ifstream status(fmt::format("/proc/{}/status", thread));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Tgid:")) return std::stoi(line.substr(5));
  }
  return thread;
}

bool WasKilled(pid_t thread) {
  std::ifstream stat(fmt::format("/proc/{}/stat", ProcessOfThread(thread)));
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
  return (flags & kExiting) != 0 && (status & 0x7f) != 0;
}

}  // namespace millrace
