#include "dataset/duplicate_keys.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

namespace millrace {

namespace {

constexpr uint64_t kMaxSamples = uint64_t{1} << 27;
constexpr uint64_t kNoSample = UINT64_MAX;

// Sorts hashes and leaves one of each that is there several times.
void KeepRepeated(std::vector<uint64_t>* hashes) {
  std::sort(hashes->begin(), hashes->end());
  auto kept = hashes->begin();
  for (auto begin = hashes->begin(); begin != hashes->end();) {
    const auto end = std::find_if(begin, hashes->end(), [begin](uint64_t hash) { return hash != *begin; });
    const uint64_t hash = *begin;
    if (end - begin > 1) *kept++ = hash;
    begin = end;
  }
  hashes->erase(kept, hashes->end());
}

// Compares the keys of samples whose hashes are repeated with that of the first such sample.
class Comparison {
 public:
  // Takes over `repeated`, with its memory: as many numbers of samples are stored behind the hashes.
  Comparison(const Index& index, std::vector<uint64_t> repeated) : index_(index), table_(std::move(repeated)) {
    hashes_ = table_.size();
    table_.resize(2 * hashes_, kNoSample);  // fits into what was reserved: each hash was there at least twice
  }

  void Add(uint64_t number, const IndexedSample& sample, uint64_t hash, DuplicateKeys* found) {
    const auto end = table_.begin() + static_cast<ptrdiff_t>(hashes_);
    const auto place = std::lower_bound(table_.begin(), end, hash);
    if (place == end || *place != hash) return;
    uint64_t& first = place[static_cast<ptrdiff_t>(hashes_)];
    if (first == kNoSample) {
      first = number;
      return;
    }
    if (!LookUp(first)) return;
    if (first_.key == sample.key) {
      Count(first, number, sample, found);
      return;
    }
    AddCollision(number, sample, found);
  }

  const absl::Status& status() const { return status_; }

 private:
  // Counts a sample whose hash is also that of another key. Two keys rarely have one hash by chance; many of them only
  // by intent.
  void AddCollision(uint64_t number, const IndexedSample& sample, DuplicateKeys* found) {
    constexpr size_t kMaxCollisions = 1 << 16;
    const auto known = collisions_.find(sample.key);
    if (known == collisions_.end()) {
      if (collisions_.size() < kMaxCollisions) collisions_.emplace(sample.key, number);
    } else if (LookUp(known->second)) {
      Count(known->second, number, sample, found);
    }
  }

  void Count(uint64_t first, uint64_t number, const IndexedSample& sample, DuplicateKeys* found) const {
    if (found->count++ < kMaxExamples)
      found->examples.push_back({.first = PlaceOf(first, first_), .again = PlaceOf(number, sample)});
  }

  bool LookUp(uint64_t sample) {
    if (status_.ok()) status_ = index_.Lookup(sample, &first_);
    return status_.ok();
  }

  const Index& index_;
  std::vector<uint64_t> table_;  // ascending hashes, then the first sample of each
  size_t hashes_ = 0;
  std::unordered_map<std::string, uint64_t> collisions_;
  IndexedSample first_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<DuplicateKeys> FindDuplicateKeys(const Index& index, MemoryBudget& memory, const LongTask& task,
                                                absl::FunctionRef<uint64_t(std::string_view)> hash) {
  DuplicateKeys found;
  found.compared = std::min(index.size(), kMaxSamples);
  Reservation room = memory.TryReserve(found.compared * sizeof(uint64_t));
  while (!room && found.compared > 0) {
    found.compared /= 2;
    room = memory.TryReserve(found.compared * sizeof(uint64_t));
  }
  std::vector<uint64_t> hashes;
  hashes.reserve(found.compared);
  RETURN_IF_ERROR(WalkIndex(index, found.compared, task,
                            [&](uint64_t, const IndexedSample& sample) { hashes.push_back(hash(sample.key)); }));
  KeepRepeated(&hashes);
  if (hashes.empty()) return found;
  Comparison comparison(index, std::move(hashes));
  RETURN_IF_ERROR(WalkIndex(index, found.compared, task, [&](uint64_t number, const IndexedSample& sample) {
    comparison.Add(number, sample, hash(sample.key), &found);
  }));
  RETURN_IF_ERROR(comparison.status());
  return found;
}

}  // namespace millrace
