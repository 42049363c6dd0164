#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "cache/cache_tools.h"
#include "cache/disk_cache.h"
#include "cache/testing/slab_fixture.h"

/// These tests keep many small objects in slabs. Under a sanitizer they would take minutes.

namespace millrace {
namespace {

namespace fs = std::filesystem;

// Objects come and go in a cache that has room for half of them; each process learns what the other one does.
TEST_F(SlabTest, PlacesAreUsedAgain) {
  constexpr uint64_t kObjects = 1000;
  constexpr uint64_t kBound = 4 << 20;
  for (const auto& [equal, slabs] : {std::pair(true, 1), std::pair(false, 1), std::pair(false, 8)}) {
    SCOPED_TRACE(slabs);
    if (slabs > 1) Open(uint64_t{64 << 20} * slabs);  // the first user chooses how many
    const auto one = Open(kBound);
    const auto two = Open(kBound);
    const auto entry = one->Join("https://store s3://bucket/", 7, kObjects);
    Rng rng(3);
    std::vector<uint64_t> lengths(kObjects);
    for (uint64_t& length : lengths) length = equal ? 8000 : 4000 + rng.Below(8000);
    uint64_t use = 0;
    for (int epoch = 0; epoch < 6; ++epoch) {
      for (uint64_t i = 0; i < kObjects; ++i, ++use) {
        DiskCache& cache = i % 2 == 0 ? *one : *two;
        const std::string object = ObjectOf(i, lengths[i]);
        const PlannedRead plan{.job = 7,
                               .use = use,
                               .period = kObjects,
                               .spans = {{{0, object.size()}, use + 1 + rng.Below(2 * kObjects)}}};
        entry->SetClock(use);
        const std::string got = Read(cache, Of(i), {0, object.size()});
        EXPECT_TRUE(got.empty() || got == object) << i;
        if (got.empty()) {
          Keep(cache, i, object, &plan);
          cache.Flush();
        } else {
          cache.Touch(Of(i), {0, object.size()}, &plan);
        }
      }
    }
    EXPECT_LE(DiskBytes(), kBound);
    const absl::StatusOr<CacheSummary> summary = SummarizeCache(folder_.path(), {});
    ASSERT_TRUE(summary.ok()) << summary.status();
    const double share = static_cast<double>(DiskBytes()) / static_cast<double>(summary->cached_bytes);
    // The heads, records and holes of each slab count, too. Where a slab has few objects, few places suit.
    const double of_slabs = 16384.0 * slabs + 96.0 * static_cast<double>(summary->objects);
    const double beside = of_slabs / static_cast<double>(summary->cached_bytes);
    const double of_blocks = equal ? 0.03 : slabs == 1 ? 0.05 : 0.08;
    EXPECT_LE(share, 1 + of_blocks + beside) << summary->cached_bytes;
    EXPECT_GE(static_cast<double>(summary->cached_bytes), 0.9 * kBound - 16384.0 * slabs);
    EXPECT_EQ(Files().size(), static_cast<size_t>(slabs));
    fs::remove_all(folder_ / "millrace-cache-1");
  }
}

// The bytes that a cache can bring of these reads at most: what is used latest goes.
uint64_t OptimumOf(const std::vector<uint64_t>& reads, const std::vector<uint64_t>& next,
                   const std::vector<uint64_t>& lengths, uint64_t bound) {
  std::set<std::pair<uint64_t, uint64_t>> cached;  // next use and object
  uint64_t hits = 0;
  uint64_t bytes = 0;
  for (uint64_t use = 0; use < reads.size(); ++use) {
    const uint64_t length = lengths[reads[use]];
    if (cached.erase({use, reads[use]}) > 0) {
      hits += length;
      bytes -= length;
    }
    cached.emplace(next[use], reads[use]);
    bytes += length;
    while (bytes > bound) {
      bytes -= lengths[cached.rbegin()->second];
      cached.erase(std::prev(cached.end()));
    }
  }
  return hits;
}

// Objects of 4 KB and of spread sizes, in five shuffled epochs.
TEST_F(SlabTest, HitsAreNearTheOptimum) {
  constexpr uint64_t kObjects = 2400;
  constexpr uint64_t kEpochs = 5;
  Rng rng(5);
  std::vector<uint64_t> lengths(kObjects);
  for (uint64_t& length : lengths) length = 3000 + rng.Below(2200);
  std::vector<uint64_t> reads;
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    std::vector<uint64_t> order(kObjects);
    std::iota(order.begin(), order.end(), 0);
    for (uint64_t i = kObjects; i > 1; --i) std::swap(order[i - 1], order[rng.Below(i)]);
    reads.insert(reads.end(), order.begin(), order.end());
  }
  std::vector<uint64_t> next(reads.size());
  std::vector<uint64_t> following(kObjects, reads.size() + kObjects);
  for (uint64_t use = reads.size(); use-- > 0;) next[use] = std::exchange(following[reads[use]], use);
  const uint64_t all = std::accumulate(lengths.begin(), lengths.end(), uint64_t{0});
  for (const uint64_t percent : {25, 50, 75}) {
    const uint64_t bound = all * percent / 100;
    const auto cache = Open(bound);
    const auto entry = cache->Join("https://store s3://bucket/", 7, kObjects);
    uint64_t hits = 0;
    for (uint64_t use = 0; use < reads.size(); ++use) {
      const uint64_t i = reads[use];
      const std::string object = ObjectOf(i, lengths[i]);
      const PlannedRead plan{.job = 7, .use = use, .period = kObjects, .spans = {{{0, object.size()}, next[use]}}};
      entry->SetClock(use);
      if (!Read(*cache, Of(i), {0, object.size()}).empty()) {
        hits += object.size();
        cache->Touch(Of(i), {0, object.size()}, &plan);
        continue;
      }
      Keep(*cache, i, object, &plan);
      cache->Flush();
    }
    const uint64_t best = OptimumOf(reads, next, lengths, bound);
    EXPECT_GE(static_cast<double>(hits), 0.95 * static_cast<double>(best)) << percent;
    fmt::print(
        "{} %: {:.4f} of the optimum, disk {:.4f}\n", percent, static_cast<double>(hits) / static_cast<double>(best),
        static_cast<double>(DiskBytes()) / static_cast<double>(SummarizeCache(folder_.path(), {})->cached_bytes));
    fs::remove_all(folder_ / "millrace-cache-1");
  }
}

}  // namespace
}  // namespace millrace
