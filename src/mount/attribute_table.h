#pragma once

#include <sys/types.h>

#include <ctime>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace millrace {

/// Holds the attributes of a file or folder that a program has set, and a store does not keep.
struct FileAttributes {
  std::optional<mode_t> mode;  // the permissions
  std::optional<uid_t> uid;
  std::optional<gid_t> gid;
  std::string version;  // the ETag that the times are about; "": a file that is being written, or a folder
  std::optional<timespec> modified;
  std::optional<timespec> accessed;
  std::map<std::string, std::string, std::less<>> extended;  // by name
};

/// Holds the attributes of files and folders by their keys, for as long as the mount lives. There are at most kMost:
/// those that were not looked at for longest are forgotten. Thread-safe, no I/O.
class AttributeTable {
 public:
  static constexpr size_t kMost = 100'000;

  explicit AttributeTable(size_t most = kMost) : most_(most) {}

  std::optional<FileAttributes> Find(const std::string& key);
  void Change(const std::string& key, const std::function<void(FileAttributes&)>& change);
  void Remove(const std::string& key);
  void Rename(const std::string& from, const std::string& to);
  /// Renames the entries of a folder, and of all that lies below it.
  void RenameFolder(const std::string& from, const std::string& to);

 private:
  using Entries = std::list<std::pair<std::string, FileAttributes>>;

  std::mutex mutex_;
  const size_t most_;
  Entries entries_;  // those that were looked at last are first
  std::unordered_map<std::string, Entries::iterator> by_key_;
};

}  // namespace millrace
