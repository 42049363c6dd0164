#include "dataset/index_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/log.h"
#include "dataset/index_parts.h"
#include "dataset/index_places.h"
#include "dataset/index_reuse.h"
#include "dataset/manifest_set.h"
#include "dataset/sample_objects.h"
#include "store/joined_store.h"

namespace millrace {

namespace {

/// Takes an index, and drops it.
class NullWriter final : public ObjectWriter {
 public:
  absl::Status Append(ByteSpan /*bytes*/) override { return absl::OkStatus(); }
  absl::StatusOr<ObjectInfo> Commit() override { return ObjectInfo(); }
};

using Texts = absl::flat_hash_set<std::string>;

std::string VersionOf(const IndexedObject& object) {
  return fmt::format("{} {} {}", object.size, object.etag, object.key);
}

// Adds the objects that an index has. Those that are incomplete in it are left out unless `incomplete`.
absl::Status AddVersions(const Index& index, bool incomplete, Texts* versions) {
  IndexedObject object;
  for (uint64_t i = 0; i < index.objects(); ++i) {
    RETURN_IF_ERROR(index.LookupObject(static_cast<uint32_t>(i), &object));
    if (object.etag.empty() || (object.incomplete && !incomplete)) continue;
    versions->insert(VersionOf(object));
  }
  return absl::OkStatus();
}

/// Does the work at one index.
class SharedBuild {
 public:
  SharedBuild(Runtime& runtime, Stores& stores, const DatasetPlace& data, const OpenOptions& options)
      : runtime_(runtime),
        data_(data),
        options_(options),
        places_(runtime, stores, data, options.cache_folder, options.stop, HomeOf(options.index)),
        parts_(stores, data, options.cache_folder, options.stop, HomeOf(options.index)) {}

  /// Finds the existing indexes. The parts come first: if another process has removed them by then, the older index has
  /// everything that they had.
  absl::Status Look() {
    ASSIGN_OR_RETURN(known_, parts_.Find());
    ASSIGN_OR_RETURN(older_, places_.FindReusable());
    return absl::OkStatus();
  }

  struct Shard {
    uint64_t number = 0;  // in index order
    std::string key;
  };
  struct Missing {
    bool shards = true;  // the data are
    std::vector<Shard> all;
    bool index_is_whole = false;  // the older one
  };
  /// Returns the missing shards, after Look. A damaged shard is in a part only if its samples were to be left out.
  absl::StatusOr<Missing> FindMissing(const ChooseShard& among = nullptr) const {
    Texts indexed;
    // An index that lacks the checksums or classes that are wanted now is used for all else, and its shards are read
    // again.
    const bool older_tells = older_ != nullptr && TellsAll(*older_, options_.raw);
    if (older_tells) RETURN_IF_ERROR(AddVersions(*older_, /*incomplete=*/false, &indexed));
    Texts all = indexed;
    for (const std::unique_ptr<Index>& part : known_) {
      if (TellsAll(*part, options_.raw)) RETURN_IF_ERROR(AddVersions(*part, /*incomplete=*/true, &all));
    }
    SampleObjects objects(data_, options_.stop);
    Missing missing;
    uint64_t count = 0;
    uint64_t not_indexed = 0;
    for (;; ++count) {
      ASSIGN_OR_RETURN(std::optional<IndexedObject> object, objects.Next());
      if (!object) break;
      missing.shards = AreShards(objects.kind());
      if (!missing.shards) return missing;
      const std::string version = VersionOf(*object);
      not_indexed += indexed.contains(version) ? 0 : 1;
      if (among && !among(count, *object)) continue;
      if (!all.contains(version)) missing.all.push_back({.number = count, .key = std::move(object->key)});
    }
    // The index may also have shards that are gone.
    missing.index_is_whole = older_tells && not_indexed == 0 && older_->objects() == count;
    return missing;
  }

  /// Indexes, after Look, those of the chosen shards that are not indexed yet. If parts cannot be kept, kept() returns
  /// the error.
  absl::StatusOr<BuiltIndex> Build(const ChooseShard& only, bool for_others) {
    BuildOptions build{.progress = options_.progress,
                       .reuse = older_.get(),
                       .keep_part = [&](std::string_view part) { return kept_ = parts_.Keep(part, for_others); },
                       .part_bytes = options_.part_bytes,
                       .only = only,
                       .raw = options_.raw,
                       .outlines = options_.reuse && !options_.raw.all,
                       .skip_bad = options_.skip_bad,
                       .stop = options_.stop};
    for (const std::unique_ptr<Index>& part : known_) build.parts.push_back(part.get());
    return BuildIndex(
        runtime_, data_, [] { return std::make_unique<NullWriter>(); }, build);
  }
  const absl::Status& kept() const { return kept_; }
  bool kept_here() const { return parts_.kept_here(); }

