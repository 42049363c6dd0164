#include "base/thread_pool.h"

#include <pthread.h>

#include <system_error>
#include <utility>

namespace millrace {

ThreadPool::ThreadPool(int threads, std::string name) {
  name.resize(std::min<size_t>(name.size(), 15));
  threads_.reserve(threads);
  try {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { Run(); });
      pthread_setname_np(threads_.back().native_handle(), name.c_str());
    }
  } catch (const std::system_error&) {  // the machine allows no more
    Stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  Stop();
}

void ThreadPool::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Submit(absl::AnyInvocable<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  // With the lock: once the task is done, another thread may destroy the pool, which waits for it.
  ready_.notify_one();
}

void ThreadPool::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ready_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    absl::AnyInvocable<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    std::move(task)();
    task = nullptr;  // what the task owned dies here, outside the lock
    lock.lock();
  }
}

}  // namespace millrace
