#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "aws/settings.h"
#include "net/runtime.h"
#include "store/object_store.h"

namespace millrace {

class S3Client;

/// Holds a URI taken apart: the store, and the key or key prefix in it ("" for the whole store).
///
///   s3://bucket/prefix   S3 or what AWS_ENDPOINT_URL selects   store = the bucket
///   file:///dir, dir     a local or mounted folder             store = the folder; prefix = "" (a file: OpenObject)
///   mem://name/prefix    memory of this Stores                 store = the name
struct Location {
  ObjectStore* store = nullptr;  // owned by the Stores
  std::string prefix;            // no leading '/'; a trailing '/' is kept as given

  /// Returns `name` below the prefix, as a key.
  std::string Key(std::string_view name) const;
};

/// Opens stores by URI and owns them: one a bucket, folder or memory name, however often it is opened. Thread-safe; the
/// Runtime must outlive it. AWS settings come from the environment and profile files (s3/config.h).
class Stores {
 public:
  /// Makes a store around another one, which it owns; it has the same root.
  using Wrap = std::function<absl::StatusOr<std::unique_ptr<ObjectStore>>(std::unique_ptr<ObjectStore> below)>;

  /// With `wrap`, every store that is opened is what `wrap` makes of it. It must not open stores here.
  explicit Stores(Runtime& runtime, Wrap wrap = {});

  /// Makes a view of another one, which outlives it, for a program that reads for others. The program writes nothing
  /// beside data (reads_only). If there are `folders`, files are read only if they are in these after all links are
  /// followed. The folders are paths without links. Other stores are those of `below`.
  Stores(Stores& below, std::optional<std::vector<std::string>> folders);
  ~Stores();

  /// Returns Stores whose buckets are reached with `choice` in place of the settings of the environment. Folders and
  /// memory are those of this one, which owns the result. For an empty choice it is this one. Not for views.
  Stores& With(const AwsChoice& choice);

  /// Sets how long requests to S3 wait for a store that has served some and is away. The limit applies to all stores of
  /// this Stores, also to those open already. It is zero at first: requests fail after some attempts.
  void SetOutageLimit(std::chrono::nanoseconds limit);

  /// Opens a place that holds objects: a bucket with a prefix, a folder (need not exist yet), a memory store.
  absl::StatusOr<Location> Open(std::string_view uri);

  /// Opens one object: Location.prefix is its key. A plain path is split into its folder and name.
  absl::StatusOr<Location> OpenObject(std::string_view uri);

  /// Opens a folder of the program's own, such as its cache: also through a view, which does not bound it.
  absl::StatusOr<Location> OpenOwn(const OwnFolder& folder);
  /// Returns true for a view. A caller that makes something of data then keeps it in a folder of its own.
  bool reads_only() const { return below_ != nullptr; }

  /// These two do the same, but all files and folders are of one store, that of "/". They are for callers that name
  /// things in any number of folders: a store keeps threads for as long as this lives. A folder's prefix ends with '/'.
  absl::StatusOr<Location> OpenInTree(std::string_view uri);
  absl::StatusOr<Location> OpenObjectInTree(std::string_view uri);

 private:
  absl::StatusOr<ObjectStore*> Find(const std::string& name,
                                    absl::FunctionRef<absl::StatusOr<std::unique_ptr<ObjectStore>>()> make);
  absl::StatusOr<ObjectStore*> FindFolder(const std::string& path);
  absl::StatusOr<ObjectStore*> FindBucket(const std::string& bucket);

  Runtime& runtime_;
  const Wrap wrap_;
  AwsChoice choice_;
  Stores* parent_ = nullptr;       // of those With a choice: it has the folders and memory
  Stores* const below_ = nullptr;  // of a view
  const std::optional<std::vector<std::string>> folders_;
  std::mutex mutex_;
  std::unique_ptr<S3Client> client_;  // of all buckets; made when the first is opened
  std::string endpoint_;              // of it
  std::string principal_;             // of it
  std::chrono::nanoseconds outage_limit_{0};
  std::map<std::string, std::unique_ptr<ObjectStore>, std::less<>> stores_;
  std::map<AwsChoice, std::unique_ptr<Stores>> chosen_;
};

}  // namespace millrace
