#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace millrace {

/// Describes a file or folder as far as it is known.
struct Node {
  std::string key;  // in the store; that of a folder ends with '/', or is "" (the store's root)
  bool is_folder() const { return key.empty() || key.back() == '/'; }

  uint64_t size = 0;
  int64_t modified_ms = 0;  // since 1970
  std::string etag;
  std::chrono::steady_clock::time_point fresh_until{};  // then the store is asked again

  friend bool operator==(const Node&, const Node&) = default;
};

/// Returns true if a program that has the one open may be given bytes of the other: their ETags, or without ETags their
/// times, are the same. (A listing and a HEAD of one version tell times of different precision.)
bool IsSameVersion(const Node& one, const Node& other);

/// Holds the inode numbers that the kernel knows, and what they stand for. A number stands for one version of one key
/// as long as the kernel remembers it. It is never used for another version, so the bytes that the kernel keeps stay
/// right. A file and a folder of one name have different keys, so different numbers. Thread-safe.
class InodeTable {
 public:
  static constexpr uint64_t kRoot = 1;

  /// The root is never forgotten.
  explicit InodeTable(std::string root_key);

  /// Returns the number of `node`: the one that this version has, or a new one. The kernel gets it once more.
  uint64_t Remember(Node node);
  /// The kernel forgets a number that it got `times` times.
  void Forget(uint64_t inode, uint64_t times);

  /// Returns nullopt if the number stands for nothing.
  std::optional<Node> Find(uint64_t inode) const;
  /// Returns the newest version of this file as long as it is fresh.
  std::optional<Node> FindFresh(const std::string& key) const;
  /// The number stands for `node` for longer. False if it stands for another version, or for nothing any more.
  bool Renew(uint64_t inode, const Node& node);
  /// The kernel gets a number once more that it knows. False if it stands for nothing any more.
  bool TellAgain(uint64_t inode);
  /// The number stands for `node` from now on, whatever it was. The file was written or renamed by way of the kernel,
  /// so the bytes that the kernel keeps are those of `node`.
  void Assign(uint64_t inode, Node node);
  /// A folder has another key from now on, and so has what lies below it.
  void MoveFolder(const std::string& from, const std::string& to);
  /// Returns the number of this key's newest version, or 0 if there is none.
  uint64_t NumberOf(const std::string& key) const;
  /// The key has no version that is known any more, and the next one gets a number of its own.
  void Unname(const std::string& key);
  /// The store is asked again before this key's version is given to a program.
  void Outdate(const std::string& key);

  size_t size() const;

 private:
  struct Entry {
    Node node;
    uint64_t told = 0;
  };

  mutable std::mutex mutex_;
  uint64_t next_ = kRoot + 1;
  std::unordered_map<uint64_t, Entry> entries_;
  std::unordered_map<std::string, uint64_t> by_key_;  // of the newest version
};

}  // namespace millrace
