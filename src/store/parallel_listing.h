#pragma once

#include <bitset>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "s3/object.h"

namespace millrace {

/// Lists all keys below a prefix in order with many requests at once, by splitting the space of keys where there turn
/// out to be many. It is a state machine without I/O, which a driver feeds with pages (store/lister.h). Nothing need be
/// known about the keys.
///
/// The space is a row of ranges, each of which is listed page by page. If a request may be made and no range waits for
/// one, a range that has proved long is split. It is split at keys that differ from its current position in one
/// character, taken from those that occurred so far. A split into nothing costs one request. Memory is bounded by
/// `max_buffered`: the further a range is from the front, the sooner it has to wait.
///
/// A split may begin at a key that does not exist. Some stores (MinIO) then answer with a continuation that skips a
/// key, so the next page of such a range begins behind the last key that was returned. Only the first range follows
/// continuations.
///
/// A store that lists its keys in another order than that of their bytes shows it in its first pages, and is not split:
/// what it lists is passed on. Disorder may show later, or the store may ignore `start_after`. Then the first range,
/// which follows the store's own order from the beginning, continues alone to the end. If that range was cut off
/// already, the listing begins again, as long as nothing was taken.
class ParallelListing {
 public:
  struct Options {
    int max_requests = 32;
    uint64_t max_buffered = 200'000;  // objects that wait for those before them, or to be taken
    uint64_t page = 1000;             // objects of a full page
  };
  ParallelListing(std::string prefix, const Options& options);

  struct Request {
    uint64_t range = 0;       // for OnPage
    std::string start_after;  // one of both, or none
    std::string continuation;
  };
  /// Returns the next request to make, or nullopt if none may be made before the next OnPage or Take.
  std::optional<Request> Next();

  /// Takes the answer. Returns DataLoss if the store answers the same page again, or if the page comes out of order and
  /// what was taken forbids to begin again.
  absl::Status OnPage(uint64_t range, ListPage page);

  /// Returns objects that are next in order, as many as are there; empty while they are in flight, or when Done().
  std::vector<ObjectInfo> Take();
  bool Done() const { return ranges_.empty(); }

  int requests_in_flight() const { return in_flight_; }
  uint64_t buffered() const { return buffered_; }

 private:
  /// Lists the keys above `after` up to and including `last`.
  struct Range {
    uint64_t id = 0;
    std::string after;
    std::string last;          // empty: without end
    std::string continuation;  // empty: the next page is asked for by `after`
    std::vector<ObjectInfo> objects;
    int pages = 0;  // since it was made
    bool asked = false;
    bool done = false;
    bool cut = false;  // it is done because the store went beyond `last`
  };
  using Ranges = std::list<Range>;
  using Kinds = std::bitset<5>;

  bool MayAsk(int place) const;
  std::optional<Request> Ask(Range& range);
  bool Split();
  std::vector<std::string> SplitPoints(const Range& range, size_t most) const;
  void AddPoints(std::string_view key, size_t stem_size, int above, int below, std::vector<std::string>* points) const;
  std::optional<std::string> FindDisorder(const Range& range, const std::vector<ObjectInfo>& objects) const;
  bool FollowTheStore();
  static bool CutAt(const std::string& last, ListPage* page);
  void Learn(const std::vector<ObjectInfo>& objects);

  const std::string prefix_;
  const Options options_;
  Ranges ranges_;             // in order of keys; those before the first are taken
  std::bitset<256> seen_;     // characters of keys, after the prefix
  std::vector<Kinds> kinds_;  // and of which kinds, by their place
  uint64_t next_id_ = 0;
  int in_flight_ = 0;
  uint64_t buffered_ = 0;
  bool ordered_ = true;
  bool split_ = false;
  bool taken_ = false;
  uint64_t first_id_ = 0;  // of the range that began without a start_after
};

}  // namespace millrace
