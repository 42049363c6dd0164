#include "mount/read_surplus.h"

#include <algorithm>
#include <bit>

namespace millrace {

namespace {

constexpr uint64_t kAverageWeight = 8;  // of what was before, in an average
constexpr uint64_t kLeastRate = uint64_t{1} << 20;
constexpr uint64_t kGreatestRate = uint64_t{2} << 30;
constexpr uint64_t kMicroseconds = 1'000'000;  // of a second
// A wait of a second or of a minute is worth the same.
constexpr ReadSurplus::Time kMaxCounted = std::chrono::seconds(1);

uint64_t Microseconds(ReadSurplus::Time time) {
  const auto count = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  return static_cast<uint64_t>(std::max<int64_t>(count, 0));
}

}  // namespace

void ReadSurplus::Earn(uint64_t bytes) {
  credit_ = std::min(kMaxCredit, credit_ + bytes);
}

void ReadSurplus::OnMiss(uint64_t bytes, Time waited) {
  ++misses_;
  least_wait_ = std::min(least_wait_.value_or(waited), waited);
  const uint64_t counted = Microseconds(std::min(waited, kMaxCounted) - kQuick);
  const uint64_t worth = std::max(bytes, bytes_per_second_ * counted / kMicroseconds);
  worth_ = misses_ == 1 ? worth : (worth_ * (kAverageWeight - 1) + worth) / kAverageWeight;
  Earn(is_kept_ && fetched_ < file_bytes_ ? worth : bytes);
}

void ReadSurplus::OnHit() {
  Earn(std::min(kProvenBytes, 2 * worth_));
}

uint64_t ReadSurplus::Piece() const {
  // If little is kept, nothing of it would live to be used.
  if (kept_bytes_ < kMaxPieceBytes || credit_ < kBlockBytes) return 0;
  return std::bit_floor(std::min(credit_, kMaxPieceBytes));
}

void ReadSurplus::OnFetch(uint64_t bytes) {
  credit_ -= std::min(credit_, bytes);
  fetched_ += bytes;
}

bool ReadSurplus::ComesSooner(Time age) const {
  if (!least_wait_) return true;
  return age + *least_wait_ >= took_.value_or(2 * *least_wait_);
}

void ReadSurplus::OnArrival(uint64_t bytes, Time took, uint64_t together) {
  took_ = took_ ? (*took_ + took) / 2 : took;
  // This leaves out the time that every request takes.
  const uint64_t body = Microseconds(took - least_wait_.value_or(Time{}));
  const uint64_t rate = body == 0 ? kGreatestRate : bytes * together * kMicroseconds / body;
  bytes_per_second_ = (bytes_per_second_ + std::clamp(rate, kLeastRate, kGreatestRate)) / 2;
}

}  // namespace millrace
