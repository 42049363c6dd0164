#include "cache/cached_store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <memory>

#include "base/crypto.h"
#include "cache/disk_cache.h"
#include "store/blocking.h"
#include "store/file_store.h"
#include "store/memory_store.h"
#include "store/store_around.h"
#include "store/testing/contract.h"
#include "store/testing/scripted_store.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

std::shared_ptr<DiskCache> OpenCache(const TempFolder& folder, uint64_t size_bytes = 0) {
  auto cache = DiskCache::Open({.folder = folder.path(), .size_bytes = size_bytes, .free_share = 0});
  EXPECT_TRUE(cache.ok()) << cache.status();
  return *std::move(cache);
}

/// Owns the store and the cache of a cached store.
class OwningCachedStore final : public ForwardingStore {
 public:
  OwningCachedStore(std::unique_ptr<ObjectStore> store, std::shared_ptr<DiskCache> cache)
      : OwningCachedStore(store.get(), cache) {
    store_ = std::move(store);
    cache_ = std::move(cache);
  }
  ~OwningCachedStore() override { Close(); }

 private:
  OwningCachedStore(ObjectStore* store, const std::shared_ptr<DiskCache>& cache)
      : ForwardingStore(std::make_unique<CachedStore>(*store, *cache)) {}
  std::unique_ptr<ObjectStore> store_;
  std::shared_ptr<DiskCache> cache_;
};

class CachedMemoryPlace final : public StorePlace {
 public:
  std::unique_ptr<ObjectStore> Open() override {
    return std::make_unique<OwningCachedStore>(std::make_unique<MemoryStore>("test"), OpenCache(cache_));
  }
  std::unique_ptr<ObjectStore> OpenMissing() override { return nullptr; }

 private:
  TempFolder cache_;
};

class CachedFilePlace final : public StorePlace {
 public:
  std::unique_ptr<ObjectStore> Open() override {
    return std::make_unique<OwningCachedStore>(std::make_unique<FileStore>(folder_.path()), OpenCache(cache_));
  }
  std::unique_ptr<ObjectStore> OpenMissing() override {
    return std::make_unique<OwningCachedStore>(std::make_unique<FileStore>(folder_ / "missing"), OpenCache(cache_));
  }
  bool is_folder() const override { return true; }

 private:
  TempFolder folder_;
  TempFolder cache_;
};

INSTANTIATE_TEST_SUITE_P(Cached, StoreContract,
                         ::testing::Values(StoreKind{"memory", [] { return std::make_unique<CachedMemoryPlace>(); }},
                                           StoreKind{"file", [] { return std::make_unique<CachedFilePlace>(); }}),
                         StoreKindName);

class CachedStoreTest : public ::testing::Test {
 protected:
  CachedStoreTest() {
    const auto put = PutBlocking(below_, "k", AsBytes(text_));
    EXPECT_TRUE(put.ok()) << put.status();
    etag_ = put->etag;
  }

  absl::StatusOr<std::string> Get(ObjectStore& store, ByteRange range, bool pinned = true, bool checked = false) {
    std::string into(range.length, '?');
    GetOptions options;
    options.range = range;
    if (pinned) options.if_match = etag_;
    if (checked) options.checksums = {{range, Crc32c(AsBytes(text_).subspan(range.offset, range.length))}};
    ASSIGN_OR_RETURN(const GetResult got, GetBlocking(store, "k", AsWritableBytes(into), std::move(options)));
    EXPECT_EQ(got.object_size, text_.size());
    EXPECT_EQ(got.etag, etag_);
    return into;
  }

  TempFolder folder_;
  const std::string text_ = RandomText(100'000);
  ScriptedStore below_{"cached-store"};
  std::string etag_;
};

TEST_F(CachedStoreTest, TheSecondReadAsksNobody) {
  const auto cache = OpenCache(folder_);
  CachedStore store(below_, *cache);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(*Get(store, {10, 5000}), text_.substr(10, 5000));
    EXPECT_EQ(*Get(store, {5010, 90}, true, true), text_.substr(5010, 90));
    cache->Flush();
  }
  EXPECT_EQ(below_.gets().size(), 2u);
  EXPECT_EQ(store.report().hit_bytes, 2 * 5090u);
  EXPECT_EQ(store.report().miss_bytes, 5090u);
  EXPECT_EQ(store.report().requests, 2u);
}

// Another order reads the same samples in other runs, over gaps that nobody has read.
TEST_F(CachedStoreTest, WhatLiesBetweenWantedSpansNeedNotBeThere) {
  const auto cache = OpenCache(folder_);
  for (const auto wanted : {CachedStore::Wanted::kSpans, CachedStore::Wanted::kAll}) {
    CachedStore store(below_, *cache, wanted);
    EXPECT_TRUE(Get(store, {0, 1000}).ok());
    EXPECT_TRUE(Get(store, {2000, 1000}).ok());
    cache->Flush();
    const size_t before = below_.gets().size();
    std::string into(3000, '?');
    GetOptions options;
    options.range = {0, 3000};
    options.if_match = etag_;
    for (const uint64_t offset : {uint64_t{100}, uint64_t{2500}}) {
      options.checksums.push_back({{offset, 500}, Crc32c(AsBytes(text_).subspan(offset, 500))});
    }
    ASSERT_TRUE(GetBlocking(store, "k", AsWritableBytes(into), options).ok());
    EXPECT_EQ(into.substr(100, 500), text_.substr(100, 500));
    EXPECT_EQ(into.substr(2500, 500), text_.substr(2500, 500));
    EXPECT_EQ(below_.gets().size() - before, wanted == CachedStore::Wanted::kAll ? 1u : 0u);
  }
}

