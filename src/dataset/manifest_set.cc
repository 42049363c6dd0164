#include "dataset/manifest_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/size.h"
#include "dataset/folder_join.h"
#include "shard/field_value.h"
#include "shard/sample_name.h"
#include "shard/token_format.h"
#include "store/blocking.h"
#include "store/joined_objects.h"

namespace millrace {

namespace {

constexpr size_t kHeadsAhead = 64;
constexpr uint64_t kMaxManifestBytes = uint64_t{1} << 30;

bool HasParentPart(std::string_view path) {
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    if (part == "..") return true;
    path.remove_prefix(std::min(path.size(), part.size() + 1));
  }
  return false;
}

}  // namespace

absl::StatusOr<std::optional<ManifestPlace>> FindManifest(Stores& stores, std::string_view uri,
                                                          const std::stop_token& stop) {
  if (!ManifestFormatOf(uri)) return std::nullopt;
  const absl::StatusOr<Location> object = stores.OpenObject(uri);
  if (!object.ok()) return std::nullopt;  // opening it as a folder says what is wrong
  const std::string& key = object->prefix;
  absl::StatusOr<ObjectInfo> info = HeadBlocking(*object->store, key, stop);
  if (absl::IsPermissionDenied(info.status()) || absl::IsUnauthenticated(info.status()) ||
      absl::IsUnavailable(info.status()) || absl::IsCancelled(info.status())) {
    return info.status();
  }
  if (!info.ok()) return std::nullopt;
  ManifestPlace place;
  place.store = object->store;
  place.uri = place.store->Uri(key);
  place.info = *std::move(info);
  place.folder = key.substr(0, key.rfind('/') + 1);
  place.index_key = fmt::format("{}{}{}.index", place.folder, kDatasetFolder, key.substr(place.folder.size()));
  return place;
}

absl::Status CheckManifest(const ManifestPlace& place, const ManifestColumns& columns, const Index& index) {
  ASSIGN_OR_RETURN(const std::optional<uint32_t> number, index.FindObject(place.info.key));
  IndexedObject object;
  if (number) RETURN_IF_ERROR(index.LookupObject(*number, &object));
  if (number && object.size == place.info.size && object.etag == place.info.etag) {
    if (columns.quotes != CsvQuotes::kUsual && index.quotes_are_text() != (columns.quotes == CsvQuotes::kText))
      return absl::NotFoundError(fmt::format("{}: its index was built with other quotes", place.uri));
    // The column of the path and that of the label are no fields.
    const std::vector<std::string>& fields = index.field_names();
    const auto is_field = [&](const std::string& name) {
      return std::binary_search(fields.begin(), fields.end(), name);
    };
    ASSIGN_OR_RETURN(const std::vector<PathColumn> paths, ParsePathColumns(columns.path));
    for (const PathColumn& path : paths) {
      if (!is_field(path.field))
        return absl::NotFoundError(fmt::format("{}: its index has no field '{}'", place.uri, path.field));
    }
    std::vector<std::string> none = {columns.label};
    if (paths.empty()) none.push_back(columns.path);
    for (const std::string& name : none) {
      if (is_field(name)) return absl::NotFoundError(fmt::format("{}: its index has '{}' as a field", place.uri, name));
    }
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      fmt::format("{}: the manifest has changed since its index was built; build it again: millrace index {}",
                  place.uri, place.uri));
}

ManifestSamples::ManifestSamples(ManifestPlace place, MemoryBudget& memory)
    : place_(std::move(place)), root_(place_.store->traits().root), rows_(place_.folder, memory) {}

absl::StatusOr<std::unique_ptr<ManifestSamples>> ManifestSamples::Read(const ManifestPlace& place,
                                                                       const ManifestColumns& columns,
                                                                       MemoryBudget& memory,
                                                                       const std::stop_token& stop) {
  std::unique_ptr<ManifestSamples> samples(new ManifestSamples(place, memory));
  absl::Status status = samples->Parse(columns, memory, stop);
  if (status.ok()) status = samples->SortAndCheck();
  if (status.ok()) status = samples->CheckNoPairs(stop);
  RETURN_IF_ERROR(Annotate(status, place.uri));
  return samples;
}

