#include "dataset/dataset_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "dataset/folder_join.h"
#include "shard/data_kind.h"
#include "shard/sample_name.h"
#include "shard/token_format.h"
#include "store/blocking.h"
#include "store/completion.h"

namespace millrace {

namespace {

constexpr size_t kHeadsAtOnce = 64;

// Returns the object, or nullopt if it is not there. An error means that this is not known.
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

// Returns the names of the data set that the object is, or is one of.
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

// Returns true if something lies below exactly that name, even if the name has wildcards in it.
absl::StatusOr<bool> IsFolder(Stores& stores, std::string_view uri, const std::stop_token& stop) {
  const absl::StatusOr<Location> folder = stores.Open(uri);
  if (!folder.ok()) return false;  // as of a list of URIs
  ListOptions options;
  options.prefix = folder->Key("");
  options.max_keys = 1;
  const absl::StatusOr<ListPage> page = ListBlocking(*folder->store, std::move(options), stop);
  if (absl::IsNotFound(page.status()) || absl::IsInvalidArgument(page.status())) return false;
  if (absl::IsPermissionDenied(page.status())) return false;  // what is selected may be readable all the same
  RETURN_IF_ERROR(page.status());
  return !page->objects.empty();
}

absl::StatusOr<DatasetPlace> SelectedPlace(Stores& stores, std::string_view uri, ObjectSelection selection) {
  ASSIGN_OR_RETURN(const Location folder, stores.Open(selection.folder()));
  DatasetPlace place(folder);
  place.uri = std::string(uri);
  place.index_key =
      place.Key(fmt::format("{}{}{}.selection", selection.first_folder(), kDatasetFolder, selection.Id()));
  place.selection = std::make_shared<const ObjectSelection>(std::move(selection));
  return place;
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
  if (name.starts_with('.') || (!SplitObjectName(name) && !ShardKind(name))) return std::nullopt;
  ASSIGN_OR_RETURN(const std::optional<ObjectInfo> object, FindObject(*named->store, key, stop));
  if (!object) return std::nullopt;
  return PlaceOfObject({.store = named->store, .prefix = key.substr(0, name_at)}, name, *object, stop);
}

absl::StatusOr<DatasetPlace> FindObjects(Stores& stores, std::string_view uri, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(std::optional<FolderJoin> join, FolderJoin::Parse(uri));
  if (join) {
    ASSIGN_OR_RETURN(const Location place, stores.Open(join->folder()));
    DatasetPlace joined(place);
    joined.uri = std::string(uri);
    joined.index_key = joined.Key(fmt::format("{}{}.join", kDatasetFolder, join->Id()));
    joined.join = std::make_shared<const FolderJoin>(*std::move(join));
    return joined;
  }
  ASSIGN_OR_RETURN(std::optional<DatasetPlace> single, FindSingleObject(stores, uri, stop));
  if (single) return *std::move(single);
  ASSIGN_OR_RETURN(std::optional<ObjectSelection> selection, ObjectSelection::Parse(uri));
  if (selection) {
    ASSIGN_OR_RETURN(const bool folder, IsFolder(stores, uri, stop));
    if (!folder) return SelectedPlace(stores, uri, *std::move(selection));
  }
  ASSIGN_OR_RETURN(const Location folder, stores.Open(uri));
  return DatasetPlace(folder);
}

std::string DatasetPlace::UriInShell() const {
  if (uri.find_first_of("*?[]{}()&;|<>$`\"'\\ \t\n!#~") == std::string::npos) return uri;
  std::string quoted = "'";
  for (const char c : uri) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

PlaceLister::PlaceLister(const DatasetPlace& place, std::stop_token stop) : data_(place), stop_(std::move(stop)) {
  if (data_.selection) {
    const std::vector<std::string> names = data_.selection->Names();
    not_seen_ = {names.begin(), names.end()};
  } else if (data_.names.empty()) {
    lister_.emplace(*data_.store, data_.Key(""), stop_);
  }
}

absl::StatusOr<std::vector<ObjectInfo>> PlaceLister::Next() {
  if (data_.selection) return NextSelected();
  return lister_ ? lister_->Next() : HeadNames();
}

absl::StatusOr<std::vector<ObjectInfo>> PlaceLister::HeadNames() {
  std::vector<ObjectInfo> objects;
  if (std::exchange(asked_, true)) return objects;
  for (const std::string& name : data_.names) {
    absl::StatusOr<ObjectInfo> info = HeadBlocking(*data_.store, data_.Key(name), stop_);
    if (absl::IsNotFound(info.status())) continue;
    RETURN_IF_ERROR(info.status());
    objects.push_back(*std::move(info));
  }
  return objects;
}

absl::StatusOr<std::vector<ObjectInfo>> PlaceLister::NextSelected() {
  if (may_not_list_) return HeadSelected();
  const std::vector<std::string>& prefixes = data_.selection->prefixes();
  const size_t below = data_.Key("").size();
  while (prefix_ < prefixes.size()) {
    if (!lister_) lister_.emplace(*data_.store, data_.Key(prefixes[prefix_]), stop_);
    absl::StatusOr<std::vector<ObjectInfo>> listed = lister_->Next();
    may_not_list_ = absl::IsPermissionDenied(listed.status()) && data_.selection->NamesAll();
    if (may_not_list_) return HeadSelected();
    ASSIGN_OR_RETURN(std::vector<ObjectInfo> objects, std::move(listed));
    if (objects.empty()) {
      lister_.reset();
      ++prefix_;
      continue;
    }
    std::erase_if(objects, [&](const ObjectInfo& object) {
      return !data_.selection->Contains(std::string_view(object.key).substr(below));
    });
    for (const ObjectInfo& object : objects) TickOff(std::string_view(object.key).substr(below));
    if (!objects.empty()) return objects;
  }
  if (not_seen_.empty()) return std::vector<ObjectInfo>();
  return NothingThere();
}

// Asks for some of those that were not seen yet, in order.
absl::StatusOr<std::vector<ObjectInfo>> PlaceLister::HeadSelected() {
  std::vector<Completion<absl::StatusOr<ObjectInfo>>> heads(std::min(not_seen_.size(), kHeadsAtOnce));
  auto name = not_seen_.begin();
  for (Completion<absl::StatusOr<ObjectInfo>>& head : heads) data_.store->Head(data_.Key(*name++), {}, head.Callback());
  std::vector<ObjectInfo> objects;
  for (Completion<absl::StatusOr<ObjectInfo>>& head : heads) {
    if (!head.WaitOrStop(stop_)) return absl::CancelledError(fmt::format("{}: interrupted", data_.uri));
    absl::StatusOr<ObjectInfo> info = head.Wait();
    if (absl::IsNotFound(info.status())) return NothingThere();
    RETURN_IF_ERROR(info.status());
    objects.push_back(*std::move(info));
    not_seen_.erase(not_seen_.begin());
  }
  return objects;
}

absl::Status PlaceLister::NothingThere() const {
  const std::string others = not_seen_.size() > 1 ? fmt::format(" (nor at {} more)", not_seen_.size() - 1) : "";
  return absl::NotFoundError(
      fmt::format("{}: there is nothing at {}{}", data_.uri, data_.store->Uri(data_.Key(*not_seen_.begin())), others));
}

// Removes from `not_seen_` an object that has been listed, and the folders it lies in.
void PlaceLister::TickOff(std::string_view key) {
  if (not_seen_.empty()) return;
  for (size_t end = key.find('/'); end != key.npos; end = key.find('/', end + 1)) {
    if (const auto folder = not_seen_.find(key.substr(0, end)); folder != not_seen_.end()) not_seen_.erase(folder);
  }
  if (const auto object = not_seen_.find(key); object != not_seen_.end()) not_seen_.erase(object);
}

}  // namespace millrace
