#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "dataset/dataset_place.h"
#include "dataset/index.h"
#include "dataset/sample_groups.h"
#include "dataset/skipped_objects.h"

namespace millrace {

/// The name of an object that exists while the data set is being written: the other objects are not complete yet.
inline constexpr std::string_view kIncompleteName = ".millrace/incomplete";

/// Returns true if a component of the key starts with a dot, and is more than "." or "..".
bool IsHiddenKey(std::string_view key);

// These are the reasons for which objects are passed over.
inline constexpr std::string_view kDocument = "a document";
inline constexpr std::string_view kContainerBesideImages = "it holds samples of its own, and the others are images";
inline constexpr std::string_view kMisnamedShard = "it may be a shard, by its name, which another program has changed";

/// Returns the reason why an object holds no sample in any data set, by its name below the URI. Returns "" for those
/// that are not reported: markers of folders, and what Millrace keeps beside the data. nullopt for all other objects.
std::optional<std::string_view> WhyPassedOver(const ObjectInfo& object, std::string_view key);

/// The source of the objects of a data set, in index order. Blocking; not thread-safe.
class ObjectSource {
 public:
  virtual ~ObjectSource() = default;

  /// Returns the next object, its key taken below the data set's place; nullopt after the last.
  virtual absl::StatusOr<std::optional<IndexedObject>> Next() = 0;

  /// Returns the kind of the objects returned so far; meaningless before the first.
  virtual DataKind kind() const = 0;

  /// The objects that hold no samples but say which shards there are; only MDS has them.
  virtual const std::vector<std::string>& companions() const = 0;

  /// Returns the object of that key below the data set's place. The key ends with ".idx": a program may have noted in
  /// it where the samples of the shard beside it lie. Null if none was listed so far; only tar has them.
  virtual const ObjectInfo* FindIdx(const std::string& /*key*/) const { return nullptr; }

  /// Returns the objects that were passed over so far.
  virtual const SkippedObjects& skipped() const = 0;

  /// The bytes of all objects of the data set; 0 as long as that is not known.
  virtual uint64_t total_bytes() const = 0;
};

/// Says which objects of a data set hold its samples. The names of token files alone do not say it
/// (shard/token_format.h).
enum class Listing : uint8_t {
  kByName,       // by names; and the .bin and .idx of Megatron, if an .idx beside a .bin begins as such
  kTokenPairs,   // .bin and .idx of Megatron
  kTokenArrays,  // *.bin and *.npy; whatever else is there is passed over
};

/// Returns the listing that fits the data set of an index.
absl::StatusOr<Listing> ListingOf(const Index& index);

/// Lists the objects of a data set that hold samples, in index order. For a folder of a.tar, a.txt and LICENSE, it
/// lists a.tar. The .idx of Megatron's pairs are listed, too.
///
/// These objects are passed over:
/// - folder markers (keys ending in '/'), and all that is hidden (IsHiddenKey);
/// - objects whose name makes no sample (sample_name.h), e.g. LICENSE;
/// - documents (IsDocument), unless there is nothing else;
/// - files of desktops and other programs (IsDesktopFile, IsToolFile);
/// - all that lies beside shards (IsCompanion), unless more than four objects for each shard, and four more, may be
///   samples (MayBeSample);
/// - files of many samples, beside at least 20 times as many images.
///
/// skipped() counts all of them, except empty folder markers and Millrace's own files. Raw objects that are one sample
/// come as one, joined (sample_groups.h). The others must be shards of one kind only (ShardKind), pairs of Megatron
/// only, or raw objects only. Otherwise InvalidArgument names one of each. It also names a compressed shard. Blocking;
/// not thread-safe.
class SampleObjects final : public ObjectSource {
 public:
  /// Gives Cancelled soon after a stop is requested.
  explicit SampleObjects(const DatasetPlace& data, std::stop_token stop = {}, Listing listing = Listing::kByName)
      : data_(data), listing_(listing), stop_(stop), lister_(data, std::move(stop)) {}

  /// Returns the next object, its key taken below the data set's URI; nullopt after the last. FailedPrecondition if the
  /// data set is not complete (kIncompleteName), or the store lists keys out of order.
  absl::StatusOr<std::optional<IndexedObject>> Next() override;

