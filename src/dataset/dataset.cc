#include "dataset/dataset.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/log.h"
#include "dataset/dataset_warnings.h"
#include "dataset/index_file.h"
#include "dataset/index_parts.h"
#include "dataset/index_places.h"
#include "dataset/index_share.h"
#include "dataset/manifest_set.h"
#include "dataset/sample_objects.h"
#include "dataset/token_files.h"
#include "transfer/artifact.h"

namespace millrace {

namespace {

// Represents the opened place: objects, or the manifest that lists them.
struct Opened {
  std::unique_ptr<JoinedStore> joined;  // the store of `data`
  DatasetPlace data;
  std::optional<ManifestPlace> manifest;

  absl::Status Check(const Index& index, const ManifestColumns& columns, const std::stop_token& stop) const {
    return manifest ? CheckManifest(*manifest, columns, index) : CheckObjects(data, index, stop);
  }
};

absl::StatusOr<Opened> OpenPlace(Stores& stores, std::string_view uri, const ManifestColumns& columns,
                                 const std::stop_token& stop) {
  Opened opened;
  ASSIGN_OR_RETURN(opened.manifest, FindManifest(stores, uri, stop));
  if (!opened.manifest && columns.quotes == CsvQuotes::kText)
    return absl::InvalidArgumentError(fmt::format("{}: only in a manifest (.csv, .tsv) quotes may be text", uri));
  if (!opened.manifest && (!columns.path.empty() || !columns.label.empty())) {
    return absl::InvalidArgumentError(
        fmt::format("{}: only a manifest (.csv, .tsv, .jsonl ...) has columns of paths and labels", uri));
  }
  if (opened.manifest) {
    opened.data = *opened.manifest;
  } else {
    ASSIGN_OR_RETURN(opened.data, FindObjects(stores, uri, stop));
  }
  opened.joined = std::make_unique<JoinedStore>(*opened.data.store, opened.data.Key(""));
  opened.data.store = opened.joined.get();
  return opened;
}

// Finds the first index that is sound and matches the data. If none does, returns the error of the first; NotFound if
// there are none at all. If an index must be built again, `*tokens` says how it cut plain arrays, unless it is set, and
// `*why` says why the index does not fit.
absl::StatusOr<PlacedIndex> FindIndex(IndexPlaces& places, const Opened& opened, const OpenOptions& options,
                                      std::optional<TokenArrays>* tokens, std::string* why) {
  absl::Status first = absl::NotFoundError("no index");
  for (const IndexPlaces::Place place : ArtifactPlaces::kPlaces) {
    const bool cached = place != IndexPlaces::Place::kBeside;
    absl::StatusOr<PlacedIndex> placed = places.Open(place);
    absl::Status status = placed.status();
    if (status.ok()) status = opened.Check(*placed->index, options.columns, options.stop);
    if (status.ok() && placed->index->is_of_older_version()) {
      status = absl::NotFoundError(
          fmt::format("{}: its index is of an older version; what is unchanged is taken from it and not read, but "
                      "positions that were saved with it do not fit any more",
                      opened.data.uri));
    }
    if (status.ok() && !TellsAll(*placed->index, options.raw)) continue;
    if (status.ok()) return placed;
    if (absl::IsCancelled(status)) return status;
    // A cache folder that cannot be read counts as one without an index; an index beside the data that cannot be read
    // is an error.
    if (placed.ok() && absl::IsNotFound(status)) {
      *why = ToStd(status.message());
      if (!*tokens) {
        ASSIGN_OR_RETURN(*tokens, TokenArraysOf(*placed->index));
      }
    }
    const bool missing = absl::IsNotFound(status) || (cached && absl::IsPermissionDenied(placed.status()));
    if (absl::IsNotFound(first) && !missing) first = status;
  }
  return first;
}

// Represents the inputs of a build of an index, besides the objects.
struct Sources {
  std::unique_ptr<ManifestSamples> manifest;
  std::unique_ptr<Index> older;
  std::vector<std::string> class_names;  // of an older index of which nothing else is taken

