#include "dataset/index_carrier.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/crypto.h"
#include "dataset/index_places.h"
#include "dataset/sample_objects.h"
#include "dataset/token_files.h"
#include "shard/manifest.h"
#include "store/blocking.h"
#include "store/joined_objects.h"

namespace millrace {

namespace {

constexpr size_t kMostIndexes = 1000;
constexpr size_t kMostCopies = 12'000'000;
constexpr std::string_view kNamedSuffix = ".index";  // of the index of a single object

/// Represents the name of an index, taken apart.
struct IndexName {
  std::string folder;  // of the data: "" or ending with '/'
  std::string object;  // "": the data set is the folder
};

std::optional<IndexName> Split(std::string_view name) {
  const size_t slash = name.rfind('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string_view folder = name.substr(0, slash + 1);
  std::string_view last = name.substr(slash + 1);
  if (!folder.ends_with(kDatasetFolder)) return std::nullopt;
  const std::string_view above = folder.substr(0, folder.size() - kDatasetFolder.size());
  if (!above.empty() && !above.ends_with('/')) return std::nullopt;
  if (name.substr(above.size()) == kIndexName) return IndexName{.folder = std::string(above), .object = {}};
  if (!last.ends_with(kNamedSuffix) || last.size() == kNamedSuffix.size()) return std::nullopt;
  last.remove_suffix(kNamedSuffix.size());
  return IndexName{.folder = std::string(above), .object = std::string(last)};
}

std::pair<uint64_t, uint64_t> HashOf(std::string_view name, std::string_view source_etag,
                                     std::string_view target_etag) {
  Xxh3Stream stream;
  for (const std::string_view part : {name, source_etag, target_etag}) {
    stream.UpdateLe64(part.size());
    stream.Update(AsBytes(part));
  }
  const Uint128 digest = stream.Digest();
  return {digest.high, digest.low};
}

// Returns false if the samples differ. A sample without a CRC in one of the indexes may be the same.
bool AreNotOther(const std::optional<uint32_t>& one, const std::optional<uint32_t>& other) {
  return !one || !other || *one == *other;
}

Location Below(const Location& folder, std::string_view name) {
  return {.store = folder.store, .prefix = folder.Key(name)};
}

// Returns the newest index of the data that is sound; if there are several errors, the first. NotFound if there is
// none.
absl::StatusOr<std::unique_ptr<Index>> FindSound(IndexPlaces& places) {
  absl::Status first = absl::NotFoundError("no index");
  for (const IndexPlaces::Place place : ArtifactPlaces::kPlaces) {
    absl::StatusOr<PlacedIndex> placed = places.Open(place);
    absl::Status status = placed.ok() ? placed->index->Verify() : placed.status();
    if (status.ok() && !placed->index->TellsAll())
      status = absl::FailedPreconditionError(fmt::format("{}: it lacks labels, since there are too many", placed->uri));
    if (status.ok()) return std::move(placed->index);
    if (absl::IsNotFound(first)) first = status;
  }
  return first;
}

}  // namespace

IndexCarrier::IndexCarrier(Runtime& runtime, Stores& stores, Location from, Location to)
    : runtime_(runtime), stores_(stores), from_(std::move(from)), to_(std::move(to)) {}

bool IndexCarrier::IsIndex(std::string_view name) {
  return Split(name).has_value();
}

void IndexCarrier::AddIndex(std::string_view name, bool listed) {
  const auto known = indexes_.find(name);
  if (known != indexes_.end()) {
    known->second = known->second || listed;
  } else if (indexes_.size() < kMostIndexes) {
    indexes_.emplace(name, listed);
  } else {
    ++too_many_;
  }
}

void IndexCarrier::AddCopy(const ObjectInfo& source, const ObjectInfo& copy) {
  if (source.etag.empty() || copy.etag.empty()) return;  // nothing would say that it is the same object
  const std::string_view name = std::string_view(source.key).substr(from_.prefix.size());
  const std::pair<uint64_t, uint64_t> hash = HashOf(name, source.etag, copy.etag);
  const std::lock_guard lock(mutex_);
  forgot_ = forgot_ || copies_.size() == kMostCopies;
  if (!forgot_) copies_.insert(hash);
}

void IndexCarrier::AddKept(const ObjectInfo& source, const ObjectInfo& copy) {
  AddCopy(source, copy);
  if (source.etag.empty() || copy.etag.empty() || kept_.size() == kMostCopies) return;
  kept_.insert(HashOf(std::string_view(source.key).substr(from_.prefix.size()), source.etag, copy.etag));
}

absl::StatusOr<DatasetPlace> IndexCarrier::PlaceOf(const Location& folder, std::string_view index_name,
                                                   const std::stop_token& stop) {
  const std::optional<IndexName> name = Split(index_name);
  if (!name) return absl::InternalError("no name of an index");
  const Location data = Below(folder, name->folder);
  if (name->object.empty()) return DatasetPlace(data);
  const std::string key = data.Key(name->object);
  if (ManifestFormatOf(name->object)) {
    return absl::UnimplementedError(fmt::format(
        "{}: the index of a manifest names objects of the source, and is not carried over", data.store->Uri(key)));
  }
  ASSIGN_OR_RETURN(const ObjectInfo object, HeadBlocking(*data.store, key, stop));
  return PlaceOfObject(data, name->object, object, stop);
}

// Compares all objects that are joined to one.
bool IndexCarrier::AreIn(const Hashes& pairs, const std::string& below, const IndexedObject& then,
                         const IndexedObject& now) {
  const absl::StatusOr<std::vector<ObjectInfo>> were = SplitJoined(then.key, then.etag);
  const absl::StatusOr<std::vector<ObjectInfo>> are = SplitJoined(now.key, now.etag);
  if (!were.ok() || !are.ok()) return false;
  return std::equal(were->begin(), were->end(), are->begin(), are->end(),
                    [&](const ObjectInfo& source, const ObjectInfo& copy) {
                      return pairs.contains(HashOf(below + source.key, source.etag, copy.etag));
                    });
}

// Returns FailedPrecondition if an object that was kept has other samples, according to an index of the target that has
// it as it is now.
absl::Status IndexCarrier::CheckKept(const std::string& below, const Index& source, const Index& target) const {
  using Sums = std::vector<std::optional<uint32_t>>;
  const auto sums = [](const Index& index, uint32_t object, uint64_t* block) -> absl::StatusOr<Sums> {
    Sums crcs;
    RETURN_IF_ERROR(index.ScanObject(object, block, [&crcs](const NewSample& sample) {
      crcs.push_back(sample.crc32c);
      return absl::OkStatus();
    }));
    return crcs;
  };
  IndexedObject theirs;
  IndexedObject ours;
  uint64_t block_of_theirs = 0;
  uint64_t block_of_ours = 0;
  for (uint32_t i = 0; i < target.objects() && !kept_.empty(); ++i) {
    RETURN_IF_ERROR(target.LookupObject(i, &theirs));
    ASSIGN_OR_RETURN(const std::optional<uint32_t> number, source.FindObject(theirs.key));
    if (!number) continue;
    RETURN_IF_ERROR(source.LookupObject(*number, &ours));
    if (!AreIn(kept_, below, ours, theirs)) continue;
    ASSIGN_OR_RETURN(const Sums known, sums(target, i, &block_of_theirs));
    ASSIGN_OR_RETURN(const Sums expected, sums(source, *number, &block_of_ours));
    if (std::equal(known.begin(), known.end(), expected.begin(), expected.end(), AreNotOther)) continue;
    return absl::FailedPreconditionError(
        fmt::format("'{}' has the size of the source's, and was not copied, but holds other samples, as the index of "
                    "the target tells",
                    theirs.key));
  }
  return absl::OkStatus();
}

// Returns true if it carried the index; false if there is nothing to be carried, or to be done.
absl::StatusOr<bool> IndexCarrier::CarryOne(const std::string& name, const DatasetPlace& source,
                                            const DatasetPlace& target, bool changed, const std::stop_token& stop) {
  IndexPlaces sources(runtime_, stores_, source, "", stop);
  absl::StatusOr<std::unique_ptr<Index>> index = FindSound(sources);
  const bool absent = absl::IsNotFound(index.status()) || absl::IsPermissionDenied(index.status());
  if (absent && !indexes_.at(name)) return false;
  RETURN_IF_ERROR(index.status());
  found_.insert(name);
  IndexPlaces targets(runtime_, stores_, target, "", stop);
  // Keys of an index are below the data set, those of copies below the copied folder.
  const std::string below = source.Key("").substr(from_.prefix.size());
  const absl::StatusOr<PlacedIndex> there = targets.Open(IndexPlaces::Place::kBeside);
  if (there.ok()) {
    const bool fits =
        !changed && !there->index->is_of_older_version() && there->index->fingerprint() == (*index)->fingerprint();
    if (fits && CheckObjects(target, *there->index, stop).ok()) return false;
    RETURN_IF_ERROR(CheckKept(below, **index, *there->index));
  }
  if (forgot_) {
    return absl::ResourceExhaustedError(
        fmt::format("more than {} objects were copied, which is more than are remembered", kMostCopies));
  }
  const BuildOptions options{
      .reuse = index->get(),
      .same = [&](const IndexedObject& then, const IndexedObject& now) { return AreIn(copies_, below, then, now); },
      .reads = false,
      .tokens = TokenArraysOf(**index).value_or(std::nullopt),
      .stop = stop};
  ASSIGN_OR_RETURN(const FileLock lock, targets.LockForBuilding());
  RETURN_IF_ERROR(targets.Build(options).status());
  return true;
}

void IndexCarrier::CarryNamed(const std::string& name, bool changed, const std::stop_token& stop, Report* report) {
  const auto carry = [&]() -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(const DatasetPlace source, PlaceOf(from_, name, stop));
    ASSIGN_OR_RETURN(const DatasetPlace target, PlaceOf(to_, name, stop));
    return CarryOne(name, source, target, changed, stop);
  };
  const absl::StatusOr<bool> carried = carry();
  if (absl::IsCancelled(carried.status())) return;
  report->carried += carried.ok() && *carried ? 1 : 0;
  // Nothing is lost if only the target has an index, of data that the source may not even have.
  if (carried.ok() || (!indexes_.at(name) && !SourceHas(name))) return;
  const std::optional<IndexName> parts = Split(name);
  const std::string uri = to_.store->Uri(to_.Key(parts->folder + parts->object));
  report->failures.push_back(absl::Status(
      carried.status().code(), fmt::format("the index of {} was not carried over ({}); build it: millrace index {}",
                                           uri, ToStd(carried.status().message()), uri)));
}

IndexCarrier::Report IndexCarrier::Carry(bool changed, const std::stop_token& stop) {
  Report report;
  for (const auto& [name, listed] : indexes_) {
    if (stop.stop_requested()) break;
    CarryNamed(name, changed, stop, &report);
  }
  if (too_many_ > 0) {
    report.failures.push_back(absl::ResourceExhaustedError(fmt::format(
        "of the indexes below {} {} were not carried over, since at most {} are at a time; copy the data sets "
        "one by one, or build them: millrace index",
        to_.store->Uri(to_.prefix), too_many_, kMostIndexes)));
  }
  return report;
}

}  // namespace millrace
