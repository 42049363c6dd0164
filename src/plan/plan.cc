#include "plan/plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "base/rng.h"
#include "plan/permutation.h"
#include "plan/window_order.h"

namespace millrace {
namespace {

constexpr uint64_t kGlobalDomain = 0x4d522d676c6f6261;  // "MR-globa"

/// Index order.
struct Identity {};

}  // namespace

struct Plan::Impl {
  uint64_t samples = 0;
  std::variant<Identity, Permutation, WindowOrder> order;
};

Plan::Plan(uint64_t samples, const OrderPolicy& policy, uint64_t seed, uint64_t epoch) : impl_(new Impl{samples, {}}) {
  if (samples == 0) return;
  if (policy.shuffle == Shuffle::kGlobal) {
    impl_->order = Permutation(samples, HashKey(kGlobalDomain, {seed, epoch}));
  } else if (policy.shuffle == Shuffle::kWindow) {
    impl_->order = WindowOrder(samples, policy, seed, epoch);
  }
}

Plan::~Plan() = default;
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;

uint64_t Plan::size() const {
  return impl_->samples;
}

uint64_t Plan::At(uint64_t position) const {
  if (const auto* window = std::get_if<WindowOrder>(&impl_->order)) return window->At(position);
  if (const auto* global = std::get_if<Permutation>(&impl_->order)) return global->At(position);
  return position;
}

uint64_t Plan::Where(uint64_t sample) const {
  if (const auto* window = std::get_if<WindowOrder>(&impl_->order)) return window->Where(sample);
  if (const auto* global = std::get_if<Permutation>(&impl_->order)) return global->Where(sample);
  return sample;
}

uint64_t Plan::WindowOf(uint64_t position) const {
  const auto* window = std::get_if<WindowOrder>(&impl_->order);
  return window != nullptr ? window->WindowOf(position) : 0;
}

uint64_t Plan::WindowEnd(uint64_t position) const {
  const auto* window = std::get_if<WindowOrder>(&impl_->order);
  return window != nullptr ? window->FirstPosition(window->WindowOf(position) + 1) : size();
}

/// Works out a block of samples at a time: the permutations are faster over several than one by one.
struct Plan::Cursor::Impl {
  static constexpr size_t kBlock = WindowReader::kBlock;

  Impl(const Plan::Impl& plan_impl, uint64_t first, uint64_t step)
      : plan(&plan_impl), position(first), stride(step), ahead(first) {
    if (const auto* window = std::get_if<WindowOrder>(&plan->order)) reader.emplace(*window, stride);
  }

  /// `position` moved on by the stride; stays at the end once there.
  uint64_t After(uint64_t from) const {
    return from < plan->samples && stride < plan->samples - from ? from + stride : plan->samples;
  }

  void Fill() {
    used = 0;
    for (filled = 0; filled < kBlock && ahead < plan->samples; ++filled, ahead = After(ahead)) block[filled] = ahead;
    const std::span<uint64_t> positions(block.data(), filled);
    if (reader.has_value()) {
      reader->Map(positions);
    } else if (const auto* global = std::get_if<Permutation>(&plan->order)) {
      global->Map(positions);
    }
  }

  const Plan::Impl* plan;
  uint64_t position;  // of the sample that Next() returns
  uint64_t stride;
  uint64_t ahead;  // first position that is not in the block
  std::optional<WindowReader> reader;
  std::array<uint64_t, kBlock> block;
  size_t used = 0;
  size_t filled = 0;
};

Plan::Cursor::Cursor(const Plan& plan, uint64_t first, uint64_t stride) : impl_(new Impl(*plan.impl_, first, stride)) {}
Plan::Cursor::~Cursor() = default;
Plan::Cursor::Cursor(Cursor&&) noexcept = default;
Plan::Cursor& Plan::Cursor::operator=(Cursor&&) noexcept = default;

bool Plan::Cursor::done() const {
  return impl_->position >= impl_->plan->samples;
}
uint64_t Plan::Cursor::position() const {
  return impl_->position;
}

uint64_t Plan::Cursor::Next() {
  if (impl_->used == impl_->filled) impl_->Fill();
  impl_->position = impl_->After(impl_->position);
  return impl_->block[impl_->used++];
}

}  // namespace millrace
