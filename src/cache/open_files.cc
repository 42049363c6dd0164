#include "cache/open_files.h"

#include <iterator>
#include <utility>

namespace millrace {

std::shared_ptr<CacheFile> OpenFiles::Find(std::string_view name, bool is_wanted) {
  List closed;  // without the lock
  const std::lock_guard lock(mutex_);
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return nullptr;
  const List::iterator file = found->second;
  List& before = files_[file->group];
  if (is_wanted && file->group == kForeignSlabs) {
    spans_[kForeignSlabs] -= file->spans;
    spans_[kSlabs] += file->spans;
    file->group = kSlabs;
  }
  List& now = files_[file->group];
  now.splice(now.begin(), before, file);
  std::shared_ptr<CacheFile> result = file->file;
  Shrink(file->group, &closed);
  return result;
}

std::shared_ptr<CacheFile> OpenFiles::Peek(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second->file;
}

void OpenFiles::Add(const std::string& name, std::shared_ptr<CacheFile> file, bool is_wanted) {
  List closed;  // without the lock
  const std::lock_guard lock(mutex_);
  if (by_name_.contains(name)) return;
  const Group group = !file->is_slab() ? kFiles : is_wanted ? kSlabs : kForeignSlabs;
  const size_t spans = file->spans() + 1;
  spans_[group] += spans;
  files_[group].push_front({name, std::move(file), spans, group});
  by_name_.emplace(name, files_[group].begin());
  Shrink(group, &closed);
}

void OpenFiles::Forget(const std::string& name, const std::shared_ptr<CacheFile>& file) {
  List closed;  // without the lock
  const std::lock_guard lock(mutex_);
  const auto found = by_name_.find(name);
  if (found != by_name_.end() && found->second->file == file) Close(found->second, &closed);
}

void OpenFiles::ForEach(absl::FunctionRef<void(const std::string& name, const CacheFile& file)> each) const {
  const std::lock_guard lock(mutex_);
  for (const List& group : files_) {
    for (const File& file : group) each(file.name, *file.file);
  }
}

void OpenFiles::Close(List::iterator file, List* closed) {
  spans_[file->group] -= file->spans;
  by_name_.erase(file->name);
  closed->splice(closed->end(), files_[file->group], file);
}

void OpenFiles::Shrink(Group group, List* closed) {
  List& files = files_[group];
  const Bound& bound = bounds_[group];
  while (files.size() > 1 && (files.size() > bound.files || spans_[group] > bound.spans))
    Close(std::prev(files.end()), closed);
}

}  // namespace millrace
