#include "mount/inode_table.h"

#include <algorithm>
#include <utility>

namespace millrace {

bool IsSameVersion(const Node& one, const Node& other) {
  return one.key == other.key && one.etag == other.etag && one.size == other.size &&
         one.modified_ms == other.modified_ms;
}

InodeTable::InodeTable(std::string root_key) {
  by_key_.emplace(root_key, kRoot);
  entries_[kRoot] = {.node = {.key = std::move(root_key)}, .told = 1};
}

uint64_t InodeTable::Remember(Node node) {
  std::lock_guard lock(mutex_);
  const auto [at, is_new] = by_key_.try_emplace(node.key, next_);
  if (!is_new && !IsSameVersion(entries_[at->second].node, node)) at->second = next_;
  if (at->second == next_) ++next_;
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
  const auto newest = by_key_.find(found->second.node.key);
  if (newest != by_key_.end() && newest->second == inode) by_key_.erase(newest);
  entries_.erase(found);
}

std::optional<Node> InodeTable::Find(uint64_t inode) const {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(inode);
  if (found == entries_.end()) return std::nullopt;
  return found->second.node;
}

bool InodeTable::Renew(uint64_t inode, const Node& node) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(inode);
  if (found == entries_.end() || !IsSameVersion(found->second.node, node)) return false;
  found->second.node.fresh_until = node.fresh_until;
  return true;
}

size_t InodeTable::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace millrace
