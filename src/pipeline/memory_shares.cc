#include "pipeline/memory_shares.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace millrace {

struct MemoryShares::State {
  State(MemoryBudget& of, uint64_t all) : budget(of), bytes(all) {}

  MemoryBudget& budget;
  const uint64_t bytes;
  std::mutex mutex;
  std::vector<Member*> members;
  Reservation reserved;  // of the budget, for all members; the most that they needed since there was none

  /// Returns the share of a member. A member that needs less than an equal share leaves the rest to the others.
  uint64_t ShareOf(const Member& member) const {
    std::vector<uint64_t> needs;
    for (const Member* each : members) needs.push_back(each->need_);
    std::sort(needs.begin(), needs.end());
    uint64_t left = bytes;
    uint64_t equal = 0;
    for (size_t i = 0; i < needs.size(); ++i) {
      equal = left / (needs.size() - i);
      if (needs[i] > equal) break;
      left -= needs[i];
      equal = needs[i];
    }
    return std::min(member.need_, equal);
  }
};

MemoryShares::MemoryShares(MemoryBudget& budget, uint64_t bytes)
    : state_(std::make_shared<State>(budget, std::min(bytes, budget.limit()))) {}

uint64_t MemoryShares::bytes() const {
  return state_->bytes;
}

uint64_t MemoryShares::NextShare() const {
  const std::lock_guard lock(state_->mutex);
  return state_->bytes / (state_->members.size() + 1);
}

std::unique_ptr<MemoryShares::Member> MemoryShares::Join(uint64_t need, uint64_t apart) {
  State& state = *state_;
  std::unique_ptr<Member> joined(new Member(state_, need));
  const std::lock_guard lock(state.mutex);
  uint64_t needs = need - apart;
  for (const Member* each : state.members) needs += each->need_;
  const uint64_t wanted = std::min(needs, state.bytes - std::min(state.bytes, apart));
  if (wanted > state.reserved.bytes() && !state.budget.TryExtend(&state.reserved, wanted - state.reserved.bytes())) {
    return nullptr;
  }
  state.members.push_back(joined.get());
  return joined;
}

MemoryShares::Member::~Member() {
  const std::lock_guard lock(state_->mutex);
  std::erase(state_->members, this);
  if (state_->members.empty()) Reservation ended = std::exchange(state_->reserved, Reservation());
}

uint64_t MemoryShares::Member::Grant(uint64_t used) {
  const std::lock_guard lock(state_->mutex);
  used_ = used;
  uint64_t others = 0;
  for (const Member* each : state_->members) others += each == this ? 0 : each->used_;
  const uint64_t left = state_->bytes - std::min(state_->bytes, others);
  return std::min(state_->ShareOf(*this), std::max(left, kLeastBytes));
}

uint64_t MemoryShares::Member::members() const {
  const std::lock_guard lock(state_->mutex);
  return state_->members.size();
}

}  // namespace millrace
