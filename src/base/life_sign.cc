#include "base/life_sign.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <string>

#include "base/unique_fd.h"

namespace millrace {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kVariable = "MILLRACE_HEARTBEAT";
constexpr int64_t kSignEvery = 250'000'000;  // ns
constexpr uint64_t kBytesOfSign = 16 << 10;
constexpr int64_t kBytesWithin = 10'000'000'000;  // ns
constexpr std::chrono::milliseconds kOthersEvery{500};
constexpr size_t kMaxProcesses = 1000;

/// In memory that processes share which are forked from one another.
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

// Made before any process is forked.
[[maybe_unused]] const Board& made_first = TheBoard();

std::atomic<uint64_t> moved{0};
std::atomic<int64_t> moved_since{0};

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

}  // namespace

void ShowLife() {
  const int64_t now = Now();
  Board& board = TheBoard();
  static std::atomic<int64_t> shown{0};  // by this process, whose file is another one than that of others
  int64_t last = shown.load(std::memory_order_relaxed);
  if (now - last < kSignEvery || !shown.compare_exchange_strong(last, now, std::memory_order_relaxed)) return;
  board.last.store(now, std::memory_order_relaxed);
  if (const char* const path = getenv(kVariable); path != nullptr && *path != '\0')
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

void ShowLifeOf(int process) {
  static std::mutex mutex;
  static std::map<int, Clock::time_point> shown;
  {
    const std::lock_guard lock(mutex);
    const auto now = Clock::now();
    const auto [at, is_new] = shown.try_emplace(process, now);
    if (!is_new && now - at->second < kOthersEvery) return;
    at->second = now;
    if (shown.size() > kMaxProcesses) shown.clear();
  }
  std::ifstream environment(fmt::format("/proc/{}/environ", process), std::ios::binary);
  std::string text(1, '\0');
  text.append(std::istreambuf_iterator<char>(environment), {});
  const std::string name = fmt::format("{}{}=", '\0', kVariable);
  const size_t begin = text.find(name);
  if (begin == text.npos) return;
  const std::string path(text.c_str() + begin + name.size());
  struct stat user {
  }, info{};
  if (stat(fmt::format("/proc/{}", process).c_str(), &user) != 0) return;
  // Opening it has no effect, whatever it is.
  const UniqueFd fd(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != user.st_uid) return;
  (void)utimensat(AT_FDCWD, fmt::format("/proc/self/fd/{}", fd.get()).c_str(), nullptr, 0);
}

}  // namespace millrace