/// Has the same objects, read with the credentials of somebody.
class StoreOf final : public StoreAround {
 public:
  StoreOf(ObjectStore& below, std::string principal) : StoreAround(below) { traits_.principal = std::move(principal); }
};

class CachedTenantTest : public CachedStoreTest {
 protected:
  void ReadAs(const std::string& principal, const std::string& tenant, bool is_there) {
    const auto cache = DiskCache::Open({.folder = folder_.path(), .size_bytes = 0, .tenant = tenant, .free_share = 0});
    ASSERT_TRUE(cache.ok()) << cache.status();
    StoreOf below(below_, principal);
    CachedStore store(below, **cache);
    EXPECT_EQ(*Get(store, {10, 5000}), text_.substr(10, 5000));
    expected_ += is_there ? 0 : 1;
    EXPECT_EQ(below_.gets().size(), expected_) << "'" << principal << "' as '" << tenant << "'";
  }

 private:
  size_t expected_ = 0;
};

// A key that may list objects, and not read them, gets no bytes that others have read.
TEST_F(CachedTenantTest, OneTenantGetsNothingOfAnother) {
  for (const char* principal : {"key ALICE", "key BOB", ""}) ReadAs(principal, "", false);
  for (const char* principal : {"key ALICE", "key BOB", ""}) ReadAs(principal, "", true);
  // The operator says that these two share what they read.
  ReadAs("key ALICE", "team", false);
  ReadAs("key BOB", "team", true);
  ReadAs("key BOB", "ALICE", false);
  ReadAs("key BOB", "key ALICE", false);
}

TEST_F(CachedStoreTest, TheCacheOutlivesItsStore) {
  {
    const auto cache = OpenCache(folder_);
    CachedStore store(below_, *cache);
    EXPECT_TRUE(Get(store, {0, text_.size()}).ok());
  }
  const auto cache = OpenCache(folder_);
  CachedStore store(below_, *cache);
  EXPECT_EQ(*Get(store, {0, text_.size()}), text_);
  EXPECT_EQ(below_.gets().size(), 1u);
}

TEST_F(CachedStoreTest, WithoutAVersionTheStoreIsAsked) {
  const auto cache = OpenCache(folder_);
  CachedStore store(below_, *cache);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Get(store, {0, 100}, /*pinned=*/false).ok());
    cache->Flush();
  }
  EXPECT_EQ(below_.gets().size(), 3u);
  EXPECT_EQ(store.report().hit_bytes, 0u);
}

TEST_F(CachedStoreTest, AReplacedObjectIsNotTakenForTheOld) {
  const auto cache = OpenCache(folder_);
  CachedStore store(below_, *cache);
  EXPECT_TRUE(Get(store, {0, 100}).ok());
  cache->Flush();
  const std::string old_etag = etag_;
  const std::string fresh = RandomText(text_.size(), 2);
  const auto put = PutBlocking(store, "k", AsBytes(fresh));
  ASSERT_TRUE(put.ok());
  ASSERT_TRUE(Get(store, {0, 100}).ok());
  EXPECT_EQ(*Get(store, {0, 100}), text_.substr(0, 100)) << "that version is what was asked for";
  etag_ = put->etag;
  EXPECT_EQ(*Get(store, {0, 100}), fresh.substr(0, 100));
  etag_ = old_etag;
  EXPECT_TRUE(absl::IsFailedPrecondition(Get(store, {200, 100}).status())) << "what is not here is gone";
}

TEST_F(CachedStoreTest, DamageOnDiskIsReadFromTheStore) {
  const auto cache = OpenCache(folder_);
  CachedStore store(below_, *cache);
  EXPECT_TRUE(Get(store, {0, 5000}, true, true).ok());
  cache->Flush();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
    if (!entry.is_regular_file() || entry.path().filename().string().size() != 30) continue;
    std::FILE* const file = std::fopen(entry.path().c_str(), "r+b");
    std::fseek(file, 4096 + 2500, SEEK_SET);
    std::fputc(text_[2500] ^ 1, file);
    std::fclose(file);
  }
  EXPECT_EQ(*Get(store, {0, 5000}, true, true), text_.substr(0, 5000));
  EXPECT_EQ(below_.gets().size(), 2u);
  cache->Flush();
  EXPECT_EQ(*Get(store, {0, 5000}, true, true), text_.substr(0, 5000));
  EXPECT_EQ(below_.gets().size(), 2u) << "it was healed";
}

