#include "mount/write_back.h"

#include <exception>
#include <utility>

#include "base/log_exception.h"

namespace millrace {

namespace {

constexpr int kThreads = 8;

}  // namespace

WriteBack::WriteBack(std::chrono::nanoseconds delay, Commit commit)
    : delay_(std::chrono::duration_cast<Clock::duration>(delay)), commit_(std::move(commit)) {
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Work(); });
}

WriteBack::~WriteBack() {
  Stop();
}

void WriteBack::Add(const std::shared_ptr<WrittenFile>& file) {
  const std::lock_guard lock(mutex_);
  AddLocked(file);
}

void WriteBack::AddLocked(const std::shared_ptr<WrittenFile>& file) {
  const auto [place, is_new] = places_.try_emplace(file.get());
  if (!is_new) due_.erase(place->second);
  place->second = due_.emplace(Clock::now() + delay_, file);
  changed_.notify_one();
}

void WriteBack::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void WriteBack::Work() {
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
    lock.unlock();
    bool done = false;
    try {
      done = commit_(file);
    } catch (const std::exception& error) {
      LogException("mount", error);
    }
    lock.lock();
    if (!done) AddLocked(file);
    lock.unlock();
    file.reset();  // its end may wait for the store
    lock.lock();
  }
}

}  // namespace millrace
