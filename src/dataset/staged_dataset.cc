#include "dataset/staged_dataset.h"

#include <fmt/format.h>

#include <numeric>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/log.h"
#include "dataset/index_builder.h"
#include "dataset/index_parts.h"
#include "dataset/index_places.h"
#include "dataset/index_reuse.h"
#include "dataset/index_share.h"
#include "dataset/manifest_set.h"
#include "dataset/sample_objects.h"
#include "dataset/shard_counts.h"
#include "dataset/string_writer.h"
#include "store/joined_store.h"

namespace millrace {

absl::StatusOr<std::unique_ptr<StagedDataset>> StagedDataset::Open(Runtime& runtime, Stores& stores,
                                                                   std::string_view uri, const OpenOptions& options) {
  std::unique_ptr<StagedDataset> staged(new StagedDataset(runtime, stores, uri, options));
  ASSIGN_OR_RETURN(const std::optional<ManifestPlace> manifest, FindManifest(stores, uri, options.stop));
  if (manifest)
    return absl::InvalidArgumentError(fmt::format("{}: what a manifest lists is not staged; {}", uri, kRemedy));
  ASSIGN_OR_RETURN(staged->place_, FindObjects(stores, uri, options.stop));
  RETURN_IF_ERROR(staged->List());
  return staged;
}

absl::Status StagedDataset::List() {
  JoinedStore joined(*place_.store, place_.Key(""));
  DatasetPlace data = place_;
  data.store = &joined;
  SampleObjects objects(data, options_.stop);
  while (true) {
    ASSIGN_OR_RETURN(std::optional<IndexedObject> object, objects.Next());
    if (!object) break;
    if (!AreShards(objects.kind()))
      return absl::InvalidArgumentError(
          fmt::format("{}: '{}' is no shard, and is not staged; {}", uri_, object->key, kRemedy));
    total_bytes_ += object->size;
    shards_.push_back(*std::move(object));
  }
  if (shards_.empty()) return absl::NotFoundError(fmt::format("no samples under {}: there are no shards", uri_));
  std::vector<ListedShard> listed;
  for (const IndexedObject& shard : shards_)
    listed.push_back({.key = shard.key, .size = shard.size, .etag = shard.etag});
  fingerprint_ = ListingFingerprint(listed);
  ASSIGN_OR_RETURN(counts_, FindShardCounts(data, shards_, objects, options_.stop));
  return absl::OkStatus();
}

Stages StagedDataset::StagesOf(uint64_t seed) const {
  std::vector<uint64_t> sizes;
  for (const IndexedObject& shard : shards_) sizes.push_back(shard.size);
  return Stages(sizes, seed);
}

uint64_t StagedDataset::counted_samples() const {
  return std::accumulate(counts_.begin(), counts_.end(), uint64_t{0});
}

uint64_t StagedDataset::BytesOf(const std::vector<uint64_t>& places) const {
  uint64_t bytes = 0;
  for (const uint64_t place : places) bytes += shards_[place].size;
  return bytes;
}

std::unique_ptr<StagedDataset> StagedDataset::Again() const {
  return std::unique_ptr<StagedDataset>(new StagedDataset(*this));
}

void StagedDataset::Continue(std::stop_token stop, ProgressFn progress) {
  options_.stop = std::move(stop);
  options_.progress = std::move(progress);
}

absl::StatusOr<std::unique_ptr<Dataset>> StagedDataset::OpenSome(const std::vector<uint64_t>& places) {
  DatasetPlace data = place_;
  JoinedStore to_index(through_ == nullptr ? *place_.store : *through_, place_.Key(""));
  data.store = &to_index;
  ASSIGN_OR_RETURN(std::unique_ptr<Index> index, IndexOfSome(data, places));
  RETURN_IF_ERROR(Check(*index, places));
  CheckCounts(*index, places);
  auto joined = std::make_unique<JoinedStore>(*place_.store, place_.Key(""));
  data.store = joined.get();
  return Dataset::OfSome(std::move(data), std::move(joined), std::move(index), options_.cache_folder);
}

absl::StatusOr<std::unique_ptr<Index>> StagedDataset::IndexOfSome(const DatasetPlace& data,
                                                                  const std::vector<uint64_t>& places) {
  absl::flat_hash_set<std::string> keys;
  for (const uint64_t place : places) keys.insert(shards_[place].key);
  const ChooseShard only = [&keys](uint64_t, const IndexedObject& shard) { return keys.contains(shard.key); };
  if (options_.share.parts > 1) RETURN_IF_ERROR(BuildMissingShards(runtime_, stores_, data, options_, only));
  IndexParts parts(stores_, data, options_.cache_folder, options_.stop, HomeOf(options_.index));
  IndexPlaces indexes(runtime_, stores_, data, options_.cache_folder, options_.stop, HomeOf(options_.index));
  // The parts are read first: if another process removes them now, the index has everything that they had.
  ASSIGN_OR_RETURN(const std::vector<std::unique_ptr<Index>> kept, parts.Find());
  ASSIGN_OR_RETURN(const std::unique_ptr<Index> older, indexes.FindReusable());
  BuildOptions build{.progress = options_.progress,
                     .reuse = older != nullptr && TellsAll(*older, options_.raw) ? older.get() : nullptr,
                     .part_bytes = options_.part_bytes,
                     .only = only,
                     .raw = options_.raw,
                     .outlines = !options_.raw.all,
                     .skip_bad = options_.skip_bad,
                     .stop = options_.stop};
  for (const std::unique_ptr<Index>& part : kept) build.parts.push_back(part.get());
  build.keep_part = [&](std::string_view part) -> absl::Status {
    absl::Status status = parts.Keep(part, /*for_others=*/false);
    if (status.ok() || absl::IsCancelled(status)) return status;
    keeps_parts_ = false;
    Log(LogLevel::kWarning, "dataset",
        fmt::format("shards that are read now are read again to index them: {}", ToStd(status.message())));
    return absl::OkStatus();
  };
  std::string bytes;
  ASSIGN_OR_RETURN(const BuiltIndex built,
                   BuildIndex(
                       runtime_, data, [&] { return std::make_unique<StringWriter>(&bytes); }, build));
  indexed_shards_ += built.summary.objects - std::min<uint64_t>(built.summary.objects, built.report.reused_objects);
  if (bytes.empty())
    return absl::FailedPreconditionError(fmt::format("{}: shards that were listed are gone", data.uri));
  return Index::FromBytes(std::move(bytes));
}

absl::StatusOr<std::unique_ptr<Dataset>> StagedDataset::OpenAll() {
  ASSIGN_OR_RETURN(std::unique_ptr<Dataset> dataset, Dataset::Open(runtime_, stores_, uri_, options_));
  std::vector<uint64_t> all(shards_.size());
  std::iota(all.begin(), all.end(), uint64_t{0});
  RETURN_IF_ERROR(Check(dataset->index(), all));
  return dataset;
}

void StagedDataset::CheckCounts(const Index& index, const std::vector<uint64_t>& places) {
  if (counts_.empty()) return;
  uint64_t counted = 0;
  for (const uint64_t place : places) counted += counts_[place];
  if (counted == index.size()) return;
  Log(LogLevel::kWarning, "dataset",
      fmt::format(
          "{}: the index JSON beside the shards counts {} samples in {} of them, which have {}; its numbers are "
          "not used any more",
          uri_, counted, places.size(), index.size()));
  counts_.clear();
}

absl::Status StagedDataset::Check(const Index& index, const std::vector<uint64_t>& places) const {
  const auto changed = [this](std::string_view key, std::string_view how) {
    return absl::FailedPreconditionError(
        fmt::format("{}: the shard '{}' {} after the data set was listed; start again "
                    "without a position, or restore the shard",
                    uri_, key, how));
  };
  IndexedObject object;
  uint64_t number = 0;
  for (const uint64_t place : places) {
    const IndexedObject& listed = shards_[place];
    if (number == index.objects()) return changed(listed.key, "was removed");
    RETURN_IF_ERROR(index.LookupObject(static_cast<uint32_t>(number++), &object));
    if (object.key != listed.key) return changed(std::min(object.key, listed.key), "was added or removed");
    if (object.size != listed.size || object.etag != listed.etag) return changed(listed.key, "was changed");
  }
  if (number == index.objects()) return absl::OkStatus();
  RETURN_IF_ERROR(index.LookupObject(static_cast<uint32_t>(number), &object));
  return changed(object.key, "was added");
}

}  // namespace millrace