absl::Status ManifestSamples::Parse(const ManifestColumns& columns, MemoryBudget& memory, const std::stop_token& stop) {
  const uint64_t bytes = place_.info.size;
  const Reservation reserved = memory.TryReserve(bytes);
  if (!reserved || bytes > kMaxManifestBytes) {
    return absl::ResourceExhaustedError(fmt::format(
        "a manifest of {}, which is read as a whole; {} of {} of memory are in use (and at most {} are read)",
        FormatSize(bytes), FormatSize(memory.used()), FormatSize(memory.limit()), FormatSize(kMaxManifestBytes)));
  }
  std::string text(bytes, '\0');
  if (bytes > 0) {
    GetOptions options;
    options.range = {.offset = 0, .length = bytes};
    options.if_match = place_.info.etag;  // what the index is to pin
    options.stop = stop;
    RETURN_IF_ERROR(GetBlocking(*place_.store, place_.info.key, AsWritableBytes(text), std::move(options)).status());
  }
  const auto add = [&](const Manifest& manifest, const ManifestRow& row) -> absl::Status {
    constexpr uint64_t kRows = 4096;  // between looks at the stop; the first row, on line 1 or 2, is one
    if (row.line % kRows <= 2 && stop.stop_requested())
      return absl::CancelledError("reading the manifest was interrupted");
    return Annotate(Add(manifest, row), fmt::format("{} {}", manifest.row_word, row.line));
  };
  quotes_are_text_ = columns.quotes == CsvQuotes::kText;
  ASSIGN_OR_RETURN(paths_, ParsePathColumns(columns.path));
  ManifestColumns first = columns;
  if (!paths_.empty()) first.path = paths_.front().column;
  ASSIGN_OR_RETURN(manifest_, ParseManifest(*ManifestFormatOf(place_.uri), text, first, add));
  WarnOfNoLabels();
  return absl::OkStatus();
}

// Warns if there are no labels. A label under another name would be taken for a value like others, and all samples
// would have class 0.
void ManifestSamples::WarnOfNoLabels() const {
  if (manifest_.has_labels || manifest_.columns.empty()) return;
  std::vector<std::string> names;
  for (const ManifestColumn& column : manifest_.columns) {
    if (FurtherPath(column) == nullptr) names.push_back(fmt::format("'{}'", column.name));
  }
  if (names.empty()) return;
  constexpr size_t kShown = 10;
  const bool all = names.size() <= kShown;
  if (!all) names.resize(kShown);
  Log(LogLevel::kWarning, "dataset",
      fmt::format("{}: none of {}{} is a label, which would be called cls, label or class; if one of them is, say "
                  "so: `millrace index --label-column X`, in Python Dataset(uri, label_column=\"X\")",
                  place_.uri, fmt::join(names, ", "), all ? "" : " and the others"));
}

// Returns the key of a path. The path is below the manifest's folder, or is the URI (or for files the absolute path) of
// an object of the same store.
absl::StatusOr<std::string> ManifestSamples::ObjectKey(std::string_view path) const {
  std::string_view rest = path.starts_with("file://") ? path.substr(7) : path;
  const bool absolute = rest.starts_with('/') || rest.find("://") != std::string_view::npos;
  if (absolute && !rest.starts_with(root_)) {
    return absl::InvalidArgumentError(fmt::format(
        "'{}' is not below {}, where the manifest lies; objects of other places cannot be read", path, root_));
  }
  if (absolute) rest.remove_prefix(root_.size());
  while (rest.starts_with("./")) rest.remove_prefix(2);
  if (rest.empty() || rest.ends_with('/') || HasParentPart(rest))
    return absl::InvalidArgumentError(fmt::format("'{}' is no path of an object below the manifest's folder", path));
  std::string key = absolute ? std::string(rest) : place_.folder + std::string(rest);
  if (key.starts_with(place_.folder) && IsHiddenKey(std::string_view(key).substr(place_.folder.size()))) {
    return absl::InvalidArgumentError(
        fmt::format("'{}' is hidden: a part of it begins with a dot; such objects are no samples", path));
  }
  return key;
}

