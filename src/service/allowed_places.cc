#include "service/allowed_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "shard/manifest.h"
#include "store/uri.h"

namespace millrace {

namespace {

std::string WithSlash(std::string text) {
  if (!text.ends_with('/')) text += '/';
  return text;
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

absl::Status AllowedPlaces::Check(std::string_view uri) const {
  if (everywhere_) return absl::OkStatus();
  ASSIGN_OR_RETURN(const CanonicalPlace wanted, Canonical(uri));
  const bool is_manifest = ManifestFormatOf(uri).has_value();
  const std::string& needed = is_manifest ? wanted.store : wanted.place;
  const auto covers = [&needed](const std::string& place) { return needed.starts_with(place); };
  if (std::any_of(places_.begin(), places_.end(), covers)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      is_manifest
          ? fmt::format("{} is a manifest, which may name any object of {}, and this worker does not read all of "
                        "that; start it with --allow {}",
                        uri, wanted.store, wanted.store)
          : fmt::format("this worker does not read {}; start it with --allow {}", uri, uri));
}

}  // namespace millrace
