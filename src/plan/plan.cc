#include "plan/plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "base/rng.h"
#include "plan/mix_order.h"
#include "plan/permutation.h"
#include "plan/selection.h"
#include "plan/window_order.h"

namespace millrace {
namespace {

constexpr uint64_t kGlobalDomain = 0x4d522d676c6f6261;  // "MR-globa"

/// This is the index order.
struct Identity {};

}  // namespace

struct Plan::Impl {
  uint64_t size = 0;
  uint64_t items = 0;
  std::variant<Identity, Permutation, WindowOrder, MixOrder> order;
};

Plan::Plan(uint64_t samples, const OrderPolicy& policy, uint64_t seed, uint64_t epoch)
    : impl_(new Impl{samples, samples, {}}) {
  if (samples == 0) return;
  if (policy.shuffle == Shuffle::kGlobal) {
    impl_->order = Permutation(samples, HashKey(kGlobalDomain, {seed, epoch}));
  } else if (policy.shuffle == Shuffle::kWindow) {
    impl_->order = WindowOrder(samples, policy, seed, epoch);
  }
}

Plan::Plan(const Mix& mix, uint64_t seed, uint64_t epoch)
    : impl_(new Impl{mix.length, mix.items(), MixOrder(mix, seed, epoch)}) {}

Plan::~Plan() = default;
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;

uint64_t Plan::size() const {
  return impl_->size;
}

uint64_t Plan::items() const {
  return impl_->items;
}

bool Plan::invertible() const {
  const auto* mix = std::get_if<MixOrder>(&impl_->order);
  return mix == nullptr || mix->invertible();
}

Draw Plan::DrawAt(uint64_t position) const {
  if (const auto* window = std::get_if<WindowOrder>(&impl_->order)) return {window->At(position)};
  if (const auto* global = std::get_if<Permutation>(&impl_->order)) return {global->At(position)};
  if (const auto* mix = std::get_if<MixOrder>(&impl_->order)) return mix->At(position);
  return {position};
}

uint64_t Plan::PositionOf(uint64_t item) const {
  if (const auto* window = std::get_if<WindowOrder>(&impl_->order)) return window->PositionOf(item);
  if (const auto* global = std::get_if<Permutation>(&impl_->order)) return global->IndexOf(item);
  if (const auto* mix = std::get_if<MixOrder>(&impl_->order)) return mix->NextPosition(item, 0);
  return item;
}

uint64_t Plan::NextPosition(uint64_t item, uint64_t from) const {
  if (const auto* mix = std::get_if<MixOrder>(&impl_->order)) return mix->NextPosition(item, from);
  const uint64_t position = PositionOf(item);
  return position >= from ? position : size();
}

uint64_t Plan::PositionOf(const Draw& draw) const {
  if (const auto* mix = std::get_if<MixOrder>(&impl_->order)) return mix->PositionOf(draw);
  return draw.turn == 0 ? PositionOf(draw.item) : size();
}

std::vector<uint64_t> Plan::Positions(uint64_t item) const {
  if (const auto* mix = std::get_if<MixOrder>(&impl_->order)) return mix->Positions(item);
  return {PositionOf(item)};
}

uint64_t Plan::WindowOf(uint64_t position) const {
  const auto* window = std::get_if<WindowOrder>(&impl_->order);
  return window != nullptr ? window->WindowAt(position).number : 0;
}

uint64_t Plan::WindowEnd(uint64_t position) const {
  const auto* window = std::get_if<WindowOrder>(&impl_->order);
  return window != nullptr ? window->WindowAt(position).end() : size();
}

Plan::Reader::Reader(const Plan& plan, uint64_t stride, const Selection* subset)
    : plan_(plan.impl_.get()), subset_(subset) {
  if (const auto* window = std::get_if<WindowOrder>(&plan_->order)) {
    windows_ = std::make_unique<WindowReader>(*window, stride, subset);
  }
}
Plan::Reader::~Reader() = default;
Plan::Reader::Reader(Reader&&) noexcept = default;
Plan::Reader& Plan::Reader::operator=(Reader&&) noexcept = default;

void Plan::Reader::Map(std::span<uint64_t> positions) {
  if (windows_ != nullptr) {
    for (; !positions.empty(); positions = positions.subspan(std::min(positions.size(), WindowReader::kBlock))) {
      windows_->Map(positions.first(std::min(positions.size(), WindowReader::kBlock)));
    }
    return;
  }
  if (const auto* global = std::get_if<Permutation>(&plan_->order)) global->Map(positions);
  if (subset_ == nullptr) return;
  for (uint64_t& sample : positions) sample = subset_->At(sample);
}

/// Works out a block of samples at a time: the permutations are faster over several than one by one.
struct Plan::Cursor::Impl {
  static constexpr size_t kBlock = WindowReader::kBlock;

  Impl(const Plan& the_plan, uint64_t first, uint64_t step)
      : plan(the_plan.impl_.get()), position(first), stride(step), ahead(first) {
    if (const auto* mix = std::get_if<MixOrder>(&plan->order)) {
      mixed.emplace(*mix, first, step);
    } else {
      reader.emplace(the_plan, step);
    }
  }

  /// Returns `position` moved on by the stride; it stays at the end once there.
  uint64_t After(uint64_t from) const {
    return from < plan->size && stride < plan->size - from ? from + stride : plan->size;
  }

  void Fill() {
    used = 0;
    for (filled = 0; filled < kBlock && ahead < plan->size; ++filled, ahead = After(ahead)) block[filled] = ahead;
    reader->Map(std::span(block).first(filled));
  }

  const Plan::Impl* plan;
  uint64_t position;  // of the sample that Next() returns
  uint64_t stride;
  std::optional<MixReader> mixed;

  // This is used without a mix:
  uint64_t ahead;  // first position that is not in the block
  std::optional<Plan::Reader> reader;
  std::array<uint64_t, kBlock> block;
  size_t used = 0;
  size_t filled = 0;
};

Plan::Cursor::Cursor(const Plan& plan, uint64_t first, uint64_t stride) : impl_(new Impl(plan, first, stride)) {}
Plan::Cursor::~Cursor() = default;
Plan::Cursor::Cursor(Cursor&&) noexcept = default;
Plan::Cursor& Plan::Cursor::operator=(Cursor&&) noexcept = default;

bool Plan::Cursor::done() const {
  return impl_->position >= impl_->plan->size;
}
uint64_t Plan::Cursor::position() const {
  return impl_->position;
}

Draw Plan::Cursor::NextDraw() {
  impl_->position = impl_->After(impl_->position);
  if (impl_->mixed) return impl_->mixed->Next();
  if (impl_->used == impl_->filled) impl_->Fill();
  return {impl_->block[impl_->used++]};
}

}  // namespace millrace
