#include "dataset/index_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/crypto.h"
#include "base/log.h"
#include "dataset/index_places.h"
#include "store/blocking.h"
#include "transfer/artifact.h"

namespace millrace {

namespace {

constexpr std::string_view kPartSuffix = ".part-";

bool IsOutage(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsCancelled(status);
}

}  // namespace

IndexParts::IndexParts(Stores& stores, const DatasetPlace& data, const std::string& cache_folder, std::stop_token stop,
                       ArtifactHome home)
    : stores_(stores),
      data_(data),
      cache_folder_(cache_folder.empty() ? DefaultCacheFolder() : cache_folder),
      beside_(data.index_key + std::string(kPartSuffix)),
      stem_(IndexStem(data) + std::string(kPartSuffix)),
      stop_(std::move(stop)),
      home_(home) {}

// Returns the ends of keys that begin with `prefix`. Empty if the store may not be listed.
absl::StatusOr<std::vector<std::string>> IndexParts::Hashes(ObjectStore& store, const std::string& prefix) {
  std::vector<std::string> hashes;
  const absl::Status listed = ForEachPage(
      store, prefix, "",
      [&](const ListPage& page) {
        for (const ObjectInfo& object : page.objects) hashes.push_back(object.key.substr(prefix.size()));
        return absl::OkStatus();
      },
      stop_);
  if (!listed.ok() && IsOutage(listed)) return listed;
  return hashes;
}

absl::StatusOr<std::unique_ptr<Index>> IndexParts::Open(const std::string& hash, bool cached) {
  ArtifactPlaces places(stores_, {.beside = {.store = data_.store, .prefix = beside_ + hash},
                                  .cache_folder = cache_folder_,
                                  .stem = stem_ + hash,
                                  .suffix = "",
                                  .one_version = true,
                                  .title = "a part of the index",
                                  .stop = stop_});
  std::unique_ptr<Index> part;
  const auto open = [&part](const SharedArtifact& artifact) -> absl::Status {
    ASSIGN_OR_RETURN(part, Index::Open(artifact));
    return absl::OkStatus();
  };
  const auto verify = [&part](const SharedArtifact&) { return part->Verify(); };
  const auto place = cached ? ArtifactPlaces::Place::kCached : ArtifactPlaces::Place::kBeside;
  RETURN_IF_ERROR(places.Open(place, open, verify).status());
  RETURN_IF_ERROR(part->Verify());
  return part;
}

absl::StatusOr<std::vector<std::unique_ptr<Index>>> IndexParts::Find() {
  std::vector<std::pair<std::string, bool>> names;  // hashes, and whether they are in the cache folder
  std::set<std::string> known;
  if (const absl::StatusOr<Location> cache = OpenArtifactCache(stores_, cache_folder_); cache.ok()) {
    ASSIGN_OR_RETURN(const std::vector<std::string> cached, Hashes(*cache->store, cache->Key(stem_)));
    for (const std::string& hash : cached) names.emplace_back(hash, known.insert(hash).second);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> beside, Hashes(*data_.store, beside_));
  for (const std::string& hash : beside) {
    if (known.insert(hash).second) names.emplace_back(hash, false);
  }
  may_be_there_ = !names.empty();
  std::vector<std::unique_ptr<Index>> parts;
  for (const auto& [hash, cached] : names) {
    absl::StatusOr<std::unique_ptr<Index>> part = Open(hash, cached);
    if (part.ok()) {
      if ((*part)->TellsAll()) parts.push_back(*std::move(part));
      continue;
    }
    if (IsOutage(part.status())) return part.status();
    if (absl::IsNotFound(part.status())) continue;  // the index has been completed meanwhile
    Log(LogLevel::kWarning, "dataset",
        fmt::format("a part of the index is not used, and its shards are read again: {}",
                    ToStd(part.status().message())));
  }
  return parts;
}

absl::Status IndexParts::Keep(std::string_view index, bool for_others) {
  Xxh3Stream stream;
  stream.Update(AsBytes(index));
  const std::string hash = stream.Digest().Hex();
  PutOptions put;
  put.stop = stop_;
  may_be_there_ = true;
  absl::Status kept = absl::PermissionDeniedError("this program only reads the data");
  const bool may_write = data_.store->traits().is_memory() || !stores_.reads_only();
  if (home_ != ArtifactHome::kCache && may_write)
    kept = PutBlocking(*data_.store, beside_ + hash, AsBytes(index), put).status();
  if (kept.ok() || absl::IsCancelled(kept)) return kept;
  if (for_others) {
    return Annotate(kept, "the parts of an index lie beside the data, where the other machines find them");
  }
  ASSIGN_OR_RETURN(const Location cache, MakeArtifactCache(stores_, cache_folder_));
  kept_here_ = home_ != ArtifactHome::kCache;
  return PutBlocking(*cache.store, cache.Key(stem_ + hash), AsBytes(index), put).status();
}

void IndexParts::Remove() {
  if (!may_be_there_) return;
  const auto remove = [this](ObjectStore& store, const std::string& prefix) -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<std::string> hashes, Hashes(store, prefix));
    for (const std::string& hash : hashes) {
      absl::Status removed = DeleteBlocking(store, prefix + hash);
      if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
    }
    return absl::OkStatus();
  };
  absl::Status removed = remove(*data_.store, beside_);
  if (const absl::StatusOr<Location> cache = OpenArtifactCache(stores_, cache_folder_); cache.ok() && removed.ok())
    removed = remove(*cache->store, cache->Key(stem_));
  if (!removed.ok() && !absl::IsCancelled(removed))
    Log(LogLevel::kWarning, "dataset", fmt::format("a part of the index stays: {}", ToStd(removed.message())));
}

}  // namespace millrace
