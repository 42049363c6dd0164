#pragma once

#include <functional>
#include <string>

namespace millrace {

/// Returns the signal on which a Python program that has imported millrace writes the stacks of its threads to the file
/// that MILLRACE_STACKS names.
int StackSignal();

/// Calls `line` with each line of the stacks of the processes below this one, for a command that hangs. Programs that
/// handle the signal write them to `file`; py-spy prints those of other Python programs, if it is installed. Takes some
/// seconds at most; stacks that cannot be had are left out. In a process that is a SupervisorProcess. Returns why
/// py-spy failed for a process, with what it needs; "" if it did not.
std::string TakeStacks(const std::string& file, const std::function<void(const std::string& line)>& line);

/// Keeps the stacks of a command that hangs: in messages, and beside its log unless `log_path` is "". `file` is that of
/// TakeStacks, and `say` gets each message.
void KeepStacks(const std::string& file, const std::string& log_path,
                const std::function<void(const std::string&)>& say);

}  // namespace millrace
