#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millrace {

/// Expands `{a,b}` and `{000..123}` as a shell does, nested ones too: "x{1,2}" gives "x1" and "x2". Numbers are padded
/// with zeros if an end is. Other braces, and those after a backslash, stay. InvalidArgument, before the memory is
/// taken, for more than 100,000 texts or 64 MiB of them, or braces more than 100 deep.
absl::StatusOr<std::vector<std::string>> ExpandBraces(std::string_view text);

/// The objects that a URI with wildcards (store/glob.h) or braces selects. Examples are
/// s3://bucket/train-{000..123}.tar and /data/*/*.jpg. Selected are objects with such names, and all objects below
/// folders with such names. A list of URIs is also such a URI: {s3://bucket/a,s3://bucket/b}. Immutable.
class ObjectSelection {
 public:
  /// Parses a URI. Returns nullopt for a URI without wildcards and braces. InvalidArgument if it selects from several
  /// stores, for which there is no one index. Asks for the working directory if paths are relative, and for nothing
  /// else.
  static absl::StatusOr<std::optional<ObjectSelection>> Parse(std::string_view uri);

  /// Returns the URI of a folder that has all of them below it; the functions below return keys relative to it.
  const std::string& folder() const { return folder_; }
  /// The prefixes of their keys: ascending, and none begins with another.
  const std::vector<std::string>& prefixes() const { return prefixes_; }
  /// The folder in which the first of them lies: "" or ending with '/'.
  const std::string& first_folder() const { return first_folder_; }
  bool Contains(std::string_view key) const;
  /// Returns the names without wildcards, of objects or folders. All of them must exist.
  std::vector<std::string> Names() const;
  /// True if each object is named by itself: there are no wildcards and no folders.
  bool NamesAll() const { return !all_ && folders_.empty() && globs_.empty(); }
  /// Returns 16 hexadecimal digits, which are the same for the same names and for no others.
  std::string Id() const;

 private:
  struct Glob {
    std::string pattern;
    bool of_folders = false;        // it ended with '/'
    std::optional<size_t> slashes;  // of what matches; none with "**"
  };
  using NameSet = std::set<std::string, std::less<>>;

  ObjectSelection() = default;
  void Add(const std::string& pattern);
  void FindPrefixes(const std::vector<std::string>& patterns);

  std::string folder_;
  std::string first_folder_;
  std::vector<std::string> prefixes_;
  NameSet names_;    // of objects or folders
  NameSet folders_;  // without the '/' at the end
  std::vector<Glob> globs_;
  bool all_ = false;
};

}  // namespace millrace
