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
  /// Whether the command has anything to do with a file, by its name below the location. Null: with all.
  std::function<bool(std::string_view name)> wanted;
  std::stop_token stop;
};

/// Names on stderr what a folder has that is neither a file nor a folder (pipes, sockets, devices, links that lead
/// nowhere or back): the first ten, and how many more. Returns how many there are; of buckets none.
uint64_t TellPassedOver(const Location& location, const PassedOverOptions& options);

}  // namespace millrace::cli
