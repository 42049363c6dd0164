#include "service/frame_buffers.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace millrace {

namespace {

// Batches of one stream differ by some bytes: the names of their samples.
constexpr size_t kRoundTo = size_t{64} << 10;

}  // namespace

struct FrameBuffers::State {
  explicit State(size_t most) : most_free(most) {}

  const size_t most_free;
  std::mutex mutex;
  std::vector<std::unique_ptr<Buffer>> free;

  // Finds the smallest one that is large enough. If there is none, one that is too small is freed: its memory is about
  // to be taken again.
  std::unique_ptr<Buffer> Find(size_t bytes) {
    const std::lock_guard lock(mutex);
    auto best = free.end();
    for (auto each = free.begin(); each != free.end(); ++each) {
      if ((*each)->size() >= bytes && (best == free.end() || (*each)->size() < (*best)->size())) best = each;
    }
    const bool found = best != free.end();
    if (!found && !free.empty()) best = free.begin();
    if (best == free.end()) return nullptr;
    std::unique_ptr<Buffer> buffer = std::move(*best);
    free.erase(best);
    return found ? std::move(buffer) : nullptr;
  }
};

FrameBuffers::FrameBuffers(size_t most_free) : state_(std::make_shared<State>(most_free)) {}
FrameBuffers::~FrameBuffers() = default;

std::shared_ptr<Buffer> FrameBuffers::Take(size_t bytes) {
  std::unique_ptr<Buffer> buffer = state_->Find(bytes);
  if (buffer == nullptr) buffer = std::make_unique<Buffer>((bytes + kRoundTo - 1) / kRoundTo * kRoundTo);
  const auto back = [state = std::weak_ptr(state_)](Buffer* used) {
    std::unique_ptr<Buffer> owned(used);
    const std::shared_ptr<State> alive = state.lock();
    if (alive == nullptr) return;
    const std::lock_guard lock(alive->mutex);
    if (alive->free.size() < alive->most_free) alive->free.push_back(std::move(owned));
  };
  return std::shared_ptr<Buffer>(buffer.release(), back);
}

}  // namespace millrace
