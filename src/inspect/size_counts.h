#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>

namespace millrace {

/// Counts of sizes in buckets that are at most 1 % wide, so that memory does not depend on the data set. Quantile and
/// mean ask for at least one size.
class SizeCounts {
 public:
  void Add(uint64_t size) {
    ++counts_[Bucket(size)];
    ++total_;
    min_ = std::min(min_, size);
    max_ = std::max(max_, size);
    sum_ += static_cast<double>(size);
  }

  /// Returns the size that the given share of samples does not exceed, within 1 %.
  uint64_t Quantile(double share) const {
    const auto rank = static_cast<uint64_t>(share * static_cast<double>(total_ - 1));
    uint64_t seen = 0;
    for (const auto& [bucket, count] : counts_) {
      seen += count;
      if (seen > rank) return std::clamp(LowerBound(bucket), min_, max_);
    }
    return max_;
  }

  /// Counts samples by power of two: bin i holds sizes below 2^i that are in no bin before.
  std::map<int, uint64_t> Bins() const {
    std::map<int, uint64_t> bins;
    for (const auto& [bucket, count] : counts_) bins[std::bit_width(LowerBound(bucket))] += count;
    return bins;
  }

  uint64_t count() const { return total_; }
  uint64_t min() const { return min_; }
  uint64_t max() const { return max_; }
  double mean() const { return sum_ / static_cast<double>(total_); }

 private:
  static constexpr int kFineBits = 7;  // 128 buckets for each power of two

  static uint64_t Bucket(uint64_t size) {
    const int shift = std::max(0, static_cast<int>(std::bit_width(size)) - kFineBits - 1);
    return static_cast<uint64_t>(shift) << 32 | size >> shift;
  }
  static uint64_t LowerBound(uint64_t bucket) { return (bucket & 0xffffffff) << (bucket >> 32); }

  std::map<uint64_t, uint64_t> counts_;  // in order of size
  uint64_t total_ = 0;
  uint64_t min_ = UINT64_MAX;
  uint64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace millrace
