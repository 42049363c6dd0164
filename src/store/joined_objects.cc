#include "store/joined_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/number.h"

namespace millrace {

namespace {

constexpr char kBetween = '\0';
constexpr std::string_view kUp = "../";

std::vector<std::string_view> SplitAtNul(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(kBetween);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos || parts.size() > kMaxJoinedObjects + 1) return parts;
    text.remove_prefix(end + 1);
  }
}

bool ParseSize(std::string_view text, uint64_t* size) {
  return ParseNumber(text, size) && *size <= kMaxObjectBytes;
}

std::string_view FolderOf(std::string_view key) {
  return key.substr(0, key.rfind('/') + 1);
}

// Returns the path from a folder ("" or ending with '/') to a key.
std::string PathFrom(std::string_view folder, std::string_view key) {
  std::string up;
  while (!key.starts_with(folder)) {
    folder = FolderOf(folder.substr(0, folder.size() - 1));
    up += kUp;
  }
  return up + std::string(key.substr(folder.size()));
}

// Returns the key at the end of such a path; nullopt if it leaves all folders, or is not one that PathFrom makes.
std::optional<std::string> KeyAt(std::string_view folder, std::string_view path) {
  while (path.starts_with(kUp)) {
    if (folder.empty()) return std::nullopt;
    folder = FolderOf(folder.substr(0, folder.size() - 1));
    path.remove_prefix(kUp.size());
  }
  if (path.empty() || path.starts_with('/') || path.find(kUp) != path.npos) return std::nullopt;
  return std::string(folder) + std::string(path);
}

absl::Status NotJoined() {
  return absl::InvalidArgumentError("a key that begins like one of joined objects and is none");
}

}  // namespace

ObjectInfo JoinObjects(const std::vector<ObjectInfo>& objects) {
  ObjectInfo joined;
  bool any_etag = false;
  for (const ObjectInfo& object : objects) {
    if (joined.key.empty()) {
      joined.key = fmt::format("{}{}{}", object.key, kBetween, object.size);
    } else {
      joined.key += fmt::format("{}{}/{}", kBetween, PathFrom(FolderOf(objects.front().key), object.key), object.size);
      joined.etag += kBetween;
    }
    joined.etag += object.etag;
    any_etag = any_etag || !object.etag.empty();
    joined.size += object.size;
    joined.modified_ms = std::max(joined.modified_ms, object.modified_ms);
  }
  if (!any_etag) joined.etag.clear();
  return joined;
}

absl::StatusOr<std::vector<ObjectInfo>> SplitJoined(std::string_view key, std::string_view etag) {
  const std::vector<std::string_view> parts = SplitAtNul(key);
  std::vector<ObjectInfo> objects(1);
  objects.front().key = std::string(parts.front());
  if (parts.size() == 1) {
    objects.front().etag = std::string(etag);
    return objects;
  }
  if (parts.size() > kMaxJoinedObjects + 1 || !ParseSize(parts[1], &objects.front().size)) return NotJoined();
  const std::string_view folder = FolderOf(parts.front());
  uint64_t bytes = objects.front().size;
  for (size_t i = 2; i < parts.size(); ++i) {
    const size_t slash = parts[i].rfind('/');
    ObjectInfo& object = objects.emplace_back();
    if (slash == std::string_view::npos || !ParseSize(parts[i].substr(slash + 1), &object.size)) return NotJoined();
    std::optional<std::string> found = KeyAt(folder, parts[i].substr(0, slash));
    if (!found) return NotJoined();
    object.key = *std::move(found);
    bytes += object.size;
  }
  if (objects.size() < 2 || bytes > kMaxObjectBytes) return NotJoined();
  if (etag.empty()) return objects;
  const std::vector<std::string_view> etags = SplitAtNul(etag);
  if (etags.size() != objects.size()) return NotJoined();
  for (size_t i = 0; i < objects.size(); ++i) objects[i].etag = std::string(etags[i]);
  return objects;
}

std::string JoinedName(std::string_view key) {
  const absl::StatusOr<std::vector<ObjectInfo>> objects = SplitJoined(key, "");
  if (!objects.ok() || objects->size() == 1) return std::string(key.substr(0, key.find(kBetween)));
  // The part that the names have in common ends at a dot, so that the rest is an extension.
  std::string_view common = objects->front().key;
  for (const ObjectInfo& object : *objects) {
    const auto differs = std::mismatch(common.begin(), common.end(), object.key.begin(), object.key.end());
    common = common.substr(0, static_cast<size_t>(differs.first - common.begin()));
  }
  common = common.substr(0, common.find_last_of("./") + 1);
  std::string name(common);
  const char* before = "{";
  for (const ObjectInfo& object : *objects) {
    name += before;
    name += object.key.substr(common.size());
    before = ",";
  }
  return name + "}";
}

}  // namespace millrace
