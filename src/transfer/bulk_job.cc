#include "transfer/bulk_job.h"

#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "store/checks.h"
#include "store/completion.h"
#include "store/pieces.h"

namespace millrace {

namespace {

constexpr int kJobThreads = 64;
constexpr uint64_t kRoomAgain = 8;  // small objects
constexpr size_t kRemovalBatch = 1000;
constexpr size_t kFailuresKept = 10;
constexpr size_t kTidyFolders = 10'000;

// Every further object would meet the same error.
bool IsHopeless(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsUnauthenticated(status);
}

// Returns the first folder on the way to the key that is a link, for files; "" without one, and for other stores.
std::string LinkOnTheWay(const ObjectStore& store, std::string_view key) {
  if (!store.traits().is_folder()) return {};
  for (size_t slash = key.find('/'); slash != key.npos; slash = key.find('/', slash + 1)) {
    std::string folder = store.Uri(key.substr(0, slash));
    std::error_code ignored;  // what cannot be looked at fails when it is removed
    if (std::filesystem::is_symlink(folder, ignored)) return folder;
  }
  return {};
}

}  // namespace

void BulkReport::Add(const std::string& uri, uint64_t size, const absl::Status& status) {
  if (absl::IsCancelled(status)) return;
  if (status.ok()) {
    ++objects;
    bytes += size;
    return;
  }
  ++failed;
  failures.emplace(uri, status);
  if (failures.size() > kFailuresKept) failures.erase(std::prev(failures.end()));
}

void BulkReport::Add(const BulkReport& other) {
  objects += other.objects;
  bytes += other.bytes;
  unverified += other.unverified;
  read_twice += other.read_twice;
  failed += other.failed;
  failures.insert(other.failures.begin(), other.failures.end());
  while (failures.size() > kFailuresKept) failures.erase(std::prev(failures.end()));
}

absl::Status BulkJob::CheckGoesOn() {
  std::lock_guard lock(mutex_);
  return hopeless_ || options_.stop.stop_requested() ? absl::CancelledError("stopped") : absl::OkStatus();
}

void BulkJob::Enter(Room& room, uint64_t amount) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return room.used + amount <= room.limit; });
  room.used += amount;
}

void BulkJob::Leave(Room& room, uint64_t amount) {
  std::lock_guard lock(mutex_);
  room.used -= amount;
  changed_.notify_all();
}

void BulkJob::Start(Room& room, absl::AnyInvocable<void()> work) {
  if (!threads_) threads_.emplace(kJobThreads, "bulk-job");
  Enter(room, 1);
  threads_->Submit([this, &room, work = std::move(work)]() mutable {
    work();
    Leave(room, 1);
  });
}

void BulkJob::RemoveLeftovers(ObjectStore& to, std::string_view key) {
  if (!to.traits().is_folder()) return;
  const std::string folder(key.substr(0, key.rfind('/') + 1));
  if (tidy_.size() == kTidyFolders) tidy_.clear();
  if (!tidy_.insert(to.Uri(folder)).second) return;
  // A file that stays harms nothing, and if the folder cannot be written to, the copy says so.
  to.RemoveTemporary(folder).IgnoreError();
}

// Small objects are copied by the stores' threads alone: to hand each to a thread, and back after each of its requests,
// costs a third of the copy.
bool BulkJob::NeedsThread(const ObjectStore& from, uint64_t size, const ObjectStore& to) const {
  return size > kPieceBytes || (from.traits().is_remote() && to.traits().is_remote()) ||
         (to.CopiesFrom(from) && !refused_);
}

absl::Status BulkJob::Copy(ObjectStore& from, ObjectInfo source, ObjectStore& to, std::string key) {
  RETURN_IF_ERROR(CheckGoesOn());
  total_bytes_ += source.size;
  RemoveLeftovers(to, key);
  if (!NeedsThread(from, source.size, to)) return CopySmall(from, std::move(source), to, std::move(key));
  Start(copies_, [this, &from, source = std::move(source), &to, key = std::move(key)] {
    const absl::StatusOr<CopiedObject> copied = CopyOne(from, source, to, key);
    std::lock_guard lock(mutex_);
    Note(from, source, key, copied);
  });
  return absl::OkStatus();
}

absl::Status BulkJob::CopySmall(ObjectStore& from, ObjectInfo source, ObjectStore& to, std::string key) {
  Enter(small_, 1);
  Enter(small_bytes_, source.size);
  const absl::Status goes_on = CheckGoesOn();
  if (!goes_on.ok()) {
    Leave(small_bytes_, source.size);
    Leave(small_, 1);
    return goes_on;
  }
  ObjectInfo object = source;
  std::string name = key;
  CopySmallObject(
      from, std::move(object), to, std::move(name), OptionsOfCopy(),
      [this, &from, source = std::move(source), key = std::move(key)](const absl::StatusOr<CopiedObject>& copied) {
        std::lock_guard lock(mutex_);
        Note(from, source, key, copied);
        small_bytes_.used -= source.size;
        small_.used -= 1;
        // Wakes the owner under the lock, since it may be gone right after. It is woken for eight copies at a time: to
        // wake it costs more than to note one.
        if (small_.used + kRoomAgain <= small_.limit) changed_.notify_all();
      });
  return absl::OkStatus();
}

