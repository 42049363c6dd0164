#include "dataset/index_places.h"

#include <fmt/format.h>

#include <utility>

#include "base/crypto.h"
#include "base/log.h"

namespace millrace {

namespace {

// Returns the error of an existing index, with the remedy.
absl::Status BuildAnew(const absl::Status& status, const std::string& uri) {
  if (absl::IsInvalidArgument(status)) {
    return absl::DataLossError(fmt::format("{}; build it again: millrace index {}", ToStd(status.message()), uri));
  }
  if (absl::IsPermissionDenied(status)) {
    return absl::PermissionDeniedError(fmt::format(
        "{}; have it made readable, or build one for yourself: millrace index {}", ToStd(status.message()), uri));
  }
  return status;
}

}  // namespace

std::string IndexStem(const DatasetPlace& data) {
  Xxh3Stream stream;
  stream.Update(AsBytes(fmt::format("{} {}", data.uri, data.store->traits().identity)));
  return StemFor(stream.Digest().Hex(), data.store->traits());
}

IndexPlaces::IndexPlaces(Runtime& runtime, Stores& stores, const DatasetPlace& data, const std::string& cache_folder,
                         std::stop_token stop, ArtifactHome home)
    : runtime_(runtime),
      data_(data),
      places_(stores, {.beside = {.store = data.store, .prefix = data.index_key},
                       .cache_folder = cache_folder.empty() ? DefaultCacheFolder() : cache_folder,
                       .stem = IndexStem(data),
                       .suffix = ".index",
                       .home = home,
                       .title = "the index",
                       .stop = std::move(stop)}) {}

absl::StatusOr<PlacedIndex> IndexPlaces::Open(Place place) {
  PlacedIndex placed;
  const auto open = [&placed](const SharedArtifact& artifact) -> absl::Status {
    ASSIGN_OR_RETURN(placed.index, Index::Open(artifact));
    return absl::OkStatus();
  };
  const auto verify = [&placed](const SharedArtifact&) { return placed.index->Verify(); };
  const absl::StatusOr<SharedArtifact> found = places_.Open(place, open, verify);
  if (!found.ok()) return BuildAnew(found.status(), data_.UriInShell());
  placed.uri = place == Place::kBeside ? places_.BesideUri() : (*found)->uri();
  return placed;
}

absl::StatusOr<std::unique_ptr<Index>> IndexPlaces::FindReusable() {
  for (const Place place : ArtifactPlaces::kPlaces) {
    absl::StatusOr<PlacedIndex> placed = Open(place);
    const absl::Status status = placed.ok() ? placed->index->Verify() : placed.status();
    if (status.ok() && placed->index->TellsAll()) return std::move(placed->index);
    // An outage may hide an index, and reading all data again is too expensive for a guess.
    if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsCancelled(status)) return status;
    if (!status.ok() && !absl::IsNotFound(status)) {
      Log(LogLevel::kWarning, "dataset",
          fmt::format("everything is read again, since the older index cannot be used: {}", ToStd(status.message())));
    }
  }
  return nullptr;
}

absl::StatusOr<PlacedIndex> IndexPlaces::Build(const BuildOptions& options) {
  PlacedIndex placed;
  const auto build = [&](OpenArtifact open) -> absl::Status {
    ASSIGN_OR_RETURN(BuiltIndex built, BuildIndex(runtime_, data_, open, options));
    placed.report = std::move(built.report);
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(const SharedArtifact artifact, places_.Build(build));
  ASSIGN_OR_RETURN(placed.index, Index::Open(artifact));
  placed.uri = artifact->uri();
  return placed;
}

}  // namespace millrace