  /// Removes the parts when the index is whole: another process has completed it before this one kept its last part.
  void RemoveParts() { parts_.Remove(); }

 private:
  Runtime& runtime_;
  const DatasetPlace& data_;
  const OpenOptions& options_;
  IndexPlaces places_;
  IndexParts parts_;
  std::vector<std::unique_ptr<Index>> known_;  // parts
  std::unique_ptr<Index> older_;               // may be null
  absl::Status kept_;
};

// Chooses the shards of the share. If there are none, it chooses `most` of the others, where each process begins at
// another place.
Texts ChooseShards(const std::vector<SharedBuild::Shard>& missing, const IndexShare& share, uint64_t most) {
  Texts chosen;
  for (const SharedBuild::Shard& shard : missing) {
    if (share.Has(shard.number)) chosen.insert(shard.key);
  }
  if (!chosen.empty()) return chosen;
  const uint64_t first = missing.size() * share.part / share.parts;
  for (uint64_t i = 0; i < std::min<uint64_t>(most, missing.size()); ++i)
    chosen.insert(missing[(first + i) % missing.size()].key);
  return chosen;
}

}  // namespace

absl::StatusOr<IndexShareReport> BuildIndexShare(Runtime& runtime, Stores& stores, std::string_view uri,
                                                 const OpenOptions& options) {
  const IndexShare share = options.share;
  if (share.part >= share.parts) return absl::InvalidArgumentError("there are fewer parts than that");
  ASSIGN_OR_RETURN(const std::optional<ManifestPlace> manifest, FindManifest(stores, uri, options.stop));
  if (manifest) {
    return absl::InvalidArgumentError(
        fmt::format("{}: what a manifest lists is indexed without --part", manifest->uri));
  }
  ASSIGN_OR_RETURN(DatasetPlace data, FindObjects(stores, uri, options.stop));
  JoinedStore joined(*data.store, data.Key(""));
  data.store = &joined;
  SharedBuild build(runtime, stores, data, options);
  RETURN_IF_ERROR(build.Look());
  const auto only = [share](uint64_t number, const IndexedObject&) { return share.Has(number); };
  ASSIGN_OR_RETURN(BuiltIndex built, build.Build(only, /*for_others=*/true));
  RETURN_IF_ERROR(build.Look());
  ASSIGN_OR_RETURN(const SharedBuild::Missing missing, build.FindMissing());
  if (missing.index_is_whole) build.RemoveParts();
  return IndexShareReport{.summary = std::move(built.summary),
                          .report = std::move(built.report),
                          .missing = missing.all.size(),
                          .to_merge = missing.all.empty() && !missing.index_is_whole};
}

absl::Status BuildMissingShards(Runtime& runtime, Stores& stores, const DatasetPlace& data, const OpenOptions& options,
                                const ChooseShard& among) {
  SharedBuild build(runtime, stores, data, options);
  Texts tried;
  bool warned = false;
  // If few other processes work, more shards are read at a time.
  for (uint64_t most = 1;; most *= 2) {
    RETURN_IF_ERROR(build.Look());
    ASSIGN_OR_RETURN(const SharedBuild::Missing missing, build.FindMissing(among));
    const bool stays = std::any_of(missing.all.begin(), missing.all.end(),
                                   [&](const SharedBuild::Shard& shard) { return tried.contains(shard.key); });
    if (missing.index_is_whole) build.RemoveParts();
    if (!missing.shards || missing.all.empty() || stays) return absl::OkStatus();
    const Texts chosen = ChooseShards(missing.all, options.share, most);
    tried.insert(chosen.begin(), chosen.end());
    const auto only = [&](uint64_t, const IndexedObject& shard) { return chosen.contains(shard.key); };
    const absl::Status built = build.Build(only, /*for_others=*/false).status();
    if (absl::IsResourceExhausted(built) || (!build.kept().ok() && !absl::IsCancelled(built))) {
      Log(LogLevel::kInfo, "dataset", fmt::format("the index is not built in parts: {}", ToStd(built.message())));
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(built);
    if (!build.kept_here() || std::exchange(warned, true)) continue;
    Log(LogLevel::kWarning, "dataset",
        fmt::format("{}: what this machine indexes is kept in its cache folder, since nothing can be kept beside the "
                    "data; each machine of the job indexes all shards for itself",
                    data.uri));
  }
}

}  // namespace millrace
