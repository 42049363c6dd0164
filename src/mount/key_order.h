#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mount/inode_table.h"
#include "store/object_store.h"

namespace millrace {

/// Limits how far ahead of the file that was opened last others are listed and read.
struct AheadLimits {
  size_t files = 128;
  uint64_t bytes = uint64_t{64} << 20;                    // of these files together, of each at most...
  uint64_t file_bytes = uint64_t{1} << 20;                // ...so many, from its beginning on
  std::chrono::nanoseconds ttl{std::chrono::seconds(1)};  // how long a listing is believed
};

/// Tracks the files that follow a file in the order of keys: the part of a listing that a program is in, and how far it
/// has come. Pure: it gets what was opened and what the store has listed, and says what to list and to read.
///
/// A program need not open every file, nor quite in this order, since several processes may share the files. But it
/// must come from a part that is listed here, and move forward. The listing is requested as the program moves, and
/// again before it is too old. Files that came or went between two pages come and go with the newer one. A page that
/// fails is asked for again later, after longer and longer times, and holds up nothing.
class KeyOrder {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Begins at the file `key`, which was just opened.
  KeyOrder(std::string key, AheadLimits limits);

  /// A file was opened. False if it is none of these: the program is elsewhere.
  bool OnOpen(const std::string& key);
  /// Returns how many files were opened that lie near to the front, since one was that lies far ahead.
  size_t hits() const { return hits_; }
  size_t misses() const { return misses_; }

  /// Returns the key behind which a listing is to begin now, if one is due. The answer, with its keys in order, goes to
  /// OnPage or OnFailure.
  std::optional<std::string> NextPage(Time now);
  void OnPage(const std::vector<Node>& files, bool is_last, Time now);
  void OnFailure(Time now);

  /// Returns the files that are to be read now, each once.
  std::vector<Node> TakeWanted();

  /// Returns the file if it is known, fresh, and sure: a folder of the same name would hide it.
  std::optional<Node> Find(const std::string& key, Time now) const;
  /// The file is another one now, or gone.
  void Forget(const std::string& key) { files_.erase(key); }
  size_t known() const { return files_.size(); }

 private:
  void Trim();
  std::ptrdiff_t AheadOfFront(std::map<std::string, Node>::const_iterator file) const;
  bool BeginsAgain(size_t behind);

  const AheadLimits limits_;
  std::map<std::string, Node> files_;
  std::string front_;        // the greatest key that was opened
  std::string sent_;         // up to this key all are read
  bool complete_ = false;    // the last page ended the listing
  bool listing_ = false;     // a page is asked for
  std::string asked_after_;  // the key that it begins after
  bool again_ = false;       // and it begins at the front again
  Time oldest_{};            // of the pages that are ahead
  Time retry_at_{};
  int failures_ = 0;
  size_t hits_ = 0;
  size_t misses_ = 0;
  size_t lagging_ = 0;  // files in a row that were far behind the front
};

}  // namespace millrace
