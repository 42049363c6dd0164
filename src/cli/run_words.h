#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/run_flags.h"

namespace millrace::cli {

/// The options of `millrace run` that were given, as words of a command line for what --print prints, without those
/// that it says in its own way. An option that would mean something else there is a usage error that names it. All
/// others are kept, also those that `run` gets later. A value that looks like a secret is a usage error, too, unless
/// --print-secrets is given.
absl::StatusOr<std::vector<std::string>> KeptWords(const RunFlags& flags);

}  // namespace millrace::cli
