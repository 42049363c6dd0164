#include "cache/memory_cache.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "cache/cached_store.h"
#include "store/blocking.h"
#include "store/memory_store.h"
#include "store/testing/contract.h"
#include "store/testing/forwarding_store.h"
#include "store/testing/scripted_store.h"

/// These tests check what the cache in memory has of its own, beside what it has in common with one on a disk.

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBudget = uint64_t{1} << 30;

/// Owns the store and the cache of a cached store.
class StoreCachedInMemory final : public ForwardingStore {
 public:
  StoreCachedInMemory() : StoreCachedInMemory(std::make_shared<Parts>()) {}
  ~StoreCachedInMemory() override { Close(); }

 private:
  struct Parts {
    MemoryBudget budget{kBudget};
    MemoryStore store{"test"};
    std::unique_ptr<RangeCache> cache = *MemoryCache::Open(budget, 16 << 20);
  };
  explicit StoreCachedInMemory(std::shared_ptr<Parts> parts)
      : ForwardingStore(std::make_unique<CachedStore>(parts->store, *parts->cache)), parts_(std::move(parts)) {}
  std::shared_ptr<Parts> parts_;
};

class CachedInMemoryPlace final : public StorePlace {
 public:
  std::unique_ptr<ObjectStore> Open() override { return std::make_unique<StoreCachedInMemory>(); }
  std::unique_ptr<ObjectStore> OpenMissing() override { return nullptr; }
};

INSTANTIATE_TEST_SUITE_P(CachedInMemory, StoreContract,
                         ::testing::Values(StoreKind{"memory", [] { return std::make_unique<CachedInMemoryPlace>(); }}),
                         StoreKindName);

// Returns the bytes of the files without a name that caches of this process have, once each.
uint64_t TakenMemory() {
  uint64_t bytes = 0;
  std::set<ino_t> seen;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code closed_meanwhile;
    const std::string target = fs::read_symlink(entry.path(), closed_meanwhile);
    struct stat info {};
    if (!target.starts_with("/memfd:millrace-cache") || stat(entry.path().c_str(), &info) != 0) continue;
    if (seen.insert(info.st_ino).second) bytes += static_cast<uint64_t>(info.st_blocks) * kStatBlockBytes;
  }
  return bytes;
}

class MemoryCacheTest : public ::testing::Test {
 protected:
  MemoryCacheTest() {
    Rng rng(5);
    for (char& c : object_) c = static_cast<char>(rng.Next());
  }
  std::unique_ptr<RangeCache> Open(uint64_t size_bytes = 64 << 20) {
    auto cache = MemoryCache::Open(budget_, size_bytes);
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }
  static CacheIdentity Of(int number) { return {"store", "key" + std::to_string(number), "etag"}; }
  void Keep(RangeCache& cache, int number, uint64_t next_use, bool pinned = false) {
    PlannedRead plan{.job = 9, .use = 0, .period = 1000, .spans = {{{0, object_.size()}, next_use}}};
    plan.pinned = pinned;
    cache.Keep(Of(number), object_.size(), 0, AsBytes(object_), &plan);
    cache.Flush();
  }
  bool IsThere(RangeCache& cache, int number) {
    std::string into(object_.size(), '?');
    if (!cache.Read(Of(number), {0, object_.size()}, {}, AsWritableBytes(into))) return false;
    EXPECT_TRUE(into == object_) << number;
    return true;
  }

