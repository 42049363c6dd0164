#include "cli/transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <stop_token>
#include <utility>

#include "base/buffer.h"
#include "store/completion.h"
#include "store/whole_check.h"

namespace millrace::cli {

namespace {

constexpr uint64_t kPiece = 8 << 20;
constexpr size_t kPiecesInFlight = 4;
constexpr int kSmallObjects = 64;
constexpr uint64_t kSmallBytes = 64 << 20;
constexpr size_t kLargeObjects = 2;
constexpr int kObjectsWithin = 64;
constexpr std::chrono::milliseconds kLook{100};  // for an interrupt
constexpr size_t kFailuresKept = 10;

struct Piece {
  Buffer buffer;
  uint64_t length = 0;
  Completion<absl::StatusOr<GetResult>> done;
};

// Reads under way, in order. The buffers must outlive them, so its end cancels and waits.
class Window {
 public:
  ~Window() {
    stop_.request_stop();
    while (!pieces_.empty()) (void)TakeFirst();
  }

  void Start(ObjectStore& store, const ObjectInfo& object, ByteRange range, Buffer buffer) {
    Piece& piece = pieces_.emplace_back();
    piece.buffer = std::move(buffer);
    piece.length = range.length;
    GetOptions options;
    options.range = range;
    options.if_match = object.etag;
    options.whole = range.length == object.size;
    options.stop = stop_.get_token();
    store.Get(object.key, piece.buffer.span().first(range.length), std::move(options), piece.done.Callback());
  }

  // Waits for the first piece and takes it out.
  std::pair<absl::Status, Piece> TakeFirst() {
    absl::Status status = pieces_.front().done.Wait().status();
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    return {std::move(status), std::move(piece)};
  }

  size_t size() const { return pieces_.size(); }

 private:
  std::stop_source stop_;
  std::deque<Piece> pieces_;
};

absl::Status InterruptedError(const std::string& uri) {
  return absl::CancelledError(fmt::format("{}: interrupted", uri));
}

// Every further object would meet the same error.
bool IsHopeless(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsUnauthenticated(status) || absl::IsCancelled(status);
}

absl::Status CheckSize(const Copier::Item& item, uint64_t written) {
  if (written == item.source.size) return absl::OkStatus();
  return absl::DataLossError(fmt::format("{}: has {} bytes after copying {}, which has {}; copy it again",
                                         item.to->Uri(item.key), written, item.from->Uri(item.source.key),
                                         item.source.size));
}

}  // namespace

absl::Status StreamObject(ObjectStore& store, const ObjectInfo& object, ByteRange range,
                          absl::FunctionRef<absl::Status(ByteSpan)> sink) {
  const bool in_pieces = range.length == object.size && object.size > kPiece;
  std::optional<WholeCheck> check;
  if (in_pieces) {
    ASSIGN_OR_RETURN(check, WholeCheck::Begin(store, object));
  }
  Window window;
  uint64_t next = range.offset;
  const auto start = [&](Buffer buffer) {
    const uint64_t length = std::min(kPiece, range.end() - next);
    window.Start(store, object, {next, length}, std::move(buffer));
    next += length;
  };
  while (window.size() < kPiecesInFlight && next < range.end()) start(Buffer(std::min(kPiece, range.length)));
  while (window.size() > 0) {
    if (Interrupted()) return InterruptedError(store.Uri(object.key));
    auto [status, piece] = window.TakeFirst();
    RETURN_IF_ERROR(status);
    const ByteSpan bytes = piece.buffer.span().first(piece.length);
    if (check) check->Update(bytes);
    RETURN_IF_ERROR(sink(bytes));
    if (next < range.end()) start(std::move(piece.buffer));
  }
  return check ? check->Finish() : absl::OkStatus();
}

// A small object on its way; shared by the callbacks of its GET and PUT.
struct Copier::Small {
  Item item;
  Buffer buffer;
};

Copier::~Copier() {
  {
    std::unique_lock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return small_ == 0 && within_ == 0; });
  }
  for (std::thread& thread : threads_) thread.join();
}

bool Copier::Add(Item item) {
  AddRefused();
  {
    std::lock_guard lock(mutex_);
    if (Interrupted() || hopeless_) return false;
  }
  if (!StartWithin(item)) AddThrough(std::move(item));
  return true;
}

// False: the bytes have to come through this machine.
bool Copier::StartWithin(Item& item) {
  if (!item.to->CopiesFrom(*item.from)) return false;
  {
    std::unique_lock lock(mutex_);
    WaitWithin(lock, kObjectsWithin - 1);
    if (refuses_) return false;
    ++within_;
  }
  CopyOptions options;
  options.stop = stop_.get_token();
  options.moved = [this](uint64_t bytes) { Advance(bytes); };
  ObjectStore& to = *item.to;
  const ObjectStore& from = *item.from;
  ObjectInfo source = item.source;
  std::string key = item.key;
  to.Copy(from, std::move(source), std::move(key), std::move(options),
          [this, item = std::move(item)](const absl::StatusOr<ObjectInfo>& copied) mutable {
            const bool refused = absl::IsUnimplemented(copied.status());
            if (!refused) Count(item, copied.status());
            std::lock_guard lock(mutex_);
            --within_;
            refuses_ = refuses_ || refused;
            if (refused) refused_.push_back(std::move(item));
            changed_.notify_all();  // under the lock: the waiting destructor may free it right after
          });
  return true;
}

