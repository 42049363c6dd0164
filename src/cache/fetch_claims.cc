#include "cache/fetch_claims.h"

#include <fcntl.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/crypto.h"
#include "cache/shared_file.h"

namespace millrace {

namespace {

constexpr uint64_t kCellBytes = 512;
constexpr int kObjectBits = 37;  // cells of an object: 2^46 bytes
constexpr std::chrono::milliseconds kLookAgain{4};

// Returns the whole cells within the range, so that neighbors are apart; one at least.
ByteRange CellsOf(const std::string& file, ByteRange range) {
  const uint64_t object = Xxh3(AsBytes(file)) & ((uint64_t{1} << (62 - kObjectBits)) - 1);
  const uint64_t first = (range.offset + kCellBytes - 1) / kCellBytes;
  const uint64_t end = std::max(range.end() / kCellBytes, first + 1);
  return {(object << kObjectBits) + first, end - first};
}

int Lock(int fd, ByteRange cells, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(cells.offset);
  lock.l_len = static_cast<off_t>(cells.length);
  return fcntl(fd, F_OFD_SETLK, &lock);
}

}  // namespace

absl::StatusOr<std::unique_ptr<FetchClaims>> FetchClaims::Open(const std::string& folder) {
  const std::string path = folder + "/claims";
  ASSIGN_OR_RETURN(UniqueFd fd, OpenShared(path));
  return std::unique_ptr<FetchClaims>(new FetchClaims(path, std::move(fd)));
}

std::unique_ptr<FetchClaims> FetchClaims::OfProcess() {
  return std::unique_ptr<FetchClaims>(new FetchClaims("", UniqueFd(-1)));
}

FetchClaims::~FetchClaims() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<FetchClaims::Claim> FetchClaims::Take(const std::string& file, ByteRange range) {
  const ByteRange cells = CellsOf(file, range);
  const std::lock_guard lock(mutex_);
  if (fd_ && OpenAgainIfGone(path_, &fd_)) {
    // Ranges that others have claimed meanwhile are fetched twice.
    for (const ByteRange& own : own_) Lock(fd_.get(), own, F_WRLCK);
  }
  for (const ByteRange& own : own_) {
    if (own.offset < cells.end() && cells.offset < own.end()) return nullptr;
  }
  // Where there are no locks, each process fetches for itself.
  if (Lock(fd_.get(), cells, F_WRLCK) != 0 && (errno == EAGAIN || errno == EACCES)) return nullptr;
  own_.push_back(cells);
  return std::make_shared<Claim>(*this, cells);
}

void FetchClaims::Free(ByteRange cells) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find(own_.begin(), own_.end(), cells);
  *found = own_.back();
  own_.pop_back();
  Lock(fd_.get(), cells, F_UNLCK);
  if (waiting_.empty()) return;
  freed_ = true;
  changed_.notify_all();
}

void FetchClaims::Wait(absl::AnyInvocable<bool()> retry) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(retry));
  changed_.notify_all();
  if (thread_.joinable()) return;
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "cache-claims");
}

void FetchClaims::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    changed_.wait_for(lock, kLookAgain, [this] { return freed_; });
    freed_ = false;
    std::vector<absl::AnyInvocable<bool()>> waiting = std::exchange(waiting_, {});
    lock.unlock();
    std::erase_if(waiting, [](absl::AnyInvocable<bool()>& retry) { return retry(); });
    lock.lock();
    for (absl::AnyInvocable<bool()>& retry : waiting) waiting_.push_back(std::move(retry));
  }
}

}  // namespace millrace
