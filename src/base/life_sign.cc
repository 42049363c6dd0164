#include "base/life_sign.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <forward_list>
#include <new>

namespace millrace {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSignEvery = 250'000'000;  // ns
constexpr uint64_t kBytesOfSign = 16 << 10;
constexpr int64_t kBytesWithin = 10'000'000'000;  // ns

/// The board is in memory that processes share which are forked from one another.
struct Board {
  std::atomic<int64_t> last{0};  // ns of the steady clock, which all processes share; 0: none
};

Board& TheBoard() {
  static Board own;  // if there is no such memory, each process has one
  static Board* const board = [] {
    void* const memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? &own : new (memory) Board;
  }();
  return *board;
}

// It is made before any process is forked.
[[maybe_unused]] const Board& made_first = TheBoard();

std::atomic<const char*> heartbeat_file{nullptr};

// Read before there are threads of Millrace: getenv is unsafe while another thread sets a variable.
[[maybe_unused]] const bool is_read = [] {
  if (const char* const path = getenv(kHeartbeatVariable)) SetHeartbeatFile(path);
  return true;
}();

std::atomic<uint64_t> moved{0};
std::atomic<int64_t> moved_since{0};

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

}  // namespace

void SetHeartbeatFile(const std::string& path) {
  // Other threads may still use the names before.
  static auto& names = *new std::forward_list<std::string>;
  heartbeat_file.store(names.emplace_front(path).c_str(), std::memory_order_release);
}

void ShowLife() {
  const int64_t now = Now();
  Board& board = TheBoard();
  static std::atomic<int64_t> shown{0};  // by this process, whose file is another one than that of others
  int64_t last = shown.load(std::memory_order_relaxed);
  if (now - last < kSignEvery || !shown.compare_exchange_strong(last, now, std::memory_order_relaxed)) return;
  board.last.store(now, std::memory_order_relaxed);
  if (const char* const path = heartbeat_file.load(std::memory_order_acquire); path != nullptr && *path != '\0')
    (void)utimensat(AT_FDCWD, path, nullptr, 0);
}

void MovedBytes(uint64_t bytes) {
  if (moved.fetch_add(bytes, std::memory_order_relaxed) + bytes < kBytesOfSign) return;
  moved.store(0, std::memory_order_relaxed);
  const int64_t now = Now();
  if (now - moved_since.exchange(now, std::memory_order_relaxed) < kBytesWithin || bytes >= kBytesOfSign) ShowLife();
}

std::optional<Clock::time_point> LastLife() {
  const int64_t last = TheBoard().last.load(std::memory_order_relaxed);
  if (last == 0) return std::nullopt;
  return Clock::time_point(std::chrono::nanoseconds(last));
}

}  // namespace millrace
