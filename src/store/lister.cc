#include "store/lister.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "store/parallel_listing.h"

namespace millrace {

namespace {

ParallelListing::Options OptionsFor(const ObjectStore& store) {
  ParallelListing::Options options;
  options.max_requests = store.traits().lists_at_once;
  // If pages are listed one by one, a few pages ahead suffice.
  if (options.max_requests == 1) options.max_buffered = 4 * options.page;
  return options;
}

}  // namespace

class Lister::Shared {
 public:
  Shared(ObjectStore& store, std::string prefix)
      : store_(store), prefix_(std::move(prefix)), listing_(prefix_, OptionsFor(store)) {}

  // Makes all requests that may be made.
  static void Pump(const std::shared_ptr<Shared>& self) {
    while (std::optional<ParallelListing::Request> request = self->NextRequest()) {
      ListOptions options;
      options.prefix = self->prefix_;
      options.start_after = std::move(request->start_after);
      options.continuation = std::move(request->continuation);
      self->store_.List(std::move(options), [self, range = request->range](absl::StatusOr<ListPage> page) {
        self->OnPage(range, std::move(page));
        Pump(self);
      });
    }
  }

  absl::StatusOr<std::vector<ObjectInfo>> Take(const std::stop_token& stop) {
    std::vector<ObjectInfo> objects;
    std::unique_lock lock(mutex_);
    const bool came = came_.wait(lock, stop, [&] {
      if (stop.stop_requested()) return false;
      if (!status_.ok()) return true;
      objects = listing_.Take();
      return !objects.empty() || listing_.Done();
    });
    if (!came) return absl::CancelledError(fmt::format("{}: interrupted", store_.Uri(prefix_)));
    RETURN_IF_ERROR(status_);
    return objects;
  }

  void Close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }

 private:
  std::optional<ParallelListing::Request> NextRequest() {
    std::lock_guard lock(mutex_);
    if (closed_ || !status_.ok()) return std::nullopt;
    return listing_.Next();
  }

  void OnPage(uint64_t range, absl::StatusOr<ListPage> page) {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    if (page.ok()) {
      const absl::Status status = listing_.OnPage(range, *std::move(page));
      if (!status.ok()) status_.Update(Annotate(status, store_.Uri(prefix_)));
    } else {
      status_.Update(page.status());
    }
    came_.notify_all();
  }

  ObjectStore& store_;
  const std::string prefix_;
  std::mutex mutex_;
  std::condition_variable_any came_;
  ParallelListing listing_;
  absl::Status status_;
  bool closed_ = false;
};

Lister::Lister(ObjectStore& store, std::string prefix, std::stop_token stop)
    : shared_(std::make_shared<Shared>(store, std::move(prefix))), stop_(std::move(stop)) {
  Shared::Pump(shared_);
}

Lister::~Lister() {
  shared_->Close();
}

absl::StatusOr<std::vector<ObjectInfo>> Lister::Next() {
  absl::StatusOr<std::vector<ObjectInfo>> objects = shared_->Take(stop_);
  if (objects.ok()) Shared::Pump(shared_);  // there is room again
  return objects;
}

}  // namespace millrace
