#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "dataset/index.h"
#include "store/lister.h"
#include "store/stores.h"

namespace millrace {

/// Where Millrace keeps what belongs to a data set; the objects below it are no samples.
inline constexpr std::string_view kDatasetFolder = ".millrace/";
inline constexpr std::string_view kIndexName = ".millrace/index";

/// An object that is there while something writes the data set: what else is there is not whole yet.
inline constexpr std::string_view kIncompleteName = ".millrace/incomplete";

/// Whether a component of the key starts with a dot.
bool IsHiddenKey(std::string_view key);

/// Lists the objects of a data set that hold samples, in index order.
///
/// Passed over are folder markers (keys ending in '/'), whatever is hidden (a component that starts with a dot),
/// objects whose name makes no sample (sample_name.h), e.g. LICENSE, and what tools put beside shards (IsCompanion).
/// What remains must be shards of one kind only (ShardKind) or raw objects only: InvalidArgument names one of each
/// otherwise, and a compressed shard. Blocking; not thread-safe.
class SampleObjects {
 public:
  /// Gives Cancelled soon after a stop is requested.
  explicit SampleObjects(const Location& data, std::stop_token stop = {})
      : data_(data), lister_(*data.store, data.Key(""), std::move(stop)) {}

  /// The next object, its key taken below the data set's URI; nullopt after the last. FailedPrecondition when the
  /// data set is not complete (kIncompleteName), or the store lists keys out of order.
  absl::StatusOr<std::optional<IndexedObject>> Next();

  /// Of the objects returned so far; meaningless before the first.
  DataKind kind() const { return kind_; }

  /// Those that were passed over as companions of the shards (IsCompanion), below the data set's URI; of MDS only,
  /// where they say which shards there are.
  const std::vector<std::string>& companions() const { return companions_; }

  /// Bytes of all objects of the data set; 0 as long as the listing goes on.
  uint64_t total_bytes() const { return listed_all_ ? listed_bytes_ : 0; }

 private:
  absl::Status ListAhead();
  absl::Status Take(ObjectInfo object);
  absl::Status CheckListed(const ObjectInfo& object, std::string_view key);
  absl::Status Add(std::string key, ObjectInfo object, DataKind kind);
  absl::Status AddUndecided();
  void PassOver(std::string_view key);

  const Location data_;
  Lister lister_;
  std::deque<IndexedObject> ahead_;
  std::string last_key_;
  // What may be companions of shards or raw objects, as long as kind_ is not known.
  std::vector<ObjectInfo> undecided_;
  std::vector<std::string> companions_;
  std::string first_sample_;  // key of the one that decided kind_
  DataKind kind_ = DataKind::kRawObjects;
  bool listed_all_ = false;
  uint64_t listed_bytes_ = 0;
};

/// Compares the objects of an index with those of the store: FailedPrecondition for the first that was changed,
/// added or removed; NotFound when the keys and sizes are those of the index but every ETag is another, as in a data
/// set that was copied together with its index: such an index is as good as none. Does nothing for data sets of more
/// than 10,000 objects, where listing takes too long to do on each opening; reads of them still notice changed objects
/// by their ETags.
absl::Status CheckObjects(const Location& data, const Index& index, const std::stop_token& stop = {});

}  // namespace millrace
