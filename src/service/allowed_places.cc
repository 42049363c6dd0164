#include "service/allowed_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "dataset/object_selection.h"
#include "shard/manifest.h"
#include "store/glob.h"
#include "store/uri.h"

namespace millrace {

namespace {

std::string WithSlash(std::string text) {
  if (!text.ends_with('/')) text += '/';
  return text;
}

// Returns whether a part between slashes is "..", or is a pattern that stands for "..".
bool LeadsUpwards(std::string_view text) {
  std::string part;
  for (const char c : text) {
    if (c == '/') {
      if (part == "..") return true;
      part.clear();
    } else if (c != '\\' && c != '[' && c != ']') {
      part += c;
    }
  }
  return part == "..";
}

struct CanonicalPlace {
  std::string store;  // its root, with a '/' at the end
  std::string place;
};

absl::StatusOr<CanonicalPlace> Canonical(std::string_view text) {
  ASSIGN_OR_RETURN(const ParsedUri uri, ParseUri(text));
  if (uri.scheme != ParsedUri::Scheme::kFile) {
    const std::string_view scheme = uri.scheme == ParsedUri::Scheme::kS3 ? "s3" : "mem";
    const std::string root = fmt::format("{}://{}/", scheme, uri.store);
    return CanonicalPlace{root, WithSlash(root + uri.path)};
  }
  std::error_code error;
  std::filesystem::path path = std::filesystem::weakly_canonical(std::filesystem::absolute(uri.path, error), error);
  if (error) {
    return absl::InvalidArgumentError(fmt::format("{}: the path cannot be followed: {}", text, error.message()));
  }
  return CanonicalPlace{"/", WithSlash(path.string())};
}

}  // namespace

absl::StatusOr<AllowedPlaces> AllowedPlaces::Below(const std::vector<std::string>& uris) {
  AllowedPlaces allowed;
  allowed.everywhere_ = false;
  for (const std::string& uri : uris) {
    ASSIGN_OR_RETURN(CanonicalPlace place, Canonical(uri));
    allowed.places_.push_back(std::move(place.place));
  }
  return allowed;
}

// A list of URIs names several places, and so do braces.
absl::Status AllowedPlaces::Check(std::string_view uri) const {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ExpandBraces(uri));
  for (const std::string& name : names) {
    // On S3 such a key is one like others, but for some compatible servers it is another place. In a path, the kernel
    // goes up from the target of a link, but lexically_normal goes up from the link.
    if (LeadsUpwards(name)) {
      return absl::PermissionDeniedError(
          fmt::format("{}: the name leads out of its folder; name the data set without '..'", name));
    }
    if (!everywhere_) RETURN_IF_ERROR(CheckName(name));
  }
  return absl::OkStatus();
}

std::optional<std::vector<std::string>> AllowedPlaces::folders() const {
  if (everywhere_) return std::nullopt;
  std::vector<std::string> folders;
  for (const std::string& place : places_) {
    if (place.starts_with('/')) folders.push_back(place == "/" ? place : place.substr(0, place.size() - 1));
  }
  return folders;
}

absl::Status AllowedPlaces::CheckName(const std::string& name) const {
  std::string place = name;
  if (HasWildcard(name) || name.find('\\') != name.npos) {
    place = GlobLiteralPrefix(name);  // what matches is in the folder in which this does
    place.resize(place.rfind('/') == place.npos ? 0 : place.rfind('/') + 1);
    if (place.empty()) place = ".";
  }
  ASSIGN_OR_RETURN(const CanonicalPlace wanted, Canonical(place));
  const bool is_manifest = ManifestFormatOf(name).has_value();
  const std::string& needed = is_manifest ? wanted.store : wanted.place;
  const auto covers = [&needed](const std::string& allowed) { return needed.starts_with(allowed); };
  if (std::any_of(places_.begin(), places_.end(), covers)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      is_manifest
          ? fmt::format("{} is a manifest, which may name any object of {}, and this worker does not read all of "
                        "that; start it with --allow {}",
                        name, wanted.store, wanted.store)
          : fmt::format("this worker does not read {}; start it with --allow {}", place, place));
}

}  // namespace millrace
