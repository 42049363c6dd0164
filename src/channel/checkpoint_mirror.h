#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "channel/checkpoint_links.h"
#include "channel/file_content.h"
#include "store/stores.h"
#include "transfer/bulk_job.h"

namespace millrace {

/// Copies the checkpoints of an earlier job to this machine: what is in `from` and is not in `to`, or has another size
/// there and is newer. Both are folders. Links come last (checkpoint_links.h). Removes nothing. Blocking; Cancelled
/// soon after a stop.
absl::StatusOr<BulkReport> RestoreCheckpoints(const Location& from, const Location& to, const std::stop_token& stop);

struct CheckpointMirrorOptions {
  std::chrono::milliseconds interval{5'000};
  /// A file that was changed within this time may still be written to: it waits for the next round.
  std::chrono::milliseconds settled{5'000};
  /// Files are held back at most this long: then all files are sent as they are.
  std::chrono::milliseconds most_held{10'000};
  std::function<void(const std::string&)> say;  // on the mirror's thread, and on that of Finish
};

/// Keeps a folder of checkpoints on a store, while a program writes them: new and changed files are copied in every
/// round, on a thread of its own. Files in folders come first, and then files beside them. Those that may name others
/// come last: links, and the file beside folders that was changed last.
///
/// - A file in a folder that may still be written to holds back all of that folder (the first one of its path), so that
///   a step arrives whole. It also holds back files that may name the step. After `most_held` all are sent all the
///   same, with the bytes that they have at that time. Files that are known to lack bytes wait for their end.
/// - A link stays a link (checkpoint_links.h).
/// - Nothing is removed there, but for links that are gone or have become something else.
///
/// A round that fails is reported once, and the next one tries again. A file that may not be read, or whose key the
/// place cannot hold, holds back only the files that may name it. The stores must outlive it.
class CheckpointMirror {
 public:
  /// `folder` is a folder of files.
  CheckpointMirror(Location folder, Location place, CheckpointMirrorOptions options);
  /// Ends without a last round.
  ~CheckpointMirror();
  CheckpointMirror(const CheckpointMirror&) = delete;
  CheckpointMirror& operator=(const CheckpointMirror&) = delete;

  /// Does the last round, of all files, when the program has ended. Call it once. Cancelled soon after a stop.
  absl::Status Finish(const std::stop_token& stop);

 private:
  enum class Urgency { kWhatHasSettled, kAllAsItIs, kLast };
  /// Describes a file that the place does not have, or not as it is now.
  struct Changed {
    ObjectInfo file;
    std::string key;                // at the place
    bool unsettled = false;         // it may still be written to
    std::optional<uint64_t> there;  // the size that it has at the place; nullopt: there is none
  };
  /// Holds all that a round has found.
  struct Found {
    CheckpointLinks links;                     // looked at first
    std::map<std::string, SeenContent> early;  // and of files that may name others what they had in them, by key
    std::vector<Changed> changed;
    std::vector<std::string> stale;  // markers of links that are none any more
    bool holds_back = false;         // something in a folder waits for the next round
  };

  void Run();
  void End();
  absl::Status Round(Urgency urgency, const std::stop_token& stop);
  void ReadEarly(Found& found) const;
  absl::Status Look(Found& found, const std::stop_token& stop);
  void HoldBack(Found& found, Urgency urgency);
  absl::Status Send(const Found& found, Urgency urgency, const std::stop_token& stop);
  absl::Status SendTurn(std::span<const Changed> files, Urgency urgency, const Found& found,
                        const std::stop_token& stop);
  bool IsHalfWritten(const Changed& file);
  absl::Status SendAsItIs(const Changed& file, uint64_t min_bytes, const Found& found, const std::stop_token& stop);
  void OnSent(const std::string& key, std::string version);
  absl::Status SendLinks(const Found& found, const std::stop_token& stop);
  std::string KeyOfLink(const std::string& name) const;
  bool IsSent(const std::string& name, const CheckpointLink& link) const;
  bool IsThere(const std::string& folder) const;
  bool IsBesideFolders(const std::string& key) const;
  bool MayBeUnfinished(int64_t modified_ms) const;

  const Location folder_;
  const Location place_;
  const CheckpointMirrorOptions options_;
  std::set<std::string> said_;               // what went wrong
  std::map<std::string, std::string> sent_;  // the versions of files that are at the place, by key there
  std::set<std::string> unsent_;             // keys that the place has not, or not as they are
  std::map<std::string, uint64_t> sizes_;    // of those that waited in the last round
  std::set<std::string> rewritten_;          // keys of those that were smaller than at the place since they were sent
  std::set<std::string> gone_;               // markers whose links were not there in the last round
  std::optional<std::chrono::steady_clock::time_point> held_since_;
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace millrace