TEST_F(CachedStoreTest, ErrorsAreThoseOfTheStoreAndAreNotKept) {
  const auto cache = OpenCache(folder_);
  CachedStore store(below_, *cache);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(absl::IsOutOfRange(Get(store, {text_.size() - 5, 10}).status()));
    cache->Flush();
  }
  EXPECT_EQ(below_.gets().size(), 2u);
  GetOptions stopped;
  stopped.range = {0, 4};
  stopped.if_match = etag_;
  std::stop_source stop;
  stop.request_stop();
  stopped.stop = stop.get_token();
  std::string into(4, '?');
  EXPECT_TRUE(absl::IsCancelled(GetBlocking(store, "k", AsWritableBytes(into), stopped).status()));
}

// Without a plan, again and again: what is there is worth more than what comes.
TEST_F(CachedStoreTest, HoldsWhatFitsAndStreamsTheRest) {
  const auto cache = OpenCache(folder_, 64 << 10);
  CachedStore store(below_, *cache);
  uint64_t last = 0;
  for (int round = 0; round < 8; ++round) {
    const uint64_t before = store.report().hit_bytes;
    for (uint64_t at = 0; at < text_.size(); at += 10'000) {
      EXPECT_EQ(*Get(store, {at, 10'000}, true, true), text_.substr(at, 10'000));
      cache->Flush();
    }
    last = store.report().hit_bytes - before;
  }
  EXPECT_GE(last, 20'000u);
  EXPECT_LE(last, uint64_t{64} << 10);
}

// Wanted spans that are there come from the cache, and only the others from the store.
TEST_F(CachedStoreTest, OnlyWhatIsMissingIsReadFromTheStore) {
  const auto cache = OpenCache(folder_);
  CachedStore store(below_, *cache, CachedStore::Wanted::kSpans);
  const auto read = [&](const std::vector<ByteRange>& spans) {
    GetOptions options;
    options.range = {spans.front().offset, spans.back().end() - spans.front().offset};
    options.if_match = etag_;
    PlannedRead plan{.job = 5, .use = 1, .period = 100, .spans = {}};
    for (const ByteRange& span : spans) {
      options.checksums.push_back({span, Crc32c(AsBytes(text_).subspan(span.offset, span.length))});
      plan.spans.push_back({span, 101 + plan.spans.size()});
    }
    std::string into(options.range.length, '?');
    std::promise<absl::StatusOr<GetResult>> done;
    store.GetPlanned("k", AsWritableBytes(into), options, plan,
                     [&](absl::StatusOr<GetResult> result) { done.set_value(std::move(result)); });
    const absl::StatusOr<GetResult> result = done.get_future().get();
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->object_size, text_.size());
    for (const ByteRange& span : spans)
      EXPECT_EQ(into.substr(span.offset - spans.front().offset, span.length), text_.substr(span.offset, span.length));
    cache->Flush();
  };
  read({{1000, 500}, {3000, 500}});
  EXPECT_EQ(store.report().requests, 1u) << "as it was asked for";
  const uint64_t before = store.report().miss_bytes;
  read({{0, 500}, {1000, 500}, {2000, 500}, {2600, 100}, {3000, 500}, {4000, 500}});
  EXPECT_EQ(store.report().requests, 4u) << "of three stretches";
  EXPECT_EQ(store.report().miss_bytes - before, 500u + 700u + 500u);
  EXPECT_EQ(store.report().hit_bytes, 1000u);
  read({{0, 500}, {1000, 500}, {2000, 500}, {2600, 100}, {3000, 500}, {4000, 500}});
  EXPECT_EQ(store.report().requests, 4u);
}

// As often as a store's answers are damaged in one of several parts.
TEST_F(CachedStoreTest, DamageInOnePartIsToldOfThatPart) {
  const auto cache = OpenCache(folder_);
  CachedStore store(below_, *cache, CachedStore::Wanted::kSpans);
  EXPECT_TRUE(Get(store, {1000, 500}, true, true).ok());
  cache->Flush();
  GetOptions options;
  options.range = {0, 3000};
  options.if_match = etag_;
  std::vector<ByteRange> damaged;
  options.damaged = &damaged;
  for (const uint64_t offset : {uint64_t{0}, uint64_t{1000}, uint64_t{2000}, uint64_t{2500}}) {
    const uint32_t wrong = offset == 2500 ? 1 : 0;
    options.checksums.push_back({{offset, 500}, Crc32c(AsBytes(text_).subspan(offset, 500)) ^ wrong});
  }
  std::string into(3000, '?');
  EXPECT_TRUE(absl::IsDataLoss(GetBlocking(store, "k", AsWritableBytes(into), options).status()));
  EXPECT_THAT(damaged, ::testing::ElementsAre(ByteRange{2500, 500}));
  for (const uint64_t offset : {uint64_t{0}, uint64_t{1000}, uint64_t{2000}})
    EXPECT_EQ(into.substr(offset, 500), text_.substr(offset, 500));
}

}  // namespace
}  // namespace millrace
