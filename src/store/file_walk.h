#pragma once

#include <dirent.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "s3/object.h"

namespace millrace {

/// Walks the files below a folder as object keys, in bytewise order of whole keys (`a-` before `a/x` before `a0`).
/// Folders are read when the walk reaches them, so the cost of a page of a large tree is that of what is on its way.
/// Links to files and folders are followed, but not into a folder that the walk is in already, unless links are passed
/// over. Files that vanish meanwhile are passed over, too. Not thread-safe.
class FileWalk {
 public:
  enum class Links : uint8_t { kFollowed, kPassedOver };
  struct Start {
    std::string key;          // only what is greater
    bool skip_below = false;  // nor anything that begins with `key`
  };
  struct Item {
    bool is_prefix = false;  // a folder that holds files, as a common prefix: object.key alone is set
    ObjectInfo object;
  };

  /// If `folders_as_prefixes` is true, folders below the prefix are not entered but given as common prefixes. With
  /// `within`, files outside these folders are passed over (base/within.h). Returns NotFound if `root` is not a folder.
  static absl::StatusOr<std::unique_ptr<FileWalk>> Open(std::string root, std::string prefix, bool folders_as_prefixes,
                                                        Start start, Links links = Links::kFollowed,
                                                        std::vector<std::string> within = {});

  /// Returns the next item, owned by the walk until Take(); null at the end.
  absl::StatusOr<const Item*> Peek();
  /// Returns the item of Peek(), which must have given one, and advances the walk.
  Item Take();

 private:
  struct Folder {
    std::string key;                 // prefix of its entries: "" or ends with '/'
    std::vector<std::string> names;  // sorted; those of folders end with '/'
    size_t next = 0;
  };
  using Identity = std::pair<dev_t, ino_t>;
  enum class EntryKind { kFile, kFolder, kOther };

  FileWalk(std::string root, std::string prefix, bool folders_as_prefixes, Start start, Links links,
           std::vector<std::string> within)
      : root_(std::move(root)),
        prefix_(std::move(prefix)),
        folders_as_prefixes_(folders_as_prefixes),
        start_(std::move(start)),
        links_(links),
        within_(std::move(within)) {}

  absl::Status Begin();
  absl::Status Enter(std::string key);
  absl::Status ReadNames(Folder& folder, Identity* identity);
  EntryKind KindOf(DIR* folder, const dirent& entry, std::string_view key);
  bool Wanted(std::string_view key) const;
  absl::StatusOr<bool> HoldsFiles(const std::string& key) const;
  absl::StatusOr<bool> MakeItem(std::string key);
  std::string Path(std::string_view key) const;
  int StatOf(const std::string& path, struct stat* info) const;

  const std::string root_;
  const std::string prefix_;
  const bool folders_as_prefixes_;
  const Start start_;
  const Links links_;
  const std::vector<std::string> within_;
  std::vector<Folder> folders_;     // from the prefix's folder to the one being walked
  std::vector<Identity> ancestry_;  // from the root to the folder being walked
  bool warned_ = false;             // about a link that leads out
  bool have_item_ = false;
  Item item_;
};

}  // namespace millrace
