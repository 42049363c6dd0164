#include "store/stream_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/size.h"
#include "store/blocking.h"

namespace millrace {

namespace {

constexpr uint64_t kSmallPart = 64 << 10;
constexpr uint64_t kLargestSmallPart = 1 << 20;
constexpr int kSmallPartsPerSize = 256;
constexpr uint64_t kFirstPart = 8 << 20;
constexpr uint64_t kLargestPart = 1 << 30;
constexpr int kPartsPerSize = 1000;
constexpr uint64_t kPartBytesInFlight = 32 << 20;

}  // namespace

uint64_t PartSize(int number, PieceLimits limits) {
  if (limits.least_bytes <= 1)
    return std::min(kLargestSmallPart, kSmallPart << std::min((number - 1) / kSmallPartsPerSize, 8));
  return std::min(kLargestPart, kFirstPart << ((number - 1) / kPartsPerSize));
}

int PartsInFlight(uint64_t part_size) {
  return static_cast<int>(std::clamp<uint64_t>(kPartBytesInFlight / part_size, 2, 4));
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> StreamWriter::Open(ObjectStore& store, std::string key,
                                                                 PutOptions options) {
  std::unique_ptr<StreamWriter> writer(new StreamWriter(store, std::move(key), std::move(options)));
  ASSIGN_OR_RETURN(writer->writer_, store.WritePieces(writer->key_, writer->options_));
  return writer;
}

StreamWriter::StreamWriter(ObjectStore& store, std::string key, PutOptions options)
    : store_(store), key_(std::move(key)), options_(std::move(options)) {
  if (options_.stop.stop_possible()) on_stop_.emplace(options_.stop, [this] { stop_.request_stop(); });
  options_.stop = stop_.get_token();
}

StreamWriter::~StreamWriter() {
  stop_.request_stop();
  (void)WaitFor(0);
}

absl::Status StreamWriter::WaitFor(int at_most) {
  std::unique_lock lock(mutex_);
  landed_.wait(lock, [&] { return in_flight_ <= at_most; });
  return status_;
}

Buffer StreamWriter::TakeBuffer(uint64_t size) {
  {
    std::lock_guard lock(mutex_);
    std::erase_if(spare_, [size](const Buffer& buffer) { return buffer.size() != size; });
    if (!spare_.empty()) {
      Buffer buffer = std::move(spare_.back());
      spare_.pop_back();
      return buffer;
    }
  }
  return Buffer(size);
}

absl::Status StreamWriter::BeginPart() {
  const int number = static_cast<int>(parts_) + 1;
  if (parts_ >= store_.traits().pieces.most_pieces) {
    std::lock_guard lock(mutex_);
    return status_ = absl::ResourceExhaustedError(
               fmt::format("{}: is too large for the store: {} are written and {} parts used up", store_.Uri(key_),
                           FormatSize(written_), parts_));
  }
  const uint64_t size = PartSize(number, store_.traits().pieces);
  RETURN_IF_ERROR(WaitFor(PartsInFlight(size)));
  part_ = TakeBuffer(size);
  filled_ = 0;
  return absl::OkStatus();
}

absl::Status StreamWriter::Append(ByteSpan bytes) {
  while (!bytes.empty()) {
    // A full part is sent only when more follows: an object of one part is a plain Put.
    if (part_.size() > 0 && filled_ == part_.size()) RETURN_IF_ERROR(SendPart());
    if (part_.size() == 0) RETURN_IF_ERROR(BeginPart());
    const size_t take = std::min(bytes.size(), part_.size() - filled_);
    std::memcpy(part_.data() + filled_, bytes.data(), take);
    filled_ += take;
    written_ += take;
    bytes = bytes.subspan(take);
  }
  return absl::OkStatus();
}

absl::Status StreamWriter::SendPart() {
  RETURN_IF_ERROR(WaitFor(PartsInFlight(part_.size()) - 1));
  const ByteSpan body = part_.span().first(filled_);
  {
    std::lock_guard lock(mutex_);
    ++in_flight_;
  }
  const uint64_t offset = std::exchange(sent_, sent_ + filled_);
  writer_->Write(parts_++, offset, body, [this, part = std::move(part_)](absl::Status status) mutable {
    std::lock_guard lock(mutex_);
    spare_.push_back(std::move(part));
    status_.Update(status);
    --in_flight_;
    landed_.notify_all();  // under the lock: the owner may be gone right after
  });
  part_ = Buffer();
  filled_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<ObjectInfo> StreamWriter::Commit() {
  if (parts_ == 0) {
    writer_.reset();
    return PutBlocking(store_, key_, part_.span().first(filled_), options_);
  }
  if (filled_ > 0) RETURN_IF_ERROR(SendPart());
  RETURN_IF_ERROR(WaitFor(0));
  return CommitBlocking(*writer_, written_);
}

}  // namespace millrace
