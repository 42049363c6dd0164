#include "interruptible.h"

#include <atomic>
#include <chrono>
#include <future>

#include "gil_release.h"

namespace millrace::python {

namespace {

constexpr std::chrono::milliseconds kSlice{50};

}  // namespace

void RunInterruptibly(const nb::object& progress,
                      const std::function<void(const std::stop_token&, const ProgressFn&)>& work) {
  std::atomic<uint64_t> done{0};
  std::atomic<uint64_t> total{0};
  std::stop_source stop;
  const ProgressFn report = [&](uint64_t now, uint64_t all) {
    total.store(all, std::memory_order_relaxed);
    done.store(now, std::memory_order_relaxed);
  };
  std::future<void> ended = std::async(std::launch::async, [&] { work(stop.get_token(), report); });
  bool ready = false;
  uint64_t shown = 0;
  try {
    while (!ready) {
      {
        GilRelease release;
        ready = ended.wait_for(kSlice) == std::future_status::ready;
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (progress.is_none() || done == shown) continue;
      shown = done;
      progress(shown, total.load());
    }
  } catch (...) {
    stop.request_stop();
    GilRelease release;
    ended.wait();  // what was started ends before its owner does
    throw;
  }
  ended.get();
}

}  // namespace millrace::python
