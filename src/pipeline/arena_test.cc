#include "pipeline/arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/rng.h"

namespace millrace {
namespace {

TEST(Arena, HandsOutItsCapacityAndNoMore) {
  Arena arena(64 * 1024, 1024);
  std::vector<std::byte*> all;
  while (std::byte* data = arena.Allocate(1000)) all.push_back(data);
  EXPECT_EQ(all.size(), 64u);
  EXPECT_EQ(arena.used(), arena.capacity());
  arena.Free(all[10], 1000);
  arena.Free(all[12], 1000);
  EXPECT_EQ(arena.Allocate(2000), nullptr);  // two free units, but not in a row
  arena.Free(all[11], 1000);
  EXPECT_EQ(arena.Allocate(3000), all[10]);
}

TEST(Arena, RunsMayCrossWords) {
  Arena arena(200 * 64, 64);
  EXPECT_NE(arena.Allocate(150 * 64), nullptr);
  EXPECT_NE(arena.Allocate(50 * 64), nullptr);
  EXPECT_EQ(arena.Allocate(1), nullptr);
}

TEST(Arena, NothingOverlapsUnderRandomUse) {
  Arena arena(1 << 20, 256);
  Rng rng(1);
  std::map<std::byte*, std::pair<uint64_t, uint8_t>> live;
  for (int i = 0; i < 20000; ++i) {
    if (rng.Below(2) == 0) {
      const uint64_t size = 1 + rng.Below(20000);
      if (std::byte* data = arena.Allocate(size)) {
        const auto fill = static_cast<uint8_t>(i);
        std::memset(data, fill, size);
        ASSERT_TRUE(live.emplace(data, std::make_pair(size, fill)).second);
      }
    } else if (!live.empty()) {
      auto victim = std::next(live.begin(), static_cast<int64_t>(rng.Below(live.size())));
      const auto [size, fill] = victim->second;
      for (uint64_t b = 0; b < size; ++b) ASSERT_EQ(std::to_integer<uint8_t>(victim->first[b]), fill);
      arena.Free(victim->first, size);
      live.erase(victim);
    }
  }
  for (const auto& [data, what] : live) arena.Free(data, what.first);
  EXPECT_EQ(arena.used(), 0u);
  EXPECT_NE(arena.Allocate(arena.capacity()), nullptr);  // all merged again
}

TEST(Arena, UnitFollowsTheSampleSize) {
  EXPECT_EQ(Arena::UnitFor(115000), 8192u);
  EXPECT_EQ(Arena::UnitFor(500), 64u);
  EXPECT_EQ(Arena::UnitFor(1e9), 16384u);
}

TEST(Arena, ALimitKeepsToTheLowestAddressesAndGivesTheRestBack) {
  Arena arena(64 * 4096, 4096);
  std::vector<std::byte*> all;
  while (std::byte* data = arena.Allocate(4096)) {
    std::memset(data, 1, 4096);
    all.push_back(data);
  }
  EXPECT_EQ(arena.touched(), arena.capacity());
  for (size_t i = 0; i < 64; i += 2) arena.Free(all[i], 4096);
  arena.SetLimit(16 * 4096);
  EXPECT_EQ(arena.Allocate(4096), nullptr);  // 32 are used
  EXPECT_EQ(all[40][0], std::byte{0});       // a new page
  EXPECT_EQ(all[2][0], std::byte{1});
  for (size_t i = 63; i > 16; i -= 2) arena.Free(all[i], 4096);
  EXPECT_EQ(all[41][0], std::byte{0});
  EXPECT_EQ(arena.touched(), arena.limit());
  for (int i = 0; i < 8; ++i) EXPECT_LT(arena.Allocate(4096), all[16]);
  EXPECT_EQ(arena.Allocate(4096), nullptr);
  arena.SetLimit(uint64_t{1} << 40);
  EXPECT_EQ(arena.limit(), arena.capacity());
  EXPECT_EQ(arena.Allocate(48 * 4096), all[16]);
}

TEST(Arena, MayBeEmpty) {
  Arena arena(0, 64);
  EXPECT_EQ(arena.Allocate(1), nullptr);
}

}  // namespace
}  // namespace millrace
