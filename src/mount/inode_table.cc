#include "mount/inode_table.h"

#include <algorithm>
#include <utility>

namespace millrace {

InodeTable::InodeTable(std::string root_key) {
  by_key_.emplace(root_key, kRoot);
  entries_[kRoot] = {.node = {.key = std::move(root_key)}, .told = 1};
}

uint64_t InodeTable::Remember(Node node) {
  std::lock_guard lock(mutex_);
  const auto [at, is_new] = by_key_.try_emplace(node.key, next_);
  if (is_new) ++next_;
  Entry& entry = entries_[at->second];
  entry.node = std::move(node);
  ++entry.told;
  return at->second;
}

void InodeTable::Forget(uint64_t inode, uint64_t times) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(inode);
  if (inode == kRoot || found == entries_.end()) return;
  found->second.told -= std::min(found->second.told, times);
  if (found->second.told > 0) return;
  by_key_.erase(found->second.node.key);
  entries_.erase(found);
}

std::optional<Node> InodeTable::Find(uint64_t inode) const {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(inode);
  if (found == entries_.end()) return std::nullopt;
  return found->second.node;
}

void InodeTable::Update(uint64_t inode, Node node) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(inode);
  if (found != entries_.end() && found->second.node.key == node.key) found->second.node = std::move(node);
}

size_t InodeTable::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace millrace
