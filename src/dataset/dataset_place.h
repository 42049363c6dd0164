#pragma once

#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "dataset/object_selection.h"
#include "store/lister.h"
#include "store/stores.h"
#include "transfer/key_pattern.h"

namespace millrace {

inline constexpr std::string_view kIndexName = ".millrace/index";

class FolderJoin;

/// The place that the URI of a data set names. For example, `s3://bucket/train` is the store of the bucket and the
/// prefix `train/`. The keys of the data set's index are below the Location. A Location by itself stands for all
/// objects below it, unless `names` or a `selection` restricts them.
struct DatasetPlace : Location {
  DatasetPlace() = default;
  DatasetPlace(const Location& folder);  // NOLINT(google-explicit-constructor)

  std::string uri;                 // as the store gives it: for messages, and for commands that name the data set
  std::vector<std::string> names;  // of its objects, below the Location, ascending; empty: whatever lies there
  std::shared_ptr<const ObjectSelection> selection;  // of its objects; null: there is none
  std::shared_ptr<const FolderJoin> join;            // of folders of its objects; null: there is none
  std::string index_key;                             // the store's, of the index beside the data

  /// Returns the URI as an argument in a shell.
  std::string UriInShell() const;
};

/// Finds a data set that is a single object of any kind, or a pair of Megatron's token files, if the URI names one of
/// the two. Its index lies beside it as `.millrace/NAME.index`. Returns nullopt if there is no object whose name is
/// that of a shard or makes a sample (ShardKind, SplitObjectName). InvalidArgument for an .idx of Megatron without its
/// .bin. Blocking; Cancelled soon after a stop is requested.
absl::StatusOr<std::optional<DatasetPlace>> FindSingleObject(Stores& stores, std::string_view uri,
                                                             const std::stop_token& stop = {});

/// Returns the same place for an object of that name in a folder. The object must exist.
absl::StatusOr<DatasetPlace> PlaceOfObject(const Location& folder, const std::string& name, const ObjectInfo& object,
                                           const std::stop_token& stop = {});

/// Finds the objects of a data set. The first of these that applies counts:
/// - the folders that a URI joins (folder_join.h);
/// - the single object of FindSingleObject;
/// - the objects that a URI with wildcards or braces selects (object_selection.h), if nothing has this very name;
/// - the folder or prefix that the URI names, which need not exist.
///
/// A manifest is an object like any other here.
absl::StatusOr<DatasetPlace> FindObjects(Stores& stores, std::string_view uri, const std::stop_token& stop = {});

/// Returns true if the object begins as an .idx of Megatron does.
absl::StatusOr<bool> BeginsAsMegatron(ObjectStore& store, const ObjectInfo& object, const std::stop_token& stop);

/// Lists the objects of a place as Lister does; those of `names` that do not exist are left out. NotFound at the end of
/// a selection if an object or folder that it names without a wildcard was not there. If these credentials may not
/// list, the objects of a selection that names each of them are asked for one by one. Blocking; not thread-safe. The
/// store must outlive it.
class PlaceLister {
 public:
  explicit PlaceLister(const DatasetPlace& place, std::stop_token stop = {});

  /// Returns the next objects in order of keys, at least one; none at the end. Errors are those of Lister::Next.
  absl::StatusOr<std::vector<ObjectInfo>> Next();

 private:
  absl::StatusOr<std::vector<ObjectInfo>> HeadNames();
  absl::StatusOr<std::vector<ObjectInfo>> NextSelected();
  absl::StatusOr<std::vector<ObjectInfo>> HeadSelected();
  absl::Status NothingThere() const;
  void TickOff(std::string_view key);

  const DatasetPlace data_;
  const std::stop_token stop_;
  bool asked_ = false;                           // for `names`
  bool may_not_list_ = false;                    // so what is not seen yet is asked for by name
  size_t prefix_ = 0;                            // of the selection, that lister_ is at
  std::set<std::string, std::less<>> not_seen_;  // of the selection's names
  std::optional<Lister> lister_;
};

}  // namespace millrace
