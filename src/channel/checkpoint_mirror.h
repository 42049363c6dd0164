#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "store/stores.h"
#include "transfer/bulk_job.h"

namespace millrace {

/// Copies what is in `from` and is not in `to`, or has another size there and is newer: the checkpoints of an earlier
/// job to this machine. Both are folders. Removes nothing. Blocking; Cancelled soon after a stop.
absl::StatusOr<BulkReport> RestoreCheckpoints(const Location& from, const Location& to, const std::stop_token& stop);

struct CheckpointMirrorOptions {
  std::chrono::milliseconds interval{10'000};
  /// A file that was changed within this time may still be written to: it waits for the next round.
  std::chrono::milliseconds settled{5'000};
  std::function<void(const std::string&)> say;  // on the mirror's thread, and on that of Finish
};

/// Keeps a folder of checkpoints on a store, while a program writes them: what is new or has changed is copied in every
/// round, on a thread of its own: first what lies in folders, then what lies beside them, and of that at last the file
/// that was changed last, which may name the others. Nothing is removed there. A round that fails is said once, and the
/// next one tries again; a file that may not be read, or whose key the place cannot hold, keeps only that last file
/// from being sent. The stores must outlive it.
class CheckpointMirror {
 public:
  CheckpointMirror(Location folder, Location place, CheckpointMirrorOptions options);
  /// Ends without a last round.
  ~CheckpointMirror();
  CheckpointMirror(const CheckpointMirror&) = delete;
  CheckpointMirror& operator=(const CheckpointMirror&) = delete;

  /// The last round, of all files, when the program has ended. Call it once. Cancelled soon after a stop.
  absl::Status Finish(const std::stop_token& stop);

 private:
  /// A file that the place has not, or not as it is now.
  struct Changed {
    ObjectInfo file;
    std::string key;  // at the place
  };

  void Run();
  void End();
  absl::Status Send(std::vector<Changed> files, const std::stop_token& stop);
  absl::Status Round(std::chrono::milliseconds settled, const std::stop_token& stop);

  const Location folder_;
  const Location place_;
  const CheckpointMirrorOptions options_;
  std::set<std::string> said_;               // what went wrong
  std::map<std::string, std::string> sent_;  // the versions of files that are at the place, by key there
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace millrace
