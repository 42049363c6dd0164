#include "mount/attribute_table.h"

#include <vector>

namespace millrace {

std::optional<FileAttributes> AttributeTable::Find(const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->second;
}

void AttributeTable::Change(const std::string& key, const std::function<void(FileAttributes&)>& change) {
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
  } else {
    entries_.emplace_front(key, FileAttributes());
    by_key_[key] = entries_.begin();
  }
  change(entries_.front().second);
  if (entries_.size() <= most_) return;
  by_key_.erase(entries_.back().first);
  entries_.pop_back();
}

void AttributeTable::Remove(const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  entries_.erase(found->second);
  by_key_.erase(found);
}

void AttributeTable::Rename(const std::string& from, const std::string& to) {
  const std::optional<FileAttributes> moved = Find(from);
  Remove(from);
  Remove(to);
  if (moved) Change(to, [&](FileAttributes& attributes) { attributes = *moved; });
}

void AttributeTable::RenameFolder(const std::string& from, const std::string& to) {
  std::vector<std::string> keys;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, attributes] : entries_) {
      if (key.starts_with(from)) keys.push_back(key);
    }
  }
  Remove(to);  // the folder that it replaces
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) Rename(*key, to + key->substr(from.size()));
}

}  // namespace millrace
