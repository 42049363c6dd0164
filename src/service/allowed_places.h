#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millrace {

/// Decides where a worker may read. Immutable and thread-safe.
class AllowedPlaces {
 public:
  /// Everywhere.
  AllowedPlaces() = default;
  /// Allows only what is below these URIs. Returns InvalidArgument if one of them is not a URI.
  static absl::StatusOr<AllowedPlaces> Below(const std::vector<std::string>& uris);

  /// Returns PermissionDenied unless `uri` is one of the places or is below one; and all that its braces name, and the
  /// folder of its wildcards. Links in paths of files are followed. A manifest names objects anywhere in its store, so
  /// that the whole store must be allowed. A name with "..", which stores and links may resolve differently, is denied
  /// always: trainers send none.
  absl::Status Check(std::string_view uri) const;

  /// Returns the places that are folders or files, as paths without links, for Stores.
  std::optional<std::vector<std::string>> folders() const;

 private:
  absl::Status CheckName(const std::string& name) const;

  bool everywhere_ = true;
  std::vector<std::string> places_;  // with a '/' at the end
};

}  // namespace millrace