CopyObjectOptions BulkJob::OptionsOfCopy() {
  CopyObjectOptions options;
  options.moved = [this](uint64_t bytes) {
    std::lock_guard lock(mutex_);
    progress_.copied_bytes += bytes;
    Tell();
  };
  options.through = refused_;
  options.read_twice = options_.read_twice;
  options.content_type = options_.content_type;
  options.stop = options_.stop;
  return options;
}

absl::StatusOr<CopiedObject> BulkJob::CopyOne(ObjectStore& from, const ObjectInfo& source, ObjectStore& to,
                                              const std::string& key) {
  Room& room = source.size > kPieceBytes ? large_ : small_bytes_;
  const uint64_t amount = source.size > kPieceBytes ? 1 : source.size;
  bool entered = false;
  CopyObjectOptions options = OptionsOfCopy();
  options.before_moving = [&] {
    if (to.CopiesFrom(from)) refused_ = true;
    Enter(room, amount);
    entered = true;
    return CheckGoesOn();
  };
  absl::StatusOr<CopiedObject> copied = CopyObject(from, source, to, key, options);
  if (entered) Leave(room, amount);
  return copied;
}

// Call this under the lock.
void BulkJob::Note(const ObjectStore& from, const ObjectInfo& source, const std::string& key,
                   const absl::StatusOr<CopiedObject>& copied) {
  hopeless_ = hopeless_ || IsHopeless(copied.status());
  BulkReport& report = reports_.copied;
  report.Add(from.Uri(source.key), source.size, copied.status());
  if (!copied.ok()) return;
  report.unverified += copied->check == CopyCheck::kNone ? 1 : 0;
  report.read_twice += copied->check == CopyCheck::kReadTwice ? 1 : 0;
  if (options_.copied) options_.copied(source, key, copied->info);
}

absl::Status BulkJob::CheckRemoval(const ObjectStore& store, std::string_view key) {
  RETURN_IF_ERROR(CheckCanHold(store, key));
  const std::string link = LinkOnTheWay(store, key);
  if (link.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "{}: is behind the link {}; remove the link, or name the folder that it leads to", store.Uri(key), link));
}

absl::Status BulkJob::Remove(ObjectStore& store, ObjectInfo object) {
  if (batch_.store != &store) StartRemoval();
  batch_.store = &store;
  RETURN_IF_ERROR(CheckGoesOn());
  if (const absl::Status refused = CheckRemoval(store, object.key); !refused.ok()) {
    std::lock_guard lock(mutex_);
    reports_.removed.Add(store.Uri(object.key), object.size, refused);
    return absl::OkStatus();
  }
  batch_.objects.push_back(std::move(object));
  if (batch_.objects.size() == kRemovalBatch) StartRemoval();
  return absl::OkStatus();
}

void BulkJob::StartRemoval() {
  if (batch_.objects.empty()) return;
  Start(removals_, [this, batch = std::exchange(batch_, {})] { RemoveBatch(batch); });
}

void BulkJob::RemoveBatch(const Batch& batch) {
  std::vector<std::string> keys;
  for (const ObjectInfo& object : batch.objects) keys.push_back(object.key);
  Completion<std::vector<absl::Status>> removed;
  batch.store->Delete(std::move(keys), removed.Callback());
  // The store decides whether they are removed after a stop: they are not counted.
  if (!removed.WaitOrStop(options_.stop)) return;
  const std::vector<absl::Status> statuses = removed.Wait();
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < statuses.size(); ++i) {
    const ObjectInfo& object = batch.objects[i];
    hopeless_ = hopeless_ || IsHopeless(statuses[i]);
    reports_.removed.Add(batch.store->Uri(object.key), object.size, statuses[i]);
  }
  progress_.removed_objects = reports_.removed.objects;
  Tell();
}

void BulkJob::Tell() {
  if (options_.progress) options_.progress(progress_);
}

BulkJob::Reports BulkJob::Finish() {
  if (!options_.stop.stop_requested()) StartRemoval();
  {
    std::lock_guard lock(mutex_);
    progress_.total_bytes = total_bytes_;
  }
  WaitForAll();
  return std::move(reports_);
}

BulkJob::~BulkJob() {
  WaitForAll();
}

void BulkJob::WaitForAll() {
  threads_.reset();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return small_.used == 0; });
}

}  // namespace millrace
