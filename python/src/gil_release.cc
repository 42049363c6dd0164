#include "gil_release.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace millrace::python {

namespace {

std::atomic<bool> ending{false};
std::atomic<int> acquiring{0};  // threads that saw `ending` false and do not hold the GIL yet
pthread_t ending_thread;        // set before `ending`

// The other threads of the parent do not exist in a child.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { acquiring = 0; });

bool MustNotAcquire() {
  return ending && pthread_equal(pthread_self(), ending_thread) == 0;
}

}  // namespace

GilRelease::GilRelease() : state_(PyEval_SaveThread()) {}

GilRelease::~GilRelease() {
  ++acquiring;  // before the look at `ending`: KeepGilFromOtherThreads sets that before it looks at this
  if (MustNotAcquire()) {
    --acquiring;
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
  PyEval_RestoreThread(state_);
  --acquiring;
}

void KeepGilFromOtherThreads() {
  ending_thread = pthread_self();
  ending = true;
  PyThreadState* const state = PyEval_SaveThread();
  while (acquiring > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  PyEval_RestoreThread(state);
}

}  // namespace millrace::python
