#include "net/event_loop.h"

#include <pthread.h>
#include <signal.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <future>
#include <utility>

#include "base/log_exception.h"

namespace millrace {

namespace {

// When an exception arrives here, all that its handler owned is destroyed: calls have ended, callbacks have answered.
void RunWhateverIsThrown(boost::asio::io_context& context) {
  for (;;) {
    try {
      context.run();
      return;
    } catch (const std::exception& error) {
      LogException("net", error);
    }
  }
}

}  // namespace

struct EventLoop::Impl {
  // The hint 1 says that one thread runs the loop; posting from other threads stays safe.
  boost::asio::io_context context{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{context.get_executor()};
  std::thread thread;
};

EventLoop::EventLoop(std::string name) : impl_(std::make_unique<Impl>()) {
  name.resize(std::min<size_t>(name.size(), 15));  // the kernel's limit
  impl_->thread = std::thread([impl = impl_.get()] {
    // A write to a peer that went away raises SIGPIPE; sendfile and OpenSSL have no flag against that.
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    RunWhateverIsThrown(impl->context);
  });
  pthread_setname_np(impl_->thread.native_handle(), name.c_str());
}

EventLoop::~EventLoop() {
  impl_->context.stop();
  impl_->thread.join();
}

void EventLoop::Post(absl::AnyInvocable<void()> task) {
  boost::asio::post(impl_->context, [task = std::move(task)]() mutable { task(); });
}

bool EventLoop::InLoop() const {
  return std::this_thread::get_id() == impl_->thread.get_id();
}

boost::asio::io_context& EventLoop::context() {
  return impl_->context;
}

void RunAndWait(EventLoop& loop, absl::FunctionRef<void()> task) {
  const auto done = std::make_shared<std::promise<void>>();  // shared: set_value may still run when the wait is over
  loop.Post([task, done] {
    try {
      task();
      done->set_value();
    } catch (const std::exception&) {
      done->set_exception(std::current_exception());
    }
  });
  done->get_future().get();
}

struct Timer::Impl {
  explicit Impl(boost::asio::io_context& context) : timer(context) {}

  boost::asio::steady_timer timer;
  absl::AnyInvocable<void()> task;
  uint64_t generation = 0;  // of the pending wait; an older wait that fires all the same is ignored
};

Timer::Timer(EventLoop& loop) : impl_(std::make_shared<Impl>(loop.context())) {}

Timer::~Timer() {
  Cancel();
}

void Timer::Start(std::chrono::nanoseconds delay, absl::AnyInvocable<void()> task) {
  const uint64_t generation = ++impl_->generation;
  impl_->task = std::move(task);
  impl_->timer.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(delay));
  impl_->timer.async_wait([impl = impl_, generation](const boost::system::error_code& error) {
    if (error || generation != impl->generation) return;
    // Moved out first: the task may start this timer again, or destroy it.
    absl::AnyInvocable<void()> due = std::move(impl->task);
    impl->task = nullptr;
    due();
  });
}

void Timer::Cancel() {
  ++impl_->generation;
  impl_->task = nullptr;
  impl_->timer.cancel();
}

EventLoops::EventLoops(int count) {
  loops_.reserve(count);
  for (int i = 0; i < count; ++i) loops_.push_back(std::make_unique<EventLoop>("io-" + std::to_string(i)));
}

EventLoop& EventLoops::Next() {
  return *loops_[next_.fetch_add(1, std::memory_order_relaxed) % loops_.size()];
}

}  // namespace millrace
