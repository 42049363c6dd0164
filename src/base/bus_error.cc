#include "base/bus_error.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

constexpr uintptr_t kFree = 0;
constexpr uintptr_t kBeingFilled = 1;

// Describes a mapped file. A handler of signals may read it, since it is neither locked nor freed.
struct Mapped {
  std::atomic<uintptr_t> begin{kFree};
  std::atomic<size_t> bytes{0};
  std::array<char, 1024> path{};
};

std::array<Mapped, 64> mapped_files;
struct sigaction handler_before {};

void Say(const char* text) {
  (void)!write(STDERR_FILENO, text, std::strlen(text));
}

const char* PathOf(uintptr_t address) {
  for (const Mapped& one : mapped_files) {
    const uintptr_t begin = one.begin.load(std::memory_order_acquire);
    if (begin > kBeingFilled && address >= begin && address - begin < one.bytes.load()) return one.path.data();
  }
  return nullptr;
}

// The access is made again when this returns, and ends as it would without this handler.
void OnBusError(int signal, siginfo_t* info, void*) {
  const bool by_access = info->si_code > 0;  // else a process has sent it
  if (const char* path = by_access ? PathOf(reinterpret_cast<uintptr_t>(info->si_addr)) : nullptr; path != nullptr) {
    Say("millrace: ");
    Say(path);
    Say(": was cut short or changed in place while this process had it mapped, or its disk or server failed. Replace "
        "such a file by renaming a new one over it, as millrace does, and start this process again.\n");
  }
  sigaction(signal, &handler_before, nullptr);
  if (!by_access) raise(signal);
}

bool InstallHandler() {
  struct sigaction ours {};
  ours.sa_sigaction = OnBusError;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  return sigaction(SIGBUS, &ours, &handler_before) == 0;
}

}  // namespace

void ExplainBusErrorsIn(ByteSpan mapping, std::string_view path) {
  static const bool installed = InstallHandler();
  if (!installed) return;
  for (Mapped& one : mapped_files) {
    uintptr_t expected = kFree;
    if (!one.begin.compare_exchange_strong(expected, kBeingFilled)) continue;
    const size_t length = std::min(path.size(), one.path.size() - 1);
    std::memcpy(one.path.data(), path.data(), length);
    one.path[length] = '\0';
    one.bytes.store(mapping.size());
    one.begin.store(reinterpret_cast<uintptr_t>(mapping.data()), std::memory_order_release);
    return;
  }
}

void ForgetBusErrorsIn(ByteSpan mapping) {
  for (Mapped& one : mapped_files) {
    uintptr_t begin = reinterpret_cast<uintptr_t>(mapping.data());
    if (one.begin.compare_exchange_strong(begin, kFree)) return;
  }
}

}  // namespace millrace
