#include "mount/inode_table.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace millrace {

bool IsSameVersion(const Node& one, const Node& other) {
  return one.key == other.key && one.etag == other.etag && one.size == other.size &&
         (!one.etag.empty() || one.modified_ms == other.modified_ms);
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

std::optional<Node> InodeTable::FindFresh(const std::string& key) const {
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  const Node& node = entries_.at(found->second).node;
  if (node.is_folder() || node.fresh_until <= std::chrono::steady_clock::now()) return std::nullopt;
  return node;
}

bool InodeTable::Renew(uint64_t inode, const Node& node) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(inode);
  if (found == entries_.end() || !IsSameVersion(found->second.node, node)) return false;
  found->second.node.fresh_until = node.fresh_until;
  return true;
}

bool InodeTable::TellAgain(uint64_t inode) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(inode);
  if (found == entries_.end()) return false;
  ++found->second.told;
  return true;
}

void InodeTable::Assign(uint64_t inode, Node node) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(inode);
  if (inode == kRoot || found == entries_.end()) return;
  const auto before = by_key_.find(found->second.node.key);
  if (before != by_key_.end() && before->second == inode) by_key_.erase(before);
  by_key_[node.key] = inode;
  found->second.node = std::move(node);
}

void InodeTable::MoveFolder(const std::string& from, const std::string& to) {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, uint64_t>> moved;
  for (auto at = by_key_.begin(); at != by_key_.end();) {
    const bool is_below = at->second != kRoot && at->first.starts_with(from);
    if (is_below) moved.emplace_back(at->first, at->second);
    at = is_below ? by_key_.erase(at) : std::next(at);
  }
  for (const auto& [key, inode] : moved) {
    const std::string now = to + key.substr(from.size());
    entries_.at(inode).node.key = now;
    by_key_[now] = inode;
  }
}

uint64_t InodeTable::NumberOf(const std::string& key) const {
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? 0 : found->second;
}

void InodeTable::Unname(const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found != by_key_.end() && found->second != kRoot) by_key_.erase(found);
}

void InodeTable::Outdate(const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) entries_[found->second].node.fresh_until = {};
}

size_t InodeTable::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace millrace
