#pragma once

#include <sys/types.h>

#include <string>

namespace millrace {

/// Returns the device of the file system in user space that is mounted on `folder`, without asking it. Returns 0 if it
/// is unmounted by now. `below` is the device of the folder that is mounted on.
dev_t DeviceOfMount(const std::string& folder, dev_t below);

/// Has the kernel ask the file system that is mounted on `folder` for up to 512 KiB at a time when a program reads a
/// file forward. By itself it asks for 128 KiB, which costs four times as many context switches. `below` is as above.
/// Needs root and a /sys that can be written to; else, and if the kernel reads further already, nothing is changed.
/// Call it once the kernel has begun.
void RaiseKernelReadAhead(const std::string& folder, dev_t below);

}  // namespace millrace
