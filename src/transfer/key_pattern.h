#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "store/blocking.h"
#include "store/stores.h"

namespace millrace {

/// Returns a prefix that names a folder: "" or ending with '/'.
std::string AsFolder(std::string prefix);

/// Returns whether tools have written it to show an empty folder: a name that ends with '/', and no bytes. One with
/// bytes is an object like others.
bool IsFolderMarker(const ObjectInfo& object);

/// This folder is for Millrace's own files of a data set; objects below it are not samples.
inline constexpr std::string_view kDatasetFolder = ".millrace/";

/// Returns whether an object, named by its key below a place of data, is one of Millrace's own files. Such a file is of
/// a data set at this place or in a folder below it.
bool IsOwnFile(std::string_view name);

/// Holds a URI with wildcards (store/glob.h), opened.
struct Pattern {
  std::string uri;  // as given
  ObjectStore* store = nullptr;
  std::string pattern;  // of keys
  std::string folder;   // "" or ending with '/': the last folder before the first wildcard, of keys
};

/// Says what a URI names if it is taken literally.
enum class Named {
  kObject,
  kFolder,  // the objects below it
  kPrefix,  // the objects that begin so
};

/// Returns nullopt if the URI has no wildcard, or if something exists under exactly this name, which then is meant. It
/// makes one request if there are wildcards. Returns Cancelled soon after a stop is requested.
///
///   ASSIGN_OR_RETURN(const std::optional<Pattern> pattern, OpenPattern(stores, "s3://b/x-*.tar", Named::kObject));
///   if (pattern) return ExpandObjects(*pattern, /*recursive=*/false, each);
absl::StatusOr<std::optional<Pattern>> OpenPattern(Stores& stores, const std::string& uri, Named named,
                                                   const std::stop_token& stop = {});

struct ExpandOptions {
  bool folders = false;  // folders that match, as common prefixes
  bool below = false;    // and all objects below them
  std::stop_token stop;
};

/// Lists what matches, in order of keys, page by page. Lists one folder after the other as far as there is no "**", so
/// that other folders cost nothing. Ends with the first error of a page or of `each`, and with Cancelled soon after a
/// stop is requested.
absl::Status Expand(const Pattern& pattern, const ExpandOptions& options, PageSink each);

/// Returns NotFound, for a pattern without a match.
absl::Status NothingMatches(const Pattern& pattern);

using ObjectSink = absl::FunctionRef<absl::Status(const ObjectInfo&)>;

/// Visits the objects whose keys begin with `prefix`, in order of keys. Errors are those of Expand.
absl::Status ForEachObject(ObjectStore& store, const std::string& prefix, ObjectSink each,
                           const std::stop_token& stop = {});

/// Visits the objects that match, with `recursive` also those below folders that match. Returns NotFound if there is
/// none.
absl::Status ExpandObjects(const Pattern& pattern, bool recursive, ObjectSink each, const std::stop_token& stop = {});

}  // namespace millrace