  DataKind kind() const override { return kind_; }

  /// The objects that were passed over as companions of the shards (IsCompanion), below the data set's URI. Only MDS
  /// has them, because they say which shards there are.
  const std::vector<std::string>& companions() const override { return companions_; }

  const ObjectInfo* FindIdx(const std::string& key) const override;

  /// The JSON files that lie beside tar shards. None if there are more than four: each may be about one shard, as those
  /// of img2dataset are.
  std::vector<ObjectInfo> json_files() const { return json_.size() > kMostJson ? std::vector<ObjectInfo>() : json_; }

  const SkippedObjects& skipped() const override { return skipped_; }

  /// The bytes of all objects of the data set (without the .idx of pairs); 0 until the listing has ended.
  uint64_t total_bytes() const override { return listed_all_ ? listed_bytes_ : 0; }

 private:
  static constexpr size_t kMostJson = 4;

  absl::Status ListAhead();
  absl::Status CheckComplete() const;
  absl::Status Take(ObjectInfo object);
  absl::Status CheckListed(const ObjectInfo& object, std::string_view key);
  absl::Status Add(std::string key, ObjectInfo object, DataKind kind);
  absl::Status TakeContainer(ObjectInfo object, std::string_view key);
  void PassOverContainer(const std::string& object_key);
  absl::Status CheckContainers() const;
  absl::Status RefuseContainer(const std::string& object_key) const;
  absl::Status AddUndecided();
  absl::Status AddDocuments();
  absl::Status AddUndecidedPairs();
  absl::Status TakeTokenArray(std::string key, ObjectInfo object);
  absl::StatusOr<bool> EndsPair(const ObjectInfo& object, std::string_view key);
  void PassOverCompanion(std::string_view key, const ObjectInfo& object);
  absl::Status CheckCompanions() const;

  const DatasetPlace data_;
  const Listing listing_;
  const std::stop_token stop_;
  PlaceLister lister_;
  std::deque<IndexedObject> ahead_;
  SampleGroups groups_;  // of raw objects
  std::string last_key_;
  // Objects that may be companions of shards, token files or raw objects, as long as kind_ is not known. Files of many
  // samples are among them, too; they may lie beside images.
  std::vector<ObjectInfo> undecided_;
  uint64_t images_ = 0;                // raw objects
  std::string first_image_;            // key of the first
  std::set<std::string> image_names_;  // patterns of their names, some of them
  uint64_t containers_ = 0;            // files of many samples that were passed over beside these
  std::string first_container_;        // key of the first
  uint64_t shards_ = 0;                // objects that are shards
  std::set<std::string> shard_names_;  // patterns of their names, some of them
  uint64_t foreign_ = 0;               // objects that were passed over beside these and may be samples
  std::string first_foreign_;          // its key below the data set's URI
  std::string last_bin_;               // the last raw object that may be one of a pair
  bool looked_into_ = false;           // an .idx beside a .bin: it is not one of Megatron's, and others are not read
  std::vector<std::string> companions_;
  std::map<std::string, ObjectInfo, std::less<>> idx_;  // for FindIdx
  std::vector<ObjectInfo> json_;                        // for json_files, and one more at most
  SkippedObjects skipped_;
  std::vector<ObjectInfo> documents_;  // some of them, as long as there is nothing else
  std::string first_sample_;           // key of the one that decided kind_
  std::string raw_sample_;             // key of the first raw object
  DataKind kind_ = DataKind::kRawObjects;
  bool begun_ = false;
  bool listed_all_ = false;
  uint64_t listed_bytes_ = 0;
};

/// Compares the objects of an index with those of the store. FailedPrecondition for the first that was changed, added
/// or removed. NotFound if the keys and sizes are those of the index but every ETag is different. This is so in a data
/// set that was copied together with its index: such an index is as good as none. Does nothing for data sets of more
/// than 10,000 objects, because listing takes too long to do on each opening. Reads of them still notice changed
/// objects by their ETags.
absl::Status CheckObjects(const DatasetPlace& data, const Index& index, const std::stop_token& stop = {});

}  // namespace millrace
