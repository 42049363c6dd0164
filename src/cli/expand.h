#pragma once

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "store/blocking.h"
#include "store/stores.h"
#include "store/uri.h"

namespace millrace::cli {

/// A prefix that names a folder: "" or ending with '/'.
std::string AsFolder(std::string prefix);

/// A URI with wildcards (store/glob.h), opened.
struct Pattern {
  std::string uri;  // as given
  ObjectStore* store = nullptr;
  std::string pattern;  // of keys
  std::string folder;   // "" or ending with '/': the last folder before the first wildcard, of keys
};

/// What a URI names if it is taken literally.
enum class Named {
  kObject,
  kFolder,  // the objects below it
  kPrefix,  // the objects that begin so
};

/// Whether a store is a bucket of S3.
bool IsBucket(const ObjectStore& store);

/// What IsFolder says of a link to a folder.
enum class Links { kFollow, kKeep };

/// Whether it names an existing folder of the file system. False if it cannot be accessed: opening it says why.
bool IsFolder(const ParsedUri& uri, Links links);

/// What the object is. NotFound says so when objects lie below its name, which --recursive would `use` ("copy"), or
/// when it is the bucket that is missing.
absl::StatusOr<ObjectInfo> FindObject(const Location& location, std::string_view use);

/// The same for a command that reads one object: NotFound says how to see those below it, or whose names begin so.
absl::StatusOr<ObjectInfo> FindOneObject(const Location& location);

/// nullopt if the URI has no wildcard, or if something exists under exactly this name, which then is meant. One
/// request if there are wildcards.
absl::StatusOr<std::optional<Pattern>> OpenPattern(Stores& stores, const std::string& uri, Named named);

struct ExpandOptions {
  bool folders = false;  // folders that match, as common prefixes
  bool below = false;    // and all objects below them
};

/// Lists what matches, in order of keys, page by page. Lists one folder after the other as far as there is no "**", so
/// that other folders cost nothing. Ends with the first error of a page or of `each`, and with Cancelled when
/// Interrupted().
absl::Status Expand(const Pattern& pattern, const ExpandOptions& options, PageSink each);

/// NotFound, for a pattern without a match.
absl::Status NothingMatches(const Pattern& pattern);

/// The objects that match, with `recursive` also those below folders that match. NotFound when there is none.
absl::Status ExpandObjects(const Pattern& pattern, bool recursive,
                           absl::FunctionRef<absl::Status(const ObjectInfo&)> each);

}  // namespace millrace::cli
