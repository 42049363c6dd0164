#include "cli/remove.h"

#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <system_error>
#include <utility>

namespace millrace::cli {

namespace {

constexpr size_t kBatch = 1000;
constexpr int kBatches = 4;
constexpr size_t kFailedKeysKept = 10;

bool EndsRemoval(const absl::Status& status) {
  return absl::IsUnauthenticated(status) || absl::IsCancelled(status);
}

// For files: the first folder on the way to the key that is a link; "" without one, and for other stores.
std::string LinkOnTheWay(const ObjectStore& store, std::string_view key) {
  std::string root = store.Uri("");
  if (!root.starts_with('/')) return {};
  for (size_t slash = key.find('/'); slash != key.npos; slash = key.find('/', slash + 1)) {
    std::string folder = store.Uri(key.substr(0, slash));
    std::error_code ignored;  // what cannot be looked at fails when it is removed
    if (std::filesystem::is_symlink(folder, ignored)) return folder;
  }
  return {};
}

}  // namespace

Remover::~Remover() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return in_flight_ == 0; });
}

bool Remover::Add(ObjectStore& store, ObjectInfo object) {
  if (store_ != &store) Start();
  store_ = &store;
  {
    std::lock_guard lock(mutex_);
    if (Interrupted() || hopeless_) return false;
  }
  if (const std::string link = LinkOnTheWay(store, object.key); !link.empty()) {
    const std::string uri = store.Uri(object.key);
    std::lock_guard lock(mutex_);
    Count(uri, object,
          absl::FailedPreconditionError(fmt::format(
              "{}: lies behind the link {}; remove the link, or name the folder that it leads to", uri, link)));
    return true;
  }
  batch_.push_back(std::move(object));
  if (batch_.size() == kBatch) Start();
  return true;
}

void Remover::Start() {
  if (batch_.empty()) return;
  auto batch = std::make_shared<Batch>(std::exchange(batch_, {}));
  std::vector<std::string> keys;
  for (const ObjectInfo& object : *batch) keys.push_back(object.key);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return in_flight_ < kBatches; });
    ++in_flight_;
  }
  store_->DeleteMany(std::move(keys), [this, store = store_, batch](std::vector<absl::Status> statuses) {
    Done(*store, *batch, statuses);
  });
}

void Remover::Done(ObjectStore& store, const Batch& batch, const std::vector<absl::Status>& statuses) {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < batch.size(); ++i) Count(store.Uri(batch[i].key), batch[i], statuses[i]);
  if (progress_ != nullptr) progress_->Update(report_.objects, 0);
  --in_flight_;
  changed_.notify_all();  // under the lock: the waiting destructor may free it right after
}

void Remover::Count(const std::string& uri, const ObjectInfo& object, const absl::Status& status) {
  if (status.ok()) {
    ++report_.objects;
    report_.bytes += object.size;
    return;
  }
  ++report_.failed;
  hopeless_ = hopeless_ || EndsRemoval(status);
  report_.failures.emplace(uri, status);
  if (report_.failures.size() > kFailedKeysKept) report_.failures.erase(std::prev(report_.failures.end()));
}

Remover::Report Remover::Finish() {
  if (!Interrupted()) Start();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return in_flight_ == 0; });
  return std::move(report_);
}

}  // namespace millrace::cli