  MemoryBudget budget_{kBudget};
  std::string object_ = std::string(100'000, '\0');
};

TEST_F(MemoryCacheTest, KeepsRangesForThisProcess) {
  const auto cache = Open();
  const auto read = [&](ByteRange range) {
    std::string into(range.length, '?');
    const bool there = cache->Read(Of(1), range, {}, AsWritableBytes(into)).has_value();
    return there ? into : "";
  };
  EXPECT_EQ(read({0, 10}), "");
  cache->Keep(Of(1), object_.size(), 1000, AsBytes(object_).subspan(1000, 5000));
  cache->Keep(Of(1), object_.size(), 6000, AsBytes(object_).subspan(6000, 1));
  cache->Keep(Of(1), object_.size(), 500, AsBytes(object_).subspan(500, 2000));
  cache->Keep(Of(2), object_.size(), 0, AsBytes(object_));
  cache->Flush();
  EXPECT_EQ(read({500, 5501}), object_.substr(500, 5501)) << "of several records";
  EXPECT_EQ(read({1100, 10}), object_.substr(1100, 10)) << "a part";
  EXPECT_EQ(read({499, 10}), "");
  EXPECT_EQ(read({5990, 20}), "");
  EXPECT_TRUE(IsThere(*cache, 2));
  EXPECT_FALSE(Open()->Has(Of(1))) << "another cache is another one";
}

TEST_F(MemoryCacheTest, HasItsPartOfTheBudget) {
  {
    const auto cache = Open(100 << 20);
    EXPECT_EQ(cache->memory_bytes(), MemoryCache::MemoryFor(100 << 20));
    EXPECT_EQ(budget_.used(), (uint64_t{100 + 64}) << 20) << "with what may wait to be written";
    const auto more = MemoryCache::Open(budget_, kBudget - (100 << 20));
    EXPECT_TRUE(absl::IsResourceExhausted(more.status())) << more.status();
    EXPECT_TRUE(MemoryCache::Open(budget_, 1 << 20).ok());
  }
  EXPECT_EQ(budget_.used(), 0u);
  EXPECT_TRUE(absl::IsInvalidArgument(MemoryCache::Open(budget_, 0).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(MemoryCache::Open(budget_, UINT64_MAX).status()));
}

// A range that is longer than all that may wait takes the rest of the budget, for as long as it waits, or is not kept.
TEST_F(MemoryCacheTest, ALongRangeHasItsPartOfTheBudgetToo) {
  constexpr uint64_t kSize = 64 << 10;
  constexpr uint64_t kLong = 1 << 20;
  const std::string object(kLong, 'x');
  for (const uint64_t more : {uint64_t{0}, kLong - kSize - 1, kLong - kSize}) {
    MemoryBudget budget(2 * kSize + more);
    const auto cache = MemoryCache::Open(budget, kSize);
    ASSERT_TRUE(cache.ok()) << cache.status();
    (*cache)->Keep(Of(1), object.size(), 0, AsBytes(object));
    (*cache)->Flush();
    EXPECT_EQ((*cache)->counts().dropped_bytes, more < kLong - kSize ? kLong : 0) << more;
    EXPECT_EQ((*cache)->counts().waiting_bytes, 0u) << more;
    EXPECT_EQ(budget.used(), 2 * kSize) << more;
  }
}

// The ranges needed first stay, in no more memory than the bound, however often ranges come and go; and none is left.
TEST_F(MemoryCacheTest, StaysWithinItsBoundAndGivesAllBack) {
  constexpr uint64_t kBound = 1 << 20;
  const uint64_t before = TakenMemory();
  {
    const auto cache = Open(kBound);
    EXPECT_EQ(cache->capacity_bytes(), kBound);
    const auto entry = cache->Join("store", 9, 1000);
    ASSERT_NE(entry, nullptr);
    for (int round = 0; round < 3; ++round) {
      entry->SetClock(static_cast<uint64_t>(round) * 300);  // then what was kept before is late
      for (int i = 0; i < 40; ++i) {
        Keep(*cache, 100 * round + i, static_cast<uint64_t>(300 * round + 200 - i));
        EXPECT_LE(TakenMemory(), before + kBound + 8192) << "with the table of jobs";
        EXPECT_LE(*cache->disk_bytes(), kBound);
      }
    }
    int kept = 0;
    for (int i = 39; i >= 0; --i) {
      const bool there = IsThere(*cache, 200 + i);
      kept += there ? 1 : 0;
      EXPECT_EQ(there, i > 39 - kept) << "the first ones to be used stay";
    }
    EXPECT_GE(kept, 8);
    EXPECT_GE(TakenMemory(), before + 8 * object_.size()) << "it can be counted";
  }
  EXPECT_EQ(TakenMemory(), before);
}

TEST_F(MemoryCacheTest, WhatIsPinnedStays) {
  const auto cache = Open(1 << 20);
  const auto entry = cache->Join("store", 9, 1000);
  for (int i = 0; i < 9; ++i) Keep(*cache, i, 10);
  for (int i = 100; i < 104; ++i) Keep(*cache, i, 1900, /*pinned=*/true);
  for (int i = 200; i < 240; ++i) Keep(*cache, i, 240 - static_cast<uint64_t>(i));
  for (int i = 100; i < 104; ++i) EXPECT_TRUE(IsThere(*cache, i));
  EXPECT_TRUE(IsThere(*cache, 239));
}

// Flips a bit of the first file in memory.
TEST_F(MemoryCacheTest, DamageIsFoundAndTakesNoRoom) {
  const UniqueFd memory(memfd_create("millrace-test", MFD_CLOEXEC));
  const auto file = CacheFile::InMemory(memory.get(), 0, Of(1), object_.size());
  const auto other = CacheFile::InMemory(memory.get(), 102'400, Of(2), object_.size());
  uint64_t taken = 0;
  const auto take = [&](uint64_t bytes) {
    taken += bytes;
    return absl::OkStatus();
  };
  const auto give_back = [&](uint64_t bytes) { taken -= bytes; };
  for (CacheFile* one : {file.get(), other.get()}) {
    ASSERT_TRUE(one->Write(0, AsBytes(object_).first(40'960), {}, {take, give_back}).ok());
    ASSERT_TRUE(one->Write(40'960, AsBytes(object_).subspan(40'960, 40'960), {}, {take, give_back}).ok());
  }
  const char wrong = static_cast<char>(object_[50'000] ^ 1);
  ASSERT_EQ(pwrite(memory.get(), &wrong, 1, 50'000), 1) << "of the first one: it begins where the memory does";
  std::string into(40'960, '?');
  uint64_t freed = 0;
  EXPECT_TRUE(absl::IsDataLoss(file->Read({40'960, 40'960}, {}, AsWritableBytes(into), &freed)));
  EXPECT_EQ(freed, 40'960u);
  EXPECT_TRUE(file->Read({0, 40'960}, {}, AsWritableBytes(into)).ok());
  EXPECT_TRUE(other->Read({40'960, 40'960}, {}, AsWritableBytes(into)).ok());
  EXPECT_EQ(*file->Remove({0, 40'960}), 40'960u);
  EXPECT_GT(file->UnlinkIfEmpty(), 0u);
  EXPECT_EQ(file->UnlinkIfEmpty(), 0u);
  EXPECT_TRUE(absl::IsNotFound(file->Write(0, AsBytes(object_).first(10), {}, {take, give_back})));
}

// Objects take of what the system can address, whatever is kept of them.
TEST_F(MemoryCacheTest, AnObjectWithoutAPlaceIsNotKept) {
  const auto cache = Open();
  const auto keeps = [&](int number, uint64_t object_bytes) {
    const uint64_t before = cache->counts().written_bytes;
    cache->Keep(Of(number), object_bytes, 0, AsBytes(object_));
    cache->Flush();
    return cache->counts().written_bytes == before + object_.size();
  };
  EXPECT_FALSE(keeps(1, UINT64_MAX));
  EXPECT_TRUE(keeps(2, (uint64_t{1} << 62) - 2 * 102'400));
  EXPECT_TRUE(keeps(3, object_.size() + 1)) << "the last but one";
  EXPECT_FALSE(keeps(4, 102'401));
  EXPECT_TRUE(keeps(5, object_.size() + 1)) << "the last one";
  EXPECT_FALSE(keeps(6, object_.size() + 1));
  for (const int number : {2, 3, 5}) EXPECT_TRUE(IsThere(*cache, number)) << "they do not overlap";
}

// Readers that share it, while ranges come and go: each byte is right, and each reader gets its bytes.
TEST_F(MemoryCacheTest, ServesManyReadersAtOnce) {
  ScriptedStore below("in-memory");
  const auto put = PutBlocking(below, "k", AsBytes(object_));
  ASSERT_TRUE(put.ok());
  const auto cache = Open(64 << 10);
  {
    CachedStore one(below, *cache);
    CachedStore two(below, *cache);
    std::atomic<int> wrong = 0;
    std::vector<std::thread> readers;
    for (uint64_t reader = 0; reader < 4; ++reader) {
      readers.emplace_back([&, reader] {
        Rng rng(reader);
        for (int i = 0; i < 200; ++i) {
          GetOptions options;
          options.range = {rng.Below(9) * 10'000, 10'000};
          options.if_match = put->etag;
          std::string into(options.range.length, '?');
          const bool ok = GetBlocking(reader % 2 == 0 ? one : two, "k", AsWritableBytes(into), options).ok();
          if (!ok || into != object_.substr(options.range.offset, options.range.length)) ++wrong;
        }
      });
    }
    for (std::thread& reader : readers) reader.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_GT(one.report().hit_bytes + two.report().hit_bytes, 0u);
    EXPECT_EQ(one.report().hit_bytes + one.report().miss_bytes + two.report().hit_bytes + two.report().miss_bytes,
              uint64_t{4 * 200 * 10'000});
  }
}

}  // namespace
}  // namespace millrace
