#include "base/interrupt.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>

namespace millrace {

namespace {

volatile std::sig_atomic_t interrupted = 0;  // the number of the first signal
std::atomic<int> interrupt_event{-1};        // of the InterruptStop
static_assert(std::atomic<int>::is_always_lock_free);

void OnInterrupt(int number) {
  const int error = errno;
  if (interrupted == 0) interrupted = number;
  const uint64_t one = 1;
  // If the write fails, an earlier event has not been read yet.
  if (const int event = interrupt_event; event >= 0) (void)!write(event, &one, sizeof one);
  errno = error;
}

}  // namespace

void CatchInterrupts() {
  struct sigaction action {};
  action.sa_handler = OnInterrupt;
  action.sa_flags = SA_RESTART | SA_RESETHAND;  // the second one ends the process at once
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

bool Interrupted() {
  return interrupted != 0;
}

int InterruptSignal() {
  return interrupted;
}

InterruptStop::InterruptStop() {
  // Never closed: a handler may be about to write to it.
  static const int event = eventfd(0, EFD_CLOEXEC);
  interrupt_event = event;
  CatchInterrupts();
  thread_ = std::thread([this] {
    uint64_t told = 0;
    while (read(event, &told, sizeof told) < 0 && errno == EINTR) {
    }
    if (Interrupted()) stop_.request_stop();
  });
}

InterruptStop::~InterruptStop() {
  const uint64_t end = 1;
  (void)!write(interrupt_event.exchange(-1), &end, sizeof end);
  thread_.join();
}

}  // namespace millrace
