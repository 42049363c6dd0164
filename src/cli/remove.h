#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cli/console.h"
#include "store/object_store.h"

namespace millrace::cli {

/// Removes objects, by requests for up to 1,000 of them, four at a time. Of folders: never what lies behind a link to
/// another folder, which is not the user's to name here.
class Remover {
 public:
  struct Report {
    uint64_t objects = 0;
    uint64_t bytes = 0;  // of those whose size was known
    uint64_t failed = 0;
    std::map<std::string, absl::Status> failures;  // by URI; the first ten
  };

  /// `progress` may be null.
  explicit Remover(ProgressLine* progress) : progress_(progress) {}
  ~Remover();  // waits
  Remover(const Remover&) = delete;
  Remover& operator=(const Remover&) = delete;

  /// Takes one more; blocks while too many are in flight. False when nothing more should be added: interrupted, or an
  /// error that would meet every object. From one thread only.
  bool Add(ObjectStore& store, ObjectInfo object);

  /// Removes what was taken and waits for the end. Call it once, last.
  Report Finish();

 private:
  using Batch = std::vector<ObjectInfo>;

  void Start();
  void Done(ObjectStore& store, const Batch& batch, const std::vector<absl::Status>& statuses);
  void Count(const std::string& uri, const ObjectInfo& object, const absl::Status& status);

  ProgressLine* const progress_;
  ObjectStore* store_ = nullptr;  // of the batch
  Batch batch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int in_flight_ = 0;
  bool hopeless_ = false;
  Report report_;
};

}  // namespace millrace::cli