  BuildOptions OptionsFor(const OpenOptions& options, const std::optional<TokenArrays>& tokens) const {
    return {.progress = options.progress,
            .reuse = older.get(),
            .part_bytes = options.part_bytes,
            .raw = options.raw,
            .outlines = options.reuse && !options.raw.all,
            .manifest = manifest.get(),
            .tokens = tokens,
            .skip_bad = options.skip_bad,
            .class_names = class_names,
            .stop = options.stop};
  }
};

absl::StatusOr<Sources> ReadSources(Runtime& runtime, IndexPlaces& places, const Opened& opened,
                                    const OpenOptions& options) {
  Sources sources;
  if (opened.manifest) {
    ASSIGN_OR_RETURN(sources.manifest,
                     ManifestSamples::Read(*opened.manifest, options.columns, runtime.memory(), options.stop));
  }
  if (options.reuse) {
    ASSIGN_OR_RETURN(sources.older, places.FindReusable());
  } else if (!opened.manifest) {
    const absl::StatusOr<std::unique_ptr<Index>> older = places.FindReusable();
    if (older.ok() && *older != nullptr) sources.class_names = (*older)->own_class_names();
  }
  return sources;
}

// Builds an index in parts. It begins with the parts that are kept by a build that was killed, or by other machines. If
// a part cannot be kept, that costs time only after a kill.
absl::StatusOr<PlacedIndex> BuildInParts(Runtime& runtime, Stores& stores, IndexPlaces& places, const Opened& opened,
                                         const OpenOptions& options, const std::optional<TokenArrays>& tokens) {
  IndexParts parts(stores, opened.data, options.cache_folder, options.stop, HomeOf(options.index));
  std::vector<std::unique_ptr<Index>> kept;
  // The parts are read first: if another process has removed them by now, the older index has everything that they had.
  if (options.reuse && !opened.manifest) {
    ASSIGN_OR_RETURN(kept, parts.Find());
  }
  ASSIGN_OR_RETURN(const Sources sources, ReadSources(runtime, places, opened, options));
  BuildOptions build = sources.OptionsFor(options, tokens);
  for (const std::unique_ptr<Index>& part : kept) build.parts.push_back(part.get());
  bool warned = false;
  build.keep_part = [&](std::string_view part) {
    absl::Status status = parts.Keep(part, /*for_others=*/false);
    if (status.ok() || absl::IsCancelled(status)) return status;
    if (!std::exchange(warned, true)) {
      Log(LogLevel::kWarning, "dataset",
          fmt::format("if this is killed, all shards are read again: {}", ToStd(status.message())));
    }
    return absl::OkStatus();
  };
  absl::StatusOr<PlacedIndex> placed = places.Build(build);
  if (placed.ok()) parts.Remove();
  return placed;
}

// Reports oddities of a data set once, when its index is built.
absl::Status WarnOfNew(Runtime& runtime, const DatasetPlace& data, const OpenOptions& options, PlacedIndex* placed) {
  std::vector<std::string>& warnings = placed->report.warnings;
  ASSIGN_OR_RETURN(warnings, WarningsOfNames(data, *placed->index));
  if (!placed->report.keys_ascend) {
    ASSIGN_OR_RETURN(const std::vector<std::string> of_keys,
                     WarningsOfKeys(*placed->index, runtime.memory(), options.stop));
    warnings.insert(warnings.end(), of_keys.begin(), of_keys.end());
  }
  const std::vector<std::string> of_files = WarningsOfSideFiles(placed->report.skipped, placed->index->objects());
  warnings.insert(warnings.end(), of_files.begin(), of_files.end());
  for (const std::string& warning : warnings)
    Log(LogLevel::kWarning, "dataset", fmt::format("{}: {}", data.uri, warning));
  return absl::OkStatus();
}

}  // namespace

ArtifactHome HomeOf(IndexUse use) {
  if (use == IndexUse::kBeside) return ArtifactHome::kBeside;
  return use == IndexUse::kCache ? ArtifactHome::kCache : ArtifactHome::kBesideOrCache;
}

absl::StatusOr<BuiltIndex> BuildIndexFile(Runtime& runtime, Stores& stores, std::string_view uri,
                                          OpenIndexFn open_index, const OpenOptions& options) {
  ASSIGN_OR_RETURN(const Opened opened, OpenPlace(stores, uri, options.columns, options.stop));
  IndexPlaces places(runtime, stores, opened.data, options.cache_folder, options.stop);
  ASSIGN_OR_RETURN(const Sources sources, ReadSources(runtime, places, opened, options));
  return BuildIndex(runtime, opened.data, open_index, sources.OptionsFor(options, options.tokens));
}

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Open(Runtime& runtime, Stores& stores, std::string_view uri,
                                                       const OpenOptions& options) {
  ASSIGN_OR_RETURN(Opened opened, OpenPlace(stores, uri, options.columns, options.stop));
  IndexPlaces places(runtime, stores, opened.data, options.cache_folder, options.stop, HomeOf(options.index));
  std::optional<TokenArrays> tokens = options.tokens;
  absl::StatusOr<PlacedIndex> placed = absl::NotFoundError("not looked for");
  bool built = false;
  std::string why;  // an index that is there is built again
  if (!options.rebuild) placed = FindIndex(places, opened, options, &tokens, &why);
  if (absl::IsNotFound(placed.status()) && options.index == IndexUse::kRequire) {
    return absl::NotFoundError(fmt::format("{}: {}, and none is to be built here; build it: millrace index {}",
                                           opened.data.uri, why.empty() ? "there is no index" : why,
                                           opened.data.UriInShell()));
  }
  const bool shared = options.share.parts > 1 && options.reuse && !opened.manifest && !opened.data.join && !tokens;
  if (absl::IsNotFound(placed.status()) && shared)
    RETURN_IF_ERROR(BuildMissingShards(runtime, stores, opened.data, options));
  if (absl::IsNotFound(placed.status())) {
    ASSIGN_OR_RETURN(const FileLock lock, places.LockForBuilding());
    if (opened.manifest) {  // which may have been replaced meanwhile
      ASSIGN_OR_RETURN(opened.manifest, FindManifest(stores, uri, options.stop));
      if (!opened.manifest) return absl::NotFoundError(fmt::format("{}: the manifest is not there any more", uri));
    }
    // The process that held the lock may have built it by now.
    if (!options.rebuild) placed = FindIndex(places, opened, options, &tokens, &why);
    if (absl::IsNotFound(placed.status())) {
      if (!why.empty()) Log(LogLevel::kWarning, "dataset", fmt::format("{}; it is built again", why));
      placed = BuildInParts(runtime, stores, places, opened, options, tokens);
      built = true;
      if (placed.ok()) RETURN_IF_ERROR(WarnOfNew(runtime, opened.data, options, &*placed));
    }
  }
  if (!placed.ok()) return placed.status();

  std::unique_ptr<Dataset> dataset(new Dataset());
  dataset->uri_ = std::string(uri);
  dataset->is_manifest_ = opened.manifest.has_value();
  dataset->joined_ = std::move(opened.joined);
  dataset->place_ = opened.data;
  dataset->cache_folder_ = options.cache_folder.empty() ? DefaultCacheFolder() : options.cache_folder;
  dataset->index_ = std::move(placed->index);
  dataset->index_uri_ = std::move(placed->uri);
  if (built) dataset->built_ = placed->report;
  const Index& stored = *dataset->index_;
  if (options.labels) {
    ASSIGN_OR_RETURN(LabelledIndex labelled, OpenLabelledIndex(runtime, stores, dataset->place_, *dataset->index_,
                                                               *options.labels, dataset->cache_folder_, options.stop));
    if (TarHeaderStore::IsFor(stored)) dataset->unlabelled_ = std::move(dataset->index_);
    dataset->index_ = std::move(labelled.index);
    dataset->labels_ = options.labels;
    dataset->labels_id_ = labelled.id;
  }
  if (dataset->unlabelled_ != nullptr || (!options.labels && TarHeaderStore::IsFor(stored))) {
    dataset->headers_ = std::make_unique<TarHeaderStore>(*dataset->place_.store, dataset->place_, stored);
    dataset->place_.store = dataset->headers_.get();
  }
  if (!options.classes.empty()) {
    RETURN_IF_ERROR(Annotate(dataset->index_->OrderClasses(options.classes), uri));
    dataset->classes_ = options.classes;
  } else if (const std::vector<std::string> names = dataset->index_->own_class_names(); !names.empty()) {
    const absl::Status named = dataset->index_->OrderClasses(names);
    if (!named.ok()) Log(LogLevel::kInfo, "dataset", fmt::format("{}: {}", uri, ToStd(named.message())));
  }
  return dataset;
}

std::unique_ptr<Dataset> Dataset::OfSome(DatasetPlace place, std::unique_ptr<JoinedStore> joined,
                                         std::unique_ptr<Index> index, const std::string& cache_folder) {
  std::unique_ptr<Dataset> dataset(new Dataset());
  dataset->uri_ = place.uri;
  dataset->joined_ = std::move(joined);
  dataset->place_ = std::move(place);
  dataset->place_.store = dataset->joined_.get();
  dataset->cache_folder_ = cache_folder.empty() ? DefaultCacheFolder() : cache_folder;
  dataset->index_ = std::move(index);
  if (TarHeaderStore::IsFor(*dataset->index_)) {
    dataset->headers_ = std::make_unique<TarHeaderStore>(*dataset->place_.store, dataset->place_, *dataset->index_);
    dataset->place_.store = dataset->headers_.get();
  }
  return dataset;
}

}  // namespace millrace
