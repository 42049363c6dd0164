#include "dataset/folder_join.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/crypto.h"
#include "dataset/sample_objects.h"
#include "shard/field_value.h"
#include "shard/sample_name.h"
#include "store/joined_objects.h"
#include "store/lister.h"

namespace millrace {

namespace {

constexpr std::string_view kKeyPlace = "{}";
constexpr std::string_view kOtherMarks = "{}*?[]\\,";

// Returns the alternatives within the braces that end the URI; empty if there are none. No other braces except {} are
// part of an alternative.
std::vector<std::string_view> Alternatives(std::string_view uri, std::string_view* folder) {
  if (!uri.ends_with('}')) return {};
  size_t open = uri.size() - 1;
  while (open > 0 && !(uri[open - 1] == '{' && uri.substr(open - 1, 2) != kKeyPlace)) --open;
  if (open == 0 || (open > 1 && uri[open - 2] != '/')) return {};
  *folder = uri.substr(0, open - 1);
  std::string_view inside = uri.substr(open, uri.size() - 1 - open);
  std::vector<std::string_view> parts;
  while (true) {
    const size_t comma = std::min(inside.find(','), inside.size());
    parts.push_back(inside.substr(0, comma));
    if (comma == inside.size()) return parts;
    inside.remove_prefix(comma + 1);
  }
}

}  // namespace

std::string_view EncodingByName(std::string_view name) {
  const std::string_view extension = name.substr(name.rfind('.') + 1);
  if (extension == "png") return encoding::kPng;
  if (extension == "jpg" || extension == "jpeg" || extension == "JPEG" || extension == "JPG") return encoding::kJpeg;
  if (extension == "txt") return encoding::kText;
  return extension == "json" ? encoding::kJson : encoding::kBytes;
}

std::optional<std::string_view> FolderJoin::Pattern::KeyOf(std::string_view name) const {
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after))
    return std::nullopt;
  return name.substr(before.size(), name.size() - before.size() - after.size());
}

absl::StatusOr<std::optional<FolderJoin>> FolderJoin::Parse(std::string_view uri) {
  std::string_view folder;
  const std::vector<std::string_view> parts = Alternatives(uri, &folder);
  const bool named = !parts.empty() && std::all_of(parts.begin(), parts.end(), [](std::string_view part) {
    return part.find('=') != part.npos && part.find(kKeyPlace) != part.npos;
  });
  if (!named) return std::nullopt;
  const auto wrong = [&](std::string_view part, std::string_view what) {
    return absl::InvalidArgumentError(fmt::format(
        "'{}': '{}' {}; folders are joined by {{image=JPEGImages/{{}}.jpg,mask=Masks/{{}}.png}}", uri, part, what));
  };
  FolderJoin join;
  join.folder_ = folder.empty() ? "." : std::string(folder);
  for (const std::string_view part : parts) {
    const size_t equals = part.find('=');
    Pattern pattern{.field = std::string(part.substr(0, equals)), .before = {}, .after = {}};
    const std::string_view path = part.substr(equals + 1);
    const size_t place = path.find(kKeyPlace);
    if (pattern.field.empty() || pattern.field.size() > kMaxNameBytes) return wrong(part, "names no field");
    if (place == path.npos) return wrong(part, "has no {} for the key of the sample");
    pattern.before = path.substr(0, place);
    pattern.after = path.substr(place + kKeyPlace.size());
    if ((pattern.before + pattern.after).find_first_of(kOtherMarks) != std::string::npos)
      return wrong(part, "has another mark of a pattern beside one {}");
    const bool leaves = fmt::format("/{}", pattern.before).find("/../") != std::string::npos;
    if (pattern.before.starts_with('/') || leaves || IsHiddenKey(pattern.before))
      return wrong(part, "is no path below the folder");
    for (const Pattern& other : join.patterns_) {
      if (other.field == pattern.field) return wrong(part, "names a field twice");
      if (other.before == pattern.before && other.after == pattern.after) return wrong(part, "is there twice");
    }
    join.patterns_.push_back(std::move(pattern));
  }
  if (join.patterns_.size() < 2 || join.patterns_.size() > kMaxJoinedObjects)
    return wrong(parts.front(),
                 fmt::format("is one of {} patterns; 2 to {} are joined", parts.size(), kMaxJoinedObjects));
  return join;
}

