#include "dataset/dataset.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "dataset/index_places.h"
#include "dataset/listed_index.h"
#include "dataset/sample_objects.h"

namespace millrace {

namespace {

// The first index that is sound and matches the data. When there are only others, what is wrong with the first;
// NotFound when there are none at all.
absl::StatusOr<PlacedIndex> FindIndex(IndexPlaces& places, const Location& data, const std::stop_token& stop) {
  absl::Status first = absl::NotFoundError("no index");
  for (const bool cached : {false, true}) {
    absl::StatusOr<PlacedIndex> placed = cached ? places.OpenCached() : places.OpenBeside();
    absl::Status status = placed.status();
    if (status.ok()) status = CheckObjects(data, *placed->index, stop);
    if (status.ok()) return placed;
    if (absl::IsCancelled(status)) return status;
    // A cache folder that cannot be read has nothing for us; an index beside the data that cannot is worth a word.
    if (placed.ok() && absl::IsNotFound(status)) {
      Log(LogLevel::kWarning, "dataset", fmt::format("{}; it is built anew", ToStd(status.message())));
    }
    const bool missing = absl::IsNotFound(status) || (cached && absl::IsPermissionDenied(placed.status()));
    if (absl::IsNotFound(first) && !missing) first = status;
  }
  return first;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Open(Runtime& runtime, Stores& stores, std::string_view uri,
                                                       const OpenOptions& options) {
  ASSIGN_OR_RETURN(const Location location, stores.Open(uri));
  IndexPlaces places(runtime, stores, location, options.cache_folder, options.stop);
  absl::StatusOr<PlacedIndex> placed = absl::NotFoundError("not looked for");
  if (!options.rebuild) placed = FindIndex(places, location, options.stop);
  bool listed = false;
  if (absl::IsNotFound(placed.status()) && options.list_raw) {
    absl::StatusOr<std::unique_ptr<Index>> index = ListRawObjects(location, options.stop);
    listed = index.ok();
    if (!listed && !absl::IsNotFound(index.status())) return index.status();
    if (listed) placed = PlacedIndex{.index = *std::move(index), .uri = ""};
  }
  if (absl::IsNotFound(placed.status())) {
    ASSIGN_OR_RETURN(const FileLock lock, places.LockForBuilding());
    // Whoever held the lock has built it by now.
    if (!options.rebuild) placed = FindIndex(places, location, options.stop);
    if (absl::IsNotFound(placed.status())) placed = places.Build(options.progress);
  }
  if (!placed.ok()) return placed.status();

  std::unique_ptr<Dataset> dataset(new Dataset());
  dataset->uri_ = std::string(uri);
  dataset->location_ = location;
  dataset->index_ = std::move(placed->index);
  dataset->index_uri_ = std::move(placed->uri);
  dataset->has_checksums_ = !listed;
  return dataset;
}

}  // namespace millrace
