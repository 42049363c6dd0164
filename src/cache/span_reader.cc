#include "cache/span_reader.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/buffer.h"
#include "base/crypto.h"
#include "base/errno_status.h"

namespace millrace {

namespace {

// So much is read and checked at a time: the bytes are still near to the CPU when their checksum is made.
constexpr uint64_t kAtOnce = uint64_t{128} << 10;

/// Reads one file, and continues a checksum over what it reads.
class SpanReader {
 public:
  SpanReader(int fd, uint64_t data_at, const std::string& path) : fd_(fd), data_at_(data_at), path_(path) {}

  // Reads bytes of the object into their place.
  absl::Status Place(uint64_t offset, MutableByteSpan into, uint32_t* crc) const {
    while (!into.empty()) {
      const MutableByteSpan part = into.first(std::min<uint64_t>(into.size(), kAtOnce));
      RETURN_IF_ERROR(ReadAt(fd_, data_at_ + offset, part, path_));
      *crc = Crc32c(part, *crc);
      offset += part.size();
      into = into.subspan(part.size());
    }
    return absl::OkStatus();
  }

  // Reads bytes of the object that nobody asked for.
  absl::Status PassOver(ByteRange range, uint32_t* crc) {
    if (range.length > 0 && aside_.size() == 0) aside_ = Buffer(kAtOnce);
    while (range.length > 0) {
      const uint64_t length = std::min(range.length, kAtOnce);
      RETURN_IF_ERROR(Place(range.offset, aside_.span().first(length), crc));
      range = {range.offset + length, range.length - length};
    }
    return absl::OkStatus();
  }

 private:
  const int fd_;
  const uint64_t data_at_;
  const std::string& path_;
  Buffer aside_;
};

}  // namespace

absl::Status ReadAt(int fd, uint64_t offset, MutableByteSpan into, const std::string& path) {
  while (!into.empty()) {
    const ssize_t n = pread(fd, into.data(), into.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, path, "reading");
    if (n == 0) return absl::DataLossError(fmt::format("{}: ends at byte {}", path, offset));
    offset += static_cast<uint64_t>(n);
    into = into.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

uint64_t FileSizeLimit() {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 ? uint64_t{limit.rlim_cur} : UINT64_MAX;
}

absl::Status WriteAt(int fd, uint64_t offset, ByteSpan bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EFBIG) return absl::OutOfRangeError(ErrnoStatus(EFBIG, path, "writing").message());
    if (n < 0) return ErrnoStatus(errno, path, "writing");
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status ReadSpans(int fd, uint64_t data_at, const std::string& path, ByteRange range,
                       std::span<const CachedSpan> spans, MutableByteSpan into, std::vector<ByteRange>* damaged) {
  SpanReader reader(fd, data_at, path);
  const auto place_of = [&](uint64_t from, uint64_t until) { return into.subspan(from - range.offset, until - from); };
  // Reads bytes that the caller checks.
  const auto plain = [&](uint64_t from, uint64_t until) {
    return ReadAt(fd, data_at + from, place_of(from, until), path);
  };
  absl::Status first;
  // Returns false if reading does not continue: it does after damage, so that all of it is found.
  const auto note = [&](absl::Status status, ByteRange part) {
    if (status.ok()) return true;
    const bool lost = absl::IsDataLoss(status);
    if (lost) damaged->push_back(part);
    if (first.ok() || !lost) first = std::move(status);
    return lost;
  };
  uint64_t at = range.offset;
  for (const CachedSpan& span : spans) {
    const uint64_t from = std::max(range.offset, span.range.offset);
    const uint64_t until = std::min(range.end(), span.range.end());
    if (!note(plain(at, from), {at, from - at})) return first;
    uint32_t crc32c = 0;
    absl::Status status = reader.PassOver({span.range.offset, from - span.range.offset}, &crc32c);
    if (status.ok()) status = reader.Place(from, place_of(from, until), &crc32c);
    if (status.ok()) status = reader.PassOver({until, span.range.end() - until}, &crc32c);
    if (status.ok() && crc32c != span.crc32c) {
      status = absl::DataLossError(
          fmt::format("{}: bytes {}+{} of the object are damaged here", path, span.range.offset, span.range.length));
    }
    if (!note(std::move(status), span.range)) return first;
    at = until;
  }
  (void)note(plain(at, range.end()), {at, range.end() - at});
  return first;
}

}  // namespace millrace
