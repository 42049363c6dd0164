#pragma once

#include <nlohmann/json.hpp>

#include "cli/console.h"

namespace millrace::cli {

/// Writes one line of --json. Names that are not UTF-8 lose what JSON cannot hold.
inline absl::Status WriteJson(const nlohmann::json& line) {
  return WriteStdout(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
}

}  // namespace millrace::cli