absl::Status ManifestSamples::Add(const Manifest& manifest, const ManifestRow& row) {
  const std::string path = manifest.prefix + std::string(row.path);
  ASSIGN_OR_RETURN(const std::string object, ObjectKey(path));
  // The name is that of a raw object in the manifest's folder, or below the prefix that the manifest names.
  uint64_t name_at = object.starts_with(place_.folder) ? place_.folder.size() : 0;
  if (!manifest.prefix.empty() && object.ends_with(row.path)) name_at = object.size() - row.path.size();
  const std::string_view name = std::string_view(object).substr(name_at);
  if (!SplitObjectName(name)) {
    return absl::InvalidArgumentError(fmt::format(
        "'{}' is no name of a sample, such as class/0001.jpg: it has no extension, or begins with a dot", name));
  }
  if (row.label.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        fmt::format("a label of {} bytes (at most {} are allowed); rename its column if it is no class: it is a field "
                    "then",
                    row.label.size(), kMaxNameBytes));
  }
  RETURN_IF_ERROR(CheckFurtherPaths(manifest, row));
  return rows_.Add(object, name_at, row);
}

// Returns the field that is the object of such a path; null if the cells of that column are values.
const PathColumn* ManifestSamples::FurtherPath(const ManifestColumn& column) const {
  if (paths_.empty()) return nullptr;
  const auto found = std::find_if(paths_.begin() + 1, paths_.end(),
                                  [&](const PathColumn& path) { return path.column == column.name; });
  return found == paths_.end() ? nullptr : &*found;
}

absl::Status ManifestSamples::CheckFurtherPaths(const Manifest& manifest, const ManifestRow& row) const {
  for (size_t i = 1; i < paths_.size(); ++i) {
    const PathColumn& path = paths_[i];
    const auto cell = std::find_if(row.cells.begin(), row.cells.end(), [&](const ManifestCell& one) {
      return manifest.columns[one.column].name == path.column;
    });
    if (cell == row.cells.end())
      return absl::InvalidArgumentError(fmt::format("there is no path in '{}', for '{}'", path.column, path.field));
    RETURN_IF_ERROR(Annotate(ObjectKey(manifest.prefix + std::string(cell->text)).status(), path.column));
  }
  return absl::OkStatus();
}

std::vector<std::string> ManifestSamples::ObjectsAt(size_t i) const {
  std::vector<std::string> keys = {rows_.KeyAt(i)};
  if (paths_.empty()) return keys;
  const StoredRow row = rows_.At(i);
  for (size_t path = 1; path < paths_.size(); ++path) {
    for (const ManifestCell& cell : row.cells) {
      if (manifest_.columns[cell.column].name != paths_[path].column) continue;
      keys.push_back(ObjectKey(manifest_.prefix + std::string(cell.text)).value_or(""));  // it was checked
      break;
    }
  }
  return keys;
}

std::string ManifestSamples::LineAt(size_t i) const {
  return fmt::format("{} {}", manifest_.row_word, rows_.LineAt(i));
}

absl::Status ManifestSamples::SortAndCheck() {
  rows_.Sort();
  for (size_t i = 1; i < rows_.size(); ++i) {
    if (!rows_.SameObject(i - 1, i)) continue;
    return absl::InvalidArgumentError(
        fmt::format("{} and {} name the same object, '{}'; remove one", LineAt(i - 1), LineAt(i), rows_.KeyAt(i)));
  }
  if (const std::optional<size_t> own = rows_.Find(place_.info.key))
    return absl::InvalidArgumentError(fmt::format("{} names the manifest itself", LineAt(*own)));
  return absl::OkStatus();
}

// Refuses pairs of Megatron, which are not two samples. The first .idx beside a .bin is read, and represents all of
// them, as in a folder. If it cannot be read, it is no pair. Its error is reported when the store is asked for the
// objects.
absl::Status ManifestSamples::CheckNoPairs(const std::stop_token& stop) const {
  size_t idx = 0;
  std::string key;
  for (; idx < rows_.size(); ++idx) {
    key = rows_.KeyAt(idx);
    if (IsMegatronIdx(key) && rows_.Find(BinOfIdx(key))) break;
  }
  if (idx == rows_.size()) return absl::OkStatus();
  std::array<std::byte, kMegatronMagic.size()> head{};
  GetOptions options;
  options.range = {.offset = 0, .length = head.size()};
  options.stop = stop;
  absl::Status read = GetBlocking(*place_.store, key, head, std::move(options)).status();
  if (absl::IsCancelled(read)) return read;
  if (!read.ok() || AsText(head) != kMegatronMagic) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "{}: '{}' and the .bin beside it are token files of Megatron, whose samples a manifest cannot list; give "
      "the URI of their folder instead",
      LineAt(idx), key));
}

