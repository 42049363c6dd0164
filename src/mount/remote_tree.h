#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mount/inode_table.h"
#include "mount/patience.h"
#include "store/object_store.h"

namespace millrace {

inline constexpr size_t kMaxFileName = 255;

/// Returns true if a file can have such a name: 1 to 255 bytes, no '/', not "." and not "..".
bool IsFileName(std::string_view name);

/// Returns the key of the object that is the symbolic link of that key. rclone has links under such names, too
/// (--links). A listing tells them from files by name and size, without a request for each. An object of 0 or more than
/// 4,095 bytes is a file, though, with the whole key as its name. While it is there, no link can have the key.
std::string LinkKey(const std::string& key);
/// Returns true if the key or name is one of those. A link also has the right size.
bool IsLinkKey(std::string_view key);

/// Reads names, sizes and folders of a store. Folders are what keys make with their '/': they exist as long as
/// something lies below them. If a file and a folder have one name, the folder has it, and the file cannot be reached.
/// A link gives way to both. Thread-safe; what it tells is fresh for `ttl`.
class RemoteTree {
 public:
  /// Says if folders for Millrace's own files (kDatasetFolder) are listed. They are hidden from programs that take each
  /// folder for a class of images, and found by name, so that Millrace can tell that data are not complete.
  enum class OwnFiles { kShown, kHidden };

  /// Objects with a LinkKey are files of that name, or, if they have the right size, symbolic links with the name
  /// before the suffix.
  enum class Links { kAreFiles, kAreLinks };

  RemoteTree(ObjectStore& store, std::chrono::nanoseconds ttl, OwnFiles own_files = OwnFiles::kShown,
             Links links = Links::kAreFiles)
      : store_(store), ttl_(ttl), own_files_(own_files), links_(links) {}

  /// Returns true for a symbolic link. Its bytes are the path that it stands for.
  bool IsLink(const Node& node) const;
  /// Returns the file, folder or link `name` of the folder. NotFound if there is none. The node of a link has a
  /// LinkKey.
  absl::StatusOr<Node> Lookup(const std::string& folder, std::string_view name, const Patience& patience) const;
  /// Returns the file as it is now. NotFound if it is gone.
  absl::StatusOr<Node> Look(const std::string& key, const Patience& patience) const;

  /// Returns the file of that key, as `info` of the store describes it.
  Node FileNode(const ObjectInfo& info, const std::string& key) const;
  /// Returns the folder of that key, which exists.
  Node FolderNode(std::string key) const;
  /// Returns true if anything lies in the folder, other than an object of the folder's own key.
  absl::StatusOr<bool> HasBelow(const std::string& folder, const Patience& patience) const;

  /// Describes an entry of a folder.
  struct Entry {
    std::string name;
    Node node;
  };
  struct Page {
    std::vector<Entry> entries;  // in the order of names
    std::string continuation;    // "": this was the last page
  };
  /// Lists some entries of the folder, each once over all pages. Hidden ones are left out, and names that no file can
  /// have.
  absl::StatusOr<Page> List(const std::string& folder, std::string continuation, const Patience& patience) const;

 private:
  absl::StatusOr<bool> Exists(const std::string& folder, const Patience& patience) const;
  absl::StatusOr<bool> HidesLink(const std::string& key, const Page& page, std::string_view first,
                                 std::string_view last, const Patience& patience) const;
  bool ListsFolder(std::string_view name) const;

  ObjectStore& store_;
  const std::chrono::nanoseconds ttl_;
  const OwnFiles own_files_;
  const Links links_;
};

}  // namespace millrace