// Until no more than that many are being copied by stores, which an interrupt ends.
void Copier::WaitWithin(std::unique_lock<std::mutex>& lock, int at_most) {
  while (!changed_.wait_for(lock, kLook, [&] { return within_ <= at_most; })) {
    if (Interrupted()) stop_.request_stop();
  }
}

void Copier::AddRefused() {
  std::vector<Item> refused;
  {
    std::lock_guard lock(mutex_);
    refused.swap(refused_);
  }
  for (Item& item : refused) AddThrough(std::move(item));
}

void Copier::AddThrough(Item item) {
  {
    std::unique_lock lock(mutex_);
    if (item.source.size > kPiece) {
      changed_.wait(lock, [this] { return large_.size() < kLargeObjects; });
    } else {
      changed_.wait(lock, [&] { return small_ < kSmallObjects && small_bytes_ + item.source.size <= kSmallBytes; });
      ++small_;
      small_bytes_ += item.source.size;
    }
  }
  item.source.size > kPiece ? AddLarge(std::move(item)) : StartSmall(std::move(item));
}

void Copier::StartSmall(Item item) {
  auto small = std::make_shared<Small>();
  small->item = std::move(item);
  small->buffer = Buffer(small->item.source.size);
  GetOptions options;
  options.range = {0, small->item.source.size};
  options.if_match = small->item.source.etag;
  options.whole = true;
  ObjectStore& from = *small->item.from;
  from.Get(
      small->item.source.key, small->buffer.span(), std::move(options), [this, small](absl::StatusOr<GetResult> got) {
        if (!got.ok()) return Done(small->item, got.status());
        small->item.to->Put(small->item.key, small->buffer.span(), {}, [this, small](absl::StatusOr<ObjectInfo> put) {
          const absl::Status status = put.ok() ? CheckSize(small->item, put->size) : put.status();
          if (status.ok()) Advance(small->item.source.size);
          Done(small->item, status);
        });
      });
}

void Copier::AddLarge(Item item) {
  std::lock_guard lock(mutex_);
  large_.push_back(std::move(item));
  if (threads_.size() < kLargeObjects) threads_.emplace_back([this] { CopyLargeObjects(); });
  changed_.notify_all();
}

void Copier::CopyLargeObjects() {
  for (;;) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closed_ || !large_.empty(); });
      if (large_.empty()) return;
      item = std::move(large_.front());
      large_.pop_front();
      changed_.notify_all();
    }
    absl::Status status = CopyLarge(item);
    // Damage on the way is found at the end only: from the beginning, then.
    if (absl::IsDataLoss(status)) status = CopyLarge(item);
    Done(item, status);
  }
}

absl::Status Copier::CopyLarge(const Item& item) {
  if (Interrupted()) return InterruptedError(item.from->Uri(item.source.key));
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer, item.to->Write(item.key, {}));
  const auto append = [&](ByteSpan bytes) {
    absl::Status status = writer->Append(bytes);
    if (status.ok()) Advance(bytes.size());
    return status;
  };
  RETURN_IF_ERROR(StreamObject(*item.from, item.source, {0, item.source.size}, append));
  ASSIGN_OR_RETURN(const ObjectInfo written, writer->Commit());
  return CheckSize(item, written.size);
}

void Copier::Advance(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  moved_ += bytes;
  progress_.Update(moved_, total_);
}

void Copier::SetTotal(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  total_ = bytes;
}

void Copier::Count(const Item& item, const absl::Status& status) {
  std::lock_guard lock(mutex_);
  if (status.ok()) {
    ++report_.objects;
    report_.bytes += item.source.size;
  } else {
    ++report_.failed;
    hopeless_ = hopeless_ || IsHopeless(status);
    report_.failures.emplace(item.from->Uri(item.source.key), status);
    if (report_.failures.size() > kFailuresKept) report_.failures.erase(std::prev(report_.failures.end()));
  }
}

void Copier::Done(const Item& item, const absl::Status& status) {
  Count(item, status);
  std::lock_guard lock(mutex_);
  if (item.source.size <= kPiece) {
    --small_;
    small_bytes_ -= item.source.size;
  }
  changed_.notify_all();  // under the lock: the waiting destructor may free it right after
}

Copier::Report Copier::Finish() {
  std::unique_lock lock(mutex_);
  WaitWithin(lock, 0);
  lock.unlock();
  AddRefused();
  lock.lock();
  closed_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return small_ == 0; });
  lock.unlock();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  return std::move(report_);
}

}  // namespace millrace::cli
