#include "service/membership.h"

#include <pthread.h>

#include <utility>

namespace millrace {

namespace {

constexpr std::chrono::seconds kLookEvery{2};

}  // namespace

Membership::Membership(WorkerFinder finder, Placement& placement)
    : finder_(std::move(finder)), placement_(placement), thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "membership");
}

Membership::~Membership() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  thread_.join();
}

void Membership::Run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kLookEvery, [this] { return stopping_; })) {
    lock.unlock();
    // Places that do not change were found before, and errors of others are logged there.
    const absl::StatusOr<std::vector<std::string>> workers = finder_.Find();
    if (workers.ok()) placement_.SetMembers(*workers);
    lock.lock();
  }
}

}  // namespace millrace
