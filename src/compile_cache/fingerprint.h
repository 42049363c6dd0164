#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace millrace {

/// Has the properties of this machine, and of the Python that a command runs, on which compiled code depends.
struct CompilerFingerprint {
  std::string about;        // "Python 3.11.2, torch 2.13.0, triton 3.5.0, x86_64 avx2 fma, NVIDIA H100 80GB HBM3"
  std::string Key() const;  // a short hash of it
};

/// Asks the Python of the command for the versions of its packages, without importing them. That Python is the first
/// word that is called python..., or the interpreter of the first word's script, or else python3. The other parts are
/// the instruction sets of the CPU and the kinds of devices (NVIDIA, AMD, Neuron). `root` is "" except in tests: the
/// place of /proc and /sys.
CompilerFingerprint TakeFingerprint(const std::vector<std::string>& command, const std::string& root = "");

/// Returns the program that TakeFingerprint asks.
std::string PythonOfCommand(const std::vector<std::string>& command);

/// Checks a key that the user chose, as a part of keys of objects. InvalidArgument unless it is 1 to 100 letters,
/// digits, '.', '-', '_' and '+', and does not begin with a '.'.
absl::Status CheckCacheKey(const std::string& key);

}  // namespace millrace
