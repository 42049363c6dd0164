#include "cli/transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/buffer.h"
#include "store/large_copy.h"

namespace millrace::cli {

namespace {

constexpr int kSmallObjects = 64;
constexpr uint64_t kSmallBytes = 64 << 20;
constexpr size_t kLargeObjects = 2;
constexpr int kObjectsWithin = 64;
constexpr size_t kFailuresKept = 10;

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
    changed_.wait(lock, [this] { return within_ < kObjectsWithin; });
    if (refuses_) return false;
    ++within_;
  }
  CopyOptions options;
  options.stop = interrupt_.token();
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
    if (item.source.size > kPieceBytes) {
      changed_.wait(lock, [this] { return large_.size() < kLargeObjects; });
    } else {
      changed_.wait(lock, [&] { return small_ < kSmallObjects && small_bytes_ + item.source.size <= kSmallBytes; });
      ++small_;
      small_bytes_ += item.source.size;
    }
  }
  item.source.size > kPieceBytes ? AddLarge(std::move(item)) : StartSmall(std::move(item));
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
    Done(item, CopyLarge(item));
  }
}

absl::Status Copier::CopyLarge(const Item& item) {
  ASSIGN_OR_RETURN(const ObjectInfo written, CopyInPieces(
                                                 *item.from, item.source, *item.to, item.key,
                                                 [this](uint64_t bytes) { Advance(bytes); }, interrupt_.token()));
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
  if (item.source.size <= kPieceBytes) {
    --small_;
    small_bytes_ -= item.source.size;
  }
  changed_.notify_all();  // under the lock: the waiting destructor may free it right after
}

Copier::Report Copier::Finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return within_ == 0; });
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
