#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string_view>

#include "store/stores.h"

namespace millrace::cli {

struct PassedOverOptions {
  std::string_view command;
  std::string_view done;     // what it does with objects: "copied"
  bool follow_links = true;  // to folders
  /// Returns true if the command would have processed a file, by its name below the location. Null: all of them.
  std::function<bool(std::string_view name)> wanted;
  std::stop_token stop;
};

/// Names on stderr the entries of a folder that are neither files nor folders: pipes, sockets, devices, and links that
/// lead nowhere or back. It names the first ten, and says how many more there are. Returns their number; 0 for buckets.
uint64_t TellPassedOver(const Location& location, const PassedOverOptions& options);

}  // namespace millrace::cli
