#include "mount/delayed_files.h"

#include <exception>
#include <utility>

#include "base/log_exception.h"

namespace millrace {

DelayedFiles::DelayedFiles(std::chrono::nanoseconds delay, int threads, Task task)
    : delay_(std::chrono::duration_cast<Clock::duration>(delay)), task_(std::move(task)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

DelayedFiles::~DelayedFiles() {
  Stop();
}

void DelayedFiles::Add(const std::shared_ptr<WrittenFile>& file) {
  const std::lock_guard lock(mutex_);
  AddLocked(file);
}

void DelayedFiles::AddLocked(const std::shared_ptr<WrittenFile>& file) {
  const auto [place, is_new] = places_.try_emplace(file.get());
  if (!is_new) due_.erase(place->second);
  place->second = due_.emplace(Clock::now() + delay_, file);
  changed_.notify_one();
}

void DelayedFiles::Remove(const WrittenFile& file) {
  std::shared_ptr<WrittenFile> removed;  // its end may wait for the store
  const std::lock_guard lock(mutex_);
  std::erase_if(running_, [&](const auto& run) { return run.second == &file; });
  const auto place = places_.find(&file);
  if (place == places_.end()) return;
  removed = std::move(place->second->second);
  due_.erase(place->second);
  places_.erase(place);
}

void DelayedFiles::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void DelayedFiles::Work() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    if (due_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto first = due_.begin();
    if (const Clock::time_point due = first->first; due > Clock::now()) {
      changed_.wait_until(lock, due);
      continue;
    }
    std::shared_ptr<WrittenFile> file = std::move(first->second);
    places_.erase(file.get());
    due_.erase(first);
    const uint64_t run = runs_++;
    running_.emplace(run, file.get());
    lock.unlock();
    bool done = false;
    try {
      done = task_(file);
    } catch (const std::exception& error) {
      LogException("mount", error);
    }
    lock.lock();
    const bool was_removed = running_.erase(run) == 0;
    if (!done && !was_removed) AddLocked(file);
    lock.unlock();
    file.reset();  // its end may wait for the store
    lock.lock();
  }
}

}  // namespace millrace
