#include "mount/local_tree.h"

#include <utility>

namespace millrace {

bool LocalTree::Begin(std::shared_ptr<WrittenFile> file) {
  std::lock_guard lock(mutex_);
  const std::string key = file->key;
  return files_.try_emplace(key, std::move(file)).second;
}

void LocalTree::End(const std::string& key) {
  std::shared_ptr<WrittenFile> ended;  // its end may wait for the store, so not under the lock
  std::lock_guard lock(mutex_);
  const auto found = files_.find(key);
  if (found == files_.end()) return;
  ended = std::move(found->second);
  files_.erase(found);
  ended_.notify_all();
}

absl::Status LocalTree::WaitForEnd(const std::string& key, const Patience& patience) const {
  std::unique_lock lock(mutex_);
  return patience.Wait(lock, ended_, key, [&] { return !files_.contains(key); });
}

std::shared_ptr<WrittenFile> LocalTree::Find(const std::string& key) const {
  std::lock_guard lock(mutex_);
  const auto found = files_.find(key);
  return found == files_.end() ? nullptr : found->second;
}

bool LocalTree::AddFolder(const std::string& folder) {
  std::lock_guard lock(mutex_);
  if (folders_.size() >= kMaxFolders && !folders_.contains(folder)) return false;
  folders_.insert(folder);
  return true;
}

void LocalTree::RemoveFolder(const std::string& folder) {
  std::lock_guard lock(mutex_);
  folders_.erase(folder);
}

bool LocalTree::HasBelowLocked(const std::string& folder) const {
  const auto file = files_.lower_bound(folder);
  if (file != files_.end() && file->first.starts_with(folder)) return true;
  const auto below = folders_.upper_bound(folder);
  return below != folders_.end() && below->starts_with(folder);
}

bool LocalTree::HasFolder(const std::string& folder) const {
  std::lock_guard lock(mutex_);
  return folders_.contains(folder) || HasBelowLocked(folder);
}

bool LocalTree::HasBelow(const std::string& folder) const {
  std::lock_guard lock(mutex_);
  return HasBelowLocked(folder);
}

std::set<std::string> LocalTree::NamesIn(const std::string& folder) const {
  std::lock_guard lock(mutex_);
  std::set<std::string> names;
  const auto name_of = [&](const std::string& key) {
    const std::string rest = key.substr(folder.size());
    const size_t slash = rest.find('/');
    return slash == rest.npos ? rest : rest.substr(0, slash + 1);
  };
  for (auto at = files_.lower_bound(folder); at != files_.end() && at->first.starts_with(folder);) {
    const std::string name = name_of(at->first);
    const bool is_folder = name.back() == '/';
    if (is_folder || !at->second->replaces) names.insert(name);
    // Behind all that lies below a folder: '0' follows '/'.
    at = is_folder ? files_.lower_bound(folder + name.substr(0, name.size() - 1) + '0') : std::next(at);
  }
  for (auto at = folders_.upper_bound(folder); at != folders_.end() && at->starts_with(folder);) {
    const std::string name = name_of(*at);
    names.insert(name);
    at = folders_.lower_bound(folder + name.substr(0, name.size() - 1) + '0');
  }
  return names;
}

}  // namespace millrace