std::string FolderJoin::Id() const {
  Xxh3Stream hash;
  for (const Pattern& pattern : patterns_) {
    for (const std::string* text : {&pattern.field, &pattern.before, &pattern.after}) {
      hash.UpdateLe64(text->size());
      hash.Update(AsBytes(*text));
    }
  }
  return fmt::format("{:016x}", hash.Digest().low);
}

absl::StatusOr<std::vector<ObjectInfo>> FolderJoin::ListOne(const Pattern& pattern, const Location& place,
                                                            const std::stop_token& stop) const {
  Lister lister(*place.store, place.Key(pattern.before), stop);
  const size_t before = place.Key("").size();
  std::vector<ObjectInfo> found;
  while (true) {
    ASSIGN_OR_RETURN(std::vector<ObjectInfo> objects, lister.Next());
    if (objects.empty()) return found;
    for (ObjectInfo& object : objects) {
      object.key.erase(0, before);
      if (pattern.KeyOf(object.key) && !IsHiddenKey(object.key)) found.push_back(std::move(object));
    }
  }
}

absl::StatusOr<std::vector<ObjectInfo>> FolderJoin::List(const Location& place, const std::stop_token& stop,
                                                         SkippedObjects* skipped) const {
  ASSIGN_OR_RETURN(std::vector<ObjectInfo> firsts, ListOne(patterns_.front(), place, stop));
  std::vector<absl::flat_hash_map<std::string, ObjectInfo>> others(patterns_.size() - 1);
  for (size_t i = 0; i < others.size(); ++i) {
    const Pattern& pattern = patterns_[i + 1];
    ASSIGN_OR_RETURN(std::vector<ObjectInfo> found, ListOne(pattern, place, stop));
    if (found.empty()) {
      return absl::NotFoundError(fmt::format("there is no file for the field '{}': {}", pattern.field,
                                             place.store->Uri(place.Key(pattern.before + "{}" + pattern.after))));
    }
    for (ObjectInfo& object : found) others[i].emplace(*pattern.KeyOf(object.key), std::move(object));
  }
  std::vector<ObjectInfo> joined;
  std::vector<ObjectInfo> parts;
  for (ObjectInfo& first : firsts) {
    const std::string key(*patterns_.front().KeyOf(first.key));
    parts.clear();
    parts.push_back(std::move(first));
    for (auto& other : others) {
      const auto found = other.find(key);
      if (found == other.end()) break;
      parts.push_back(found->second);
    }
    if (parts.size() < patterns_.size()) {
      skipped->Add(parts.front().key, "a field of its sample has no file");
      continue;
    }
    for (auto& other : others) other.erase(key);
    joined.push_back(JoinObjects(parts));
  }
  for (const auto& other : others) {
    for (const auto& [key, object] : other) skipped->Add(object.key, "a field of its sample has no file");
  }
  return joined;
}

absl::StatusOr<RawSample> FolderJoin::SampleOf(const IndexedObject& object) const {
  ASSIGN_OR_RETURN(const std::vector<ObjectInfo> parts, SplitJoined(object.key, ""));
  const auto wrong = [&] {
    return absl::InvalidArgumentError(fmt::format("'{}' is no sample of these folders", JoinedName(object.key)));
  };
  if (parts.size() != patterns_.size()) return wrong();
  RawSample sample;
  uint64_t offset = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::optional<std::string_view> key = patterns_[i].KeyOf(parts[i].key);
    if (!key || (i > 0 && *key != sample.key)) return wrong();
    sample.key = std::string(*key);
    sample.fields.push_back({.name = patterns_[i].field,
                             .offset = offset,
                             .length = parts[i].size,
                             .encoding = EncodingByName(patterns_[i].after)});
    offset += parts[i].size;
  }
  return sample;
}

absl::StatusOr<RawSample> SampleOfObject(const FolderJoin* join, const IndexedObject& object) {
  return join != nullptr ? join->SampleOf(object) : RawSampleOf(object);
}

}  // namespace millrace
