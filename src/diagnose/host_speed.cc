#include "diagnose/host_speed.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <latch>
#include <new>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/rng.h"
#include "base/unique_fd.h"

namespace millrace {

namespace {

using SpeedClock = std::chrono::steady_clock;

constexpr size_t kDiskPiece = 4 << 20;
constexpr size_t kSyncBytes = 4096;
constexpr int kSyncs = 20;

void FillPattern(Buffer& buffer, uint64_t seed) {
  Rng rng(HashKey(0x686f7374, {seed}));
  for (size_t at = 0; at + sizeof(uint64_t) <= buffer.size(); at += sizeof(uint64_t)) {
    const uint64_t word = rng.Next();
    std::memcpy(buffer.data() + at, &word, sizeof word);
  }
}

bool HasPattern(const Buffer& buffer, uint64_t seed) {
  Rng rng(HashKey(0x686f7374, {seed}));
  for (size_t at = 0; at + sizeof(uint64_t) <= buffer.size(); at += sizeof(uint64_t)) {
    const uint64_t word = rng.Next();
    if (std::memcmp(buffer.data() + at, &word, sizeof word) != 0) return false;
  }
  return true;
}

// Returns a file that nobody else sees, and that is gone with its descriptor.
absl::StatusOr<UniqueFd> NamelessFile(const std::string& folder) {
  UniqueFd file(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file) return file;
  if (errno != EOPNOTSUPP && errno != EISDIR) return ErrnoStatus(errno, folder, "making a file");
  std::string name = folder + "/.millrace-doctor-XXXXXX";
  UniqueFd named(mkostemp(name.data(), O_CLOEXEC));
  if (!named) return ErrnoStatus(errno, folder, "making a file");
  unlink(name.c_str());
  return named;
}

absl::Status WriteAll(int fd, const std::string& folder, const std::byte* data, size_t size, uint64_t offset) {
  while (size > 0) {
    const ssize_t n = pwrite(fd, data, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, folder, "writing");
    data += n;
    size -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

absl::Status ReadAndCompare(int fd, const std::string& folder, const Buffer& expected, uint64_t bytes) {
  Buffer got(expected.size());
  for (uint64_t offset = 0; offset < bytes;) {
    const size_t piece = std::min<uint64_t>(got.size(), bytes - offset);
    for (size_t done = 0; done < piece;) {
      const ssize_t n = pread(fd, got.data() + done, piece - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, folder, "reading");
      if (n == 0) return absl::DataLossError(fmt::format("{}: a file is shorter than what was written", folder));
      done += static_cast<size_t>(n);
    }
    if (std::memcmp(got.data(), expected.data(), piece) != 0)
      return absl::DataLossError(fmt::format("{}: the disk gives back other bytes than were written", folder));
    offset += piece;
  }
  return absl::OkStatus();
}

absl::StatusOr<double> MedianSyncMs(int fd, const std::string& folder, const Buffer& data,
                                    std::chrono::milliseconds limit) {
  const SpeedClock::time_point start = SpeedClock::now();
  std::vector<double> took;
  for (int i = 0; i < kSyncs && (took.empty() || SpeedClock::now() - start < limit); ++i) {
    const SpeedClock::time_point begin = SpeedClock::now();
    RETURN_IF_ERROR(WriteAll(fd, folder, data.data(), kSyncBytes, kSyncBytes * static_cast<uint64_t>(i)));
    if (fdatasync(fd) != 0) return ErrnoStatus(errno, folder, "making a file durable");
    took.push_back(SecondsSince(begin) * 1000);
  }
  std::nth_element(took.begin(), took.begin() + static_cast<ptrdiff_t>(took.size() / 2), took.end());
  return took[took.size() / 2];
}

}  // namespace

absl::StatusOr<MemorySpeed> MeasureMemory(int threads, uint64_t bytes, std::chrono::milliseconds time) {
  const size_t half = std::max<uint64_t>(bytes / static_cast<uint64_t>(threads) / 2 / 64 * 64, 4096);
  std::vector<Buffer> buffers;
  try {
    for (int i = 0; i < 2 * threads; ++i) buffers.emplace_back(half);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(fmt::format("{} bytes of memory cannot be had", bytes));
  }
  std::latch filled(threads);
  std::atomic<bool> sound{true};
  std::vector<double> rates(static_cast<size_t>(threads));
  std::vector<std::thread> workers;
  for (size_t i = 0; i < rates.size(); ++i) {
    workers.emplace_back([&, i] {
      Buffer& from = buffers[2 * i];
      Buffer& to = buffers[2 * i + 1];
      FillPattern(from, i);
      std::memset(to.data(), 0, half);  // its pages are there before the time is taken
      filled.arrive_and_wait();
      const SpeedClock::time_point start = SpeedClock::now();
      uint64_t copied = 0;
      do {
        std::memcpy(to.data(), from.data(), half);
        std::memcpy(from.data(), to.data(), half);
        copied += 2 * half;
      } while (SpeedClock::now() - start < time);
      rates[i] = 2 * static_cast<double>(copied) / SecondsSince(start);
      if (!HasPattern(to, i) || !HasPattern(from, i)) sound = false;
    });
  }
  MemorySpeed speed;
  for (size_t i = 0; i < rates.size(); ++i) {
    workers[i].join();
    speed.bytes_per_second += rates[i];
  }
  speed.sound = sound;
  return speed;
}

absl::StatusOr<DiskSpace> MeasureSpace(const std::string& folder) {
  struct statvfs facts {};
  if (statvfs(folder.c_str(), &facts) != 0) return ErrnoStatus(errno, folder, "looking at it");
  return DiskSpace{.total_bytes = uint64_t{facts.f_blocks} * facts.f_frsize,
                   .free_bytes = uint64_t{facts.f_bavail} * facts.f_frsize};
}

absl::StatusOr<DiskSpeed> MeasureDisk(const std::string& folder, uint64_t bytes, std::chrono::milliseconds time) {
  ASSIGN_OR_RETURN(const UniqueFd file, NamelessFile(folder));
  Buffer piece(kDiskPiece);
  FillPattern(piece, 0);
  DiskSpeed speed;
  SpeedClock::time_point start = SpeedClock::now();
  while (speed.bytes < bytes && (speed.bytes == 0 || SpeedClock::now() - start < time)) {
    const size_t take = std::min<uint64_t>(piece.size(), bytes - speed.bytes);
    RETURN_IF_ERROR(WriteAll(file.get(), folder, piece.data(), take, speed.bytes));
    speed.bytes += take;
  }
  if (fsync(file.get()) != 0) return ErrnoStatus(errno, folder, "making a file durable");
  speed.write_bytes_per_second = static_cast<double>(speed.bytes) / SecondsSince(start);
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  start = SpeedClock::now();
  RETURN_IF_ERROR(ReadAndCompare(file.get(), folder, piece, speed.bytes));
  speed.read_bytes_per_second = static_cast<double>(speed.bytes) / SecondsSince(start);
  ASSIGN_OR_RETURN(speed.sync_ms, MedianSyncMs(file.get(), folder, piece, time));
  return speed;
}

}  // namespace millrace
