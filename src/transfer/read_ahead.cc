#include "transfer/read_ahead.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/size.h"

namespace millrace {

namespace {
constexpr size_t kMaxRequests = 256;
constexpr uint64_t kPieceRequests = 128;  // a request more costs less than a hundredth then
constexpr uint64_t kWindowPieces = 16;
constexpr uint64_t kMinPieceBytes = 64 << 10;
}  // namespace

uint64_t ReadAhead::PieceBytes(const ObjectStore& store, const MemoryBudget& memory) {
  const uint64_t most = std::max(kPieceRequests * store.BytesWorthARequest(), kMinPieceBytes);
  return std::clamp(memory.limit() / 16, kMinPieceBytes, most);
}

ReadAhead::ReadAhead(ObjectStore& store, MemoryBudget& memory, Source source, std::stop_token stop)
    : store_(store),
      memory_(memory),
      source_(std::move(source)),
      window_bytes_(std::min(kWindowPieces * PieceBytes(store, memory), memory.limit() / 2)),
      owners_stop_(std::move(stop)),
      on_stop_(owners_stop_, [this] { stop_.request_stop(); }) {}

ReadAhead::~ReadAhead() {
  stop_.request_stop();
  std::unique_lock lock(mutex_);
  changed_.wait(lock,
                [&] { return std::all_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot->done; }); });
}

void ReadAhead::Start(Request request, Reservation memory) {
  auto slot = std::make_unique<Slot>();
  Slot* const raw = slot.get();
  raw->result.bytes = Buffer(request.range.length);
  raw->result.memory = std::move(memory);
  raw->done = request.range.length == 0;
  bytes_ahead_ += request.range.length;
  {
    std::lock_guard lock(mutex_);
    slots_.push_back(std::move(slot));
  }
  if (request.range.length == 0) return;
  GetOptions options;
  options.range = request.range;
  options.if_match = std::move(request.if_match);
  options.checksums = std::move(request.checksums);
  options.whole = request.whole;
  options.part = request.part;
  options.stop = stop_.get_token();
  store_.Get(std::move(request.key), raw->result.bytes.span(), std::move(options),
             [this, raw](absl::StatusOr<GetResult> result) {
               std::lock_guard lock(mutex_);
               raw->status = result.status();
               raw->done = true;
               changed_.notify_all();  // under the lock: the owner may be gone right after
             });
}

absl::Status ReadAhead::Fill() {
  while (!exhausted_ && slots_.size() < kMaxRequests) {
    if (!refused_) {
      ASSIGN_OR_RETURN(refused_, source_());
      if (!refused_) {
        exhausted_ = true;
        break;
      }
    }
    const uint64_t bytes = refused_->range.length;
    if (!slots_.empty() && bytes_ahead_ + bytes > window_bytes_) break;
    Reservation memory = memory_.TryReserve(bytes);
    if (!memory) {
      if (!slots_.empty()) break;
      return absl::ResourceExhaustedError(
          fmt::format("{}: reading needs {} of memory; {} of {} are in use: raise the limit", store_.Uri(refused_->key),
                      FormatSize(bytes), FormatSize(memory_.used()), FormatSize(memory_.limit())));
    }
    Start(*std::move(refused_), std::move(memory));
    refused_.reset();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ReadAhead::Result>> ReadAhead::Next() {
  // Also where reads end too soon to be cancelled, as those of files.
  if (owners_stop_.stop_requested()) return absl::CancelledError("reading was interrupted");
  RETURN_IF_ERROR(Fill());
  if (slots_.empty()) return std::nullopt;
  std::unique_ptr<Slot> slot;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return slots_.front()->done; });
    slot = std::move(slots_.front());
    slots_.pop_front();
  }
  bytes_ahead_ -= slot->result.bytes.size();
  if (owners_stop_.stop_requested()) return absl::CancelledError("reading was interrupted");
  RETURN_IF_ERROR(slot->status);
  return std::move(slot->result);
}

ReadAhead::Request PieceRequest(const ObjectInfo& object, const Pieces& pieces, size_t index) {
  ReadAhead::Request request;
  request.key = object.key;
  request.if_match = object.etag;
  request.whole = pieces.count() <= 1;
  if (pieces.count() == 0) return request;
  request.range = pieces.At(index);
  request.part = pieces.IsPart(index);
  return request;
}

absl::Status ReadPieces(ObjectStore& store, MemoryBudget& memory, const ObjectInfo& object, const Pieces& pieces,
                        const std::stop_token& stop, absl::FunctionRef<absl::Status(size_t index, ByteSpan)> each) {
  size_t asked = 0;
  ReadAhead reads(
      store, memory,
      [&]() -> absl::StatusOr<std::optional<ReadAhead::Request>> {
        if (asked == pieces.count()) return std::nullopt;
        return PieceRequest(object, pieces, asked++);
      },
      stop);
  for (size_t i = 0; i < pieces.count(); ++i) {
    ASSIGN_OR_RETURN(const std::optional<ReadAhead::Result> piece, reads.Next());
    RETURN_IF_ERROR(each(i, piece->bytes.span()));
  }
  return absl::OkStatus();
}

}  // namespace millrace
