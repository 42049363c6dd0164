#include "mount/local_tree.h"

#include <iterator>
#include <utility>

namespace millrace {

bool LocalTree::Begin(std::shared_ptr<WrittenFile> file) {
  std::lock_guard lock(mutex_);
  if (!files_.try_emplace(file->key(), file).second) return false;
  file->writers = 1;
  by_inode_[file->inode] = std::move(file);
  inodes_ = by_inode_.size();
  return true;
}

std::shared_ptr<WrittenFile> LocalTree::Attach(uint64_t inode) {
  std::lock_guard lock(mutex_);
  const auto found = by_inode_.find(inode);
  if (found == by_inode_.end()) return nullptr;
  ++found->second->writers;
  return found->second;
}

bool LocalTree::Detach(WrittenFile& file) {
  std::lock_guard lock(mutex_);
  return --file.writers == 0;
}

void LocalTree::End(const std::shared_ptr<WrittenFile>& file, bool if_idle) {
  std::vector<std::shared_ptr<WrittenFile>> removed;
  std::lock_guard lock(mutex_);
  if (if_idle && (file->writers > 0 || file->changed() || (file->unlinked() && readers_.contains(file->inode)))) return;
  removed = RemoveLocked(*file);
}

bool LocalTree::EndUnwritten(const std::shared_ptr<WrittenFile>& file) {
  std::vector<std::shared_ptr<WrittenFile>> removed;
  std::lock_guard lock(mutex_);
  if (file->writers > 0) return false;
  removed = RemoveLocked(*file);
  return true;
}

std::vector<std::shared_ptr<WrittenFile>> LocalTree::RemoveLocked(const WrittenFile& file) {
  std::vector<std::shared_ptr<WrittenFile>> removed;
  const auto found = files_.find(file.key());
  if (found != files_.end() && found->second.get() == &file) {
    removed.push_back(std::move(found->second));
    files_.erase(found);
  }
  const auto number = by_inode_.find(file.inode);
  if (number != by_inode_.end() && number->second.get() == &file) {
    removed.push_back(std::move(number->second));
    by_inode_.erase(number);
    inodes_ = by_inode_.size();
  }
  ended_.notify_all();
  return removed;
}

void LocalTree::Unname(const WrittenFile& file) {
  std::shared_ptr<WrittenFile> named;
  std::lock_guard lock(mutex_);
  const auto found = files_.find(file.key());
  if (found == files_.end() || found->second.get() != &file) return;
  named = std::move(found->second);
  files_.erase(found);
  ended_.notify_all();
}

void LocalTree::Rename(const std::shared_ptr<WrittenFile>& file, const std::string& to) {
  std::shared_ptr<WrittenFile> replaced;
  std::lock_guard lock(mutex_);
  const auto found = files_.find(file->key());
  if (found == files_.end() || found->second != file) return;
  files_.erase(found);
  replaced = std::exchange(files_[to], file);
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

std::shared_ptr<WrittenFile> LocalTree::FindInode(uint64_t inode) const {
  if (inodes_ == 0) return nullptr;
  std::lock_guard lock(mutex_);
  const auto found = by_inode_.find(inode);
  return found == by_inode_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<WrittenFile>> LocalTree::FilesBelow(const std::string& folder) const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<WrittenFile>> files;
  for (auto at = files_.lower_bound(folder); at != files_.end() && at->first.starts_with(folder); ++at) {
    files.push_back(at->second);
  }
  return files;
}

std::vector<std::shared_ptr<WrittenFile>> LocalTree::All() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<WrittenFile>> files;
  for (const auto& [inode, file] : by_inode_) files.push_back(file);
  return files;
}

void LocalTree::AddReader(uint64_t inode) {
  std::lock_guard lock(mutex_);
  ++readers_[inode];
}

void LocalTree::RemoveReader(uint64_t inode) {
  std::lock_guard lock(mutex_);
  const auto found = readers_.find(inode);
  if (found != readers_.end() && --found->second == 0) readers_.erase(found);
}

bool LocalTree::HasReaders(uint64_t inode) const {
  std::lock_guard lock(mutex_);
  return readers_.contains(inode);
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

bool LocalTree::RenameFolder(const std::string& from, const std::string& to) {
  if (!AddFolder(to)) return false;
  std::lock_guard lock(mutex_);
  std::vector<std::string> moved;
  for (auto at = folders_.lower_bound(from); at != folders_.end() && at->starts_with(from);) {
    moved.push_back(to + at->substr(from.size()));
    at = folders_.erase(at);
  }
  folders_.insert(moved.begin(), moved.end());
  return true;
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
    if (is_folder || !at->second->in_store()) names.insert(name);
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
