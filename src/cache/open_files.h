#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "cache/cache_file.h"

namespace millrace {

/// Holds the files of a cache that this process has open. There are three groups: files of one object, slabs that the
/// process reads or writes, and slabs that it has looked into only to make room. Each has a bound of its own, within
/// which the last used ones stay. Thread-safe.
class OpenFiles {
 public:
  enum Group : size_t { kFiles, kSlabs, kForeignSlabs };
  static constexpr size_t kGroups = 3;
  struct Bound {
    size_t files = SIZE_MAX;
    size_t spans = SIZE_MAX;  // of all files of the group: each takes memory
  };
  explicit OpenFiles(std::array<Bound, kGroups> bounds) : bounds_(bounds) {}

  /// Returns null if it is not open. A slab that is wanted is a foreign one no more.
  std::shared_ptr<CacheFile> Find(std::string_view name, bool is_wanted);
  /// Returns null if it is not open. Does not count as a use.
  std::shared_ptr<CacheFile> Peek(std::string_view name) const;
  /// Closes others of its group if they are too many. If one of that name is open, it stays.
  void Add(const std::string& name, std::shared_ptr<CacheFile> file, bool is_wanted);
  /// Another one of that name, made since, stays.
  void Forget(const std::string& name, const std::shared_ptr<CacheFile>& file);
  void ForEach(absl::FunctionRef<void(const std::string& name, const CacheFile& file)> each) const;

 private:
  struct File {
    std::string name;
    std::shared_ptr<CacheFile> file;
    size_t spans = 0;  // when it was opened
    Group group = kFiles;
  };
  using List = std::list<File>;
  void Close(List::iterator file, List* closed);
  void Shrink(Group group, List* closed);

  const std::array<Bound, kGroups> bounds_;
  mutable std::mutex mutex_;
  std::array<List, kGroups> files_;  // the last used first
  std::array<size_t, kGroups> spans_{};
  std::map<std::string, List::iterator, std::less<>> by_name_;
};

}  // namespace millrace
