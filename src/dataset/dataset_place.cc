#include "dataset/dataset_place.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "shard/data_kind.h"
#include "shard/sample_name.h"
#include "shard/token_format.h"
#include "store/blocking.h"

namespace millrace {

namespace {

// Whether it is there; what keeps anybody from telling is an error.
absl::StatusOr<std::optional<ObjectInfo>> FindObject(ObjectStore& store, const std::string& key,
                                                     const std::stop_token& stop) {
  absl::StatusOr<ObjectInfo> info = HeadBlocking(store, key, stop);
  if (info.ok()) return *std::move(info);
  const absl::Status& status = info.status();
  if (absl::IsUnauthenticated(status) || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
      absl::IsCancelled(status)) {
    return status;
  }
  return std::nullopt;
}

// The names of the data set that the object is, or is one of.
absl::StatusOr<std::vector<std::string>> NamesWith(const Location& folder, const std::string& name,
                                                   const ObjectInfo& object, const std::stop_token& stop) {
  if (!IsMegatronBin(name) && !IsMegatronIdx(name)) return std::vector{name};
  const std::string bin = IsMegatronBin(name) ? name : BinOfIdx(name);
  const std::string idx = IdxOfBin(bin);
  std::optional<ObjectInfo> found = object;
  if (name == bin) {
    ASSIGN_OR_RETURN(found, FindObject(*folder.store, folder.Key(idx), stop));
    if (!found) return std::vector{name};
  }
  ASSIGN_OR_RETURN(const bool of_megatron, BeginsAsMegatron(*folder.store, *found, stop));
  if (!of_megatron) return std::vector{name};
  if (name == idx) {
    ASSIGN_OR_RETURN(found, FindObject(*folder.store, folder.Key(bin), stop));
  }
  if (found) return std::vector{bin, idx};
  const ObjectStore& store = *folder.store;
  return absl::InvalidArgumentError(fmt::format("{}: there is no '{}' beside it, which has the tokens; restore it",
                                                store.Uri(folder.Key(idx)), store.Uri(folder.Key(bin))));
}

}  // namespace

DatasetPlace::DatasetPlace(const Location& folder)
    : Location(folder), uri(folder.store->Uri(folder.Key(""))), index_key(folder.Key(kIndexName)) {}

absl::StatusOr<bool> BeginsAsMegatron(ObjectStore& store, const ObjectInfo& object, const std::stop_token& stop) {
  std::array<std::byte, kMegatronMagic.size()> head{};
  if (object.size < kMegatronHeadBytes) return false;
  GetOptions options;
  options.range = {.offset = 0, .length = head.size()};
  options.if_match = object.etag;
  options.stop = stop;
  RETURN_IF_ERROR(GetBlocking(store, object.key, head, std::move(options)).status());
  return AsText(head) == kMegatronMagic;
}

absl::StatusOr<DatasetPlace> PlaceOfObject(const Location& folder, const std::string& name, const ObjectInfo& object,
                                           const std::stop_token& stop) {
  DatasetPlace place(folder);
  ASSIGN_OR_RETURN(place.names, NamesWith(place, name, object, stop));
  place.uri = place.store->Uri(place.Key(place.names.front()));
  place.index_key = place.Key(fmt::format("{}{}.index", kDatasetFolder, place.names.front()));
  return place;
}

absl::StatusOr<std::optional<DatasetPlace>> FindSingleObject(Stores& stores, std::string_view uri,
                                                             const std::stop_token& stop) {
  const absl::StatusOr<Location> named = stores.OpenObject(uri);
  if (!named.ok()) return std::nullopt;  // opening it as a folder says what is wrong
  const std::string& key = named->prefix;
  const size_t name_at = key.rfind('/') + 1;  // 0 without a slash
  const std::string name = key.substr(name_at);
  if (name.starts_with('.') || (!SplitSampleName(name) && !ShardKind(name))) return std::nullopt;
  ASSIGN_OR_RETURN(const std::optional<ObjectInfo> object, FindObject(*named->store, key, stop));
  if (!object) return std::nullopt;
  return PlaceOfObject({.store = named->store, .prefix = key.substr(0, name_at)}, name, *object, stop);
}

absl::StatusOr<DatasetPlace> FindObjects(Stores& stores, std::string_view uri, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(std::optional<DatasetPlace> single, FindSingleObject(stores, uri, stop));
  if (single) return *std::move(single);
  ASSIGN_OR_RETURN(const Location folder, stores.Open(uri));
  return DatasetPlace(folder);
}

PlaceLister::PlaceLister(const DatasetPlace& place, std::stop_token stop)
    : data_(place), names_(place.names), stop_(stop) {
  if (names_.empty()) lister_.emplace(*data_.store, data_.Key(""), std::move(stop));
}

absl::StatusOr<std::vector<ObjectInfo>> PlaceLister::Next() {
  if (lister_) return lister_->Next();
  std::vector<ObjectInfo> objects;
  for (const std::string& name : std::exchange(names_, {})) {
    absl::StatusOr<ObjectInfo> info = HeadBlocking(*data_.store, data_.Key(name), stop_);
    if (absl::IsNotFound(info.status())) continue;
    RETURN_IF_ERROR(info.status());
    objects.push_back(*std::move(info));
  }
  return objects;
}

}  // namespace millrace
