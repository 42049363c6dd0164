#pragma once

#include <cstdint>
#include <optional>

namespace millrace {

/// Says if the kernel has killed a process for lack of memory since this was made. It looks at the cgroup of this
/// process and those below it (version 2), else at the whole machine.
class MemoryKills {
 public:
  MemoryKills();
  /// The count of the whole machine, on which others run too, is believed only if `killed`: the command was killed by
  /// SIGKILL.
  bool Happened(bool killed) const;

 private:
  const std::optional<uint64_t> group_;
  const std::optional<uint64_t> machine_;
};

}  // namespace millrace
