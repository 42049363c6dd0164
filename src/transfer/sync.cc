#include "transfer/sync.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "store/lister.h"
#include "transfer/key_pattern.h"

namespace millrace {

namespace {

/// Lists the objects below a folder in order of keys, one by one. Markers of empty folders are passed over.
class KeyStream {
 public:
  /// With `may_lack` a missing bucket or folder is an empty one.
  KeyStream(const Location& folder, const SyncOptions& options, bool may_lack)
      : folder_(folder), options_(options), may_lack_(may_lack), lister_(*folder.store, folder.prefix, options.stop) {}

  /// Returns the next object, owned by the stream until the next call; null at the end. Returns DataLoss if the store
  /// does not list in order: a comparison of two listings would draw wrong conclusions.
  absl::StatusOr<const ObjectInfo*> Peek() {
    for (;;) {
      while (next_ < objects_.size() && IsFolderMarker(objects_[next_])) ++next_;
      if (next_ < objects_.size()) return &objects_[next_];
      if (at_end_) return nullptr;
      RETURN_IF_ERROR(NextObjects());
    }
  }
  void Skip() { ++next_; }

  /// Returns the next one that takes part.
  absl::StatusOr<const ObjectInfo*> PeekWanted() {
    for (;;) {
      ASSIGN_OR_RETURN(const ObjectInfo* const object, Peek());
      if (object == nullptr || !options_.wanted || options_.wanted(Name(*object))) return object;
      Skip();
    }
  }

  /// Returns the key below the folder.
  std::string_view Name(const ObjectInfo& object) const {
    return std::string_view(object.key).substr(folder_.prefix.size());
  }

 private:
  absl::Status NextObjects() {
    absl::StatusOr<std::vector<ObjectInfo>> objects = lister_.Next();
    if (may_lack_ && last_.empty() && absl::IsNotFound(objects.status())) objects.emplace();
    RETURN_IF_ERROR(objects.status());
    objects_ = *std::move(objects);
    next_ = 0;
    at_end_ = objects_.empty();
    for (const ObjectInfo& object : objects_) {
      if (object.key <= last_ || !object.key.starts_with(folder_.prefix)) {
        return absl::DataLossError(fmt::format("{}: the store does not list its keys in order: {} comes after {}",
                                               folder_.store->Uri(folder_.prefix), object.key, last_));
      }
      last_ = object.key;
    }
    return absl::OkStatus();
  }

  const Location& folder_;
  const SyncOptions& options_;
  const bool may_lack_;
  Lister lister_;
  std::vector<ObjectInfo> objects_;
  size_t next_ = 0;
  bool at_end_ = false;
  std::string last_;  // key of the last of objects_
};

// S3 reports times in whole seconds, rounded down; some compatible stores report milliseconds.
bool InSeconds(const ObjectStore& store, const ObjectInfo& object) {
  return store.traits().is_remote() && object.modified_ms % 1000 == 0;
}

// Compares by the coarser of the two clocks: an object uploaded in the second of its making is not newer than its copy.
bool IsNewer(const ObjectStore& from, const ObjectInfo& source, const ObjectStore& to, const ObjectInfo& target) {
  if (source.modified_ms == 0 || target.modified_ms == 0) return false;  // not known
  const int64_t unit = InSeconds(from, source) || InSeconds(to, target) ? 1000 : 1;
  return source.modified_ms / unit > target.modified_ms / unit;
}

absl::Status CheckSource(KeyStream& source, KeyStream& target, const Location& from, const Location& to) {
  ASSIGN_OR_RETURN(const ObjectInfo* const first, source.Peek());
  ASSIGN_OR_RETURN(const ObjectInfo* const other, target.Peek());
  if (first != nullptr || other == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{0}: there is nothing below it, so that --delete would remove everything in {1}; if that is meant, "
                  "use 'millrace rm --recursive {1}'",
                  from.store->Uri(from.prefix), to.store->Uri(to.prefix)));
}

}  // namespace

absl::Status CompareFolders(const Location& from, const Location& to, const SyncOptions& options,
                            absl::FunctionRef<absl::Status(const SyncStep&)> each) {
  KeyStream sources(from, options, /*may_lack=*/false);
  KeyStream targets(
      to, options, /*may_lack=*/!to.store->traits().is_remote());  // a folder is made by copying to it, a bucket is not
  if (options.removes) RETURN_IF_ERROR(CheckSource(sources, targets, from, to));
  for (;;) {
    if (options.stop.stop_requested()) return absl::CancelledError("the comparison was interrupted");
    ASSIGN_OR_RETURN(const ObjectInfo* const source, sources.PeekWanted());
    ASSIGN_OR_RETURN(const ObjectInfo* const target, targets.PeekWanted());
    if (source == nullptr && target == nullptr) return absl::OkStatus();
    const int order = source == nullptr   ? 1
                      : target == nullptr ? -1
                                          : sources.Name(*source).compare(targets.Name(*target));
    if (order > 0) {
      RETURN_IF_ERROR(each({.kind = SyncStep::Kind::kRemove, .object = target, .key = target->key, .why = {}}));
    } else {
      SyncStep step{.object = source, .key = to.Key(sources.Name(*source)), .why = {}};
      if (order < 0) {
        step.why = "missing";
      } else if (source->size != target->size) {
        step.why = "size differs";
      } else if (IsNewer(*from.store, *source, *to.store, *target)) {
        step.why = "newer";
      }
      step.kind = step.why.empty() ? SyncStep::Kind::kKeep : SyncStep::Kind::kCopy;
      if (order == 0) step.kept = target;
      RETURN_IF_ERROR(each(step));
    }
    if (order <= 0) sources.Skip();
    if (order >= 0) targets.Skip();
  }
}

}  // namespace millrace