absl::StatusOr<std::optional<ManifestSample>> ManifestSamples::Find(const IndexedObject& object) const {
  ASSIGN_OR_RETURN(const std::vector<ObjectInfo> parts, SplitJoined(object.key, ""));
  const std::optional<size_t> found = rows_.Find(parts.front().key);
  if (!found) return std::optional<ManifestSample>();
  const StoredRow row = rows_.At(*found);
  std::optional<SampleName> name = SplitObjectName(row.rest.substr(row.name_at));
  ManifestSample sample{.line = LineAt(*found),
                        .key = std::string(name->key),
                        .fields = {},
                        .label = std::string(row.label),
                        .values = {}};
  if (paths_.empty()) sample.fields.push_back({.name = std::move(name->field), .offset = 0, .length = object.size});
  uint64_t offset = 0;
  for (size_t i = 0; i < std::min(paths_.size(), parts.size()); ++i) {
    sample.fields.push_back(
        {.name = paths_[i].field, .offset = offset, .length = parts[i].size, .encoding = EncodingByName(parts[i].key)});
    offset += parts[i].size;
  }
  for (const ManifestCell& cell : row.cells) {
    const ManifestColumn& column = manifest_.columns[cell.column];
    if (FurtherPath(column) != nullptr || !IsManifestValue(column, cell.text)) continue;
    sample.values.push_back(
        {.name = column.name, .text = ManifestValueText(column, cell.text), .encoding = column.encoding});
  }
  if (!manifest_.has_labels && (row.in_folder || !manifest_.prefix.empty())) sample.label = ClassFolder(sample.key);
  if (!manifest_.numeric_labels || sample.label.empty()) return std::optional(std::move(sample));
  // Numbers stay as they are; texts are numbered, as class folders are. As in shards, -1 is no class.
  const auto place = std::find_if(sample.values.begin(), sample.values.end(),
                                  [](const ManifestValue& value) { return value.name > kClassField; });
  sample.values.insert(place, {.name = kClassField, .text = sample.label, .encoding = encoding::kInt});
  if (sample.label.starts_with('-')) sample.label.clear();
  return std::optional(std::move(sample));
}

absl::StatusOr<std::optional<IndexedObject>> ManifestObjects::Next() {
  const ManifestPlace& place = samples_.place();
  const bool before = next_ == samples_.size() || place.info.key < samples_.ObjectsAt(next_).front();
  if (!manifest_done_ && before && samples_.size() > 0) {
    manifest_done_ = true;
    return IndexedObject{.key = place.info.key, .size = place.info.size, .etag = place.info.etag};
  }
  for (; asked_ < samples_.size() && coming_.size() < kHeadsAhead; ++asked_) {
    for (const std::string& key : samples_.ObjectsAt(asked_))
      place.store->Head(key, {}, coming_.emplace_back().Callback());
  }
  if (next_ == samples_.size()) return std::nullopt;
  const size_t sample = next_++;
  std::vector<ObjectInfo> objects;
  for (std::string& key : samples_.ObjectsAt(sample)) {
    if (!coming_.front().WaitOrStop(stop_)) return absl::CancelledError("reading was interrupted");
    absl::StatusOr<ObjectInfo> info = coming_.front().Wait();
    coming_.pop_front();
    if (!info.ok()) return Annotate(info.status(), fmt::format("{}: {}", place.uri, samples_.LineAt(sample)));
    objects.push_back({.key = std::move(key), .size = info->size, .etag = std::move(info->etag)});
  }
  ObjectInfo object = objects.size() == 1 ? std::move(objects.front()) : JoinObjects(objects);
  return IndexedObject{.key = std::move(object.key), .size = object.size, .etag = std::move(object.etag)};
}

}  // namespace millrace
