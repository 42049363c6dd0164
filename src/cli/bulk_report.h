#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include "dataset/index_carrier.h"
#include "store/stores.h"
#include "transfer/bulk_job.h"

/// These are the messages of commands at the end of a job on many objects.

namespace millrace::cli {

/// "copied 200 objects (12 without a checksum to verify)": how many were copied, and of how many nothing tells that the
/// bytes are right. "and 2 indexes", if some were carried over.
std::string CopiedText(const BulkReport& copied, uint64_t indexes);

/// Runs IndexCarrier::Carry, with a warning on stderr for each index that stays behind. Returns how many came along.
uint64_t CarryIndexes(std::string_view command, IndexCarrier& indexes, bool changed, const std::stop_token& stop);

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
