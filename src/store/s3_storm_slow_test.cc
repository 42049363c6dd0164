// A hundred thousand reads go to a store where much goes wrong, while objects are overwritten. Each read gives the
// right bytes or an error, and no damage goes unnoticed.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "base/crypto.h"
#include "base/hex.h"
#include "base/testing/test_all.h"
#include "store/blocking.h"
#include "store/testing/devstore_bucket.h"

namespace millrace {
namespace {

constexpr uint64_t kSeed = 5;
constexpr uint64_t kDomain = 0x73746f726d;  // "storm"
constexpr uint64_t kObjects = 48;
constexpr uint64_t kSample = 4096;
constexpr uint64_t kSamples = 16;  // of an object
constexpr uint64_t kObjectSize = kSample * kSamples;

std::string Key(uint64_t object) {
  return fmt::format("o/{:02}", object);
}

/// Holds one version of an object, and what an index knows of it.
struct Version {
  explicit Version(uint64_t seed) : bytes(SeededBytes(kObjectSize, seed)), etag(HexEncode(Md5(AsBytes(bytes)))) {
    for (uint64_t i = 0; i < kSamples; ++i) {
      crc32cs[i] = Crc32c(AsBytes(std::string_view(bytes).substr(i * kSample, kSample)));
    }
  }
  std::string bytes;
  std::string etag;
  std::array<uint32_t, kSamples> crc32cs{};
};

/// Provides the objects of the bucket, and all that they ever were. Thread-safe.
class Objects {
 public:
  explicit Objects(ObjectStore& store) {
    for (uint64_t i = 0; i < kObjects; ++i) Overwrite(store, i);
  }

  std::shared_ptr<const Version> Newest(uint64_t object) {
    std::lock_guard lock(mutex_);
    return newest_[object];
  }
  /// Returns null if the object was never this.
  std::shared_ptr<const Version> Find(const std::string& etag) {
    std::lock_guard lock(mutex_);
    const auto at = by_etag_.find(etag);
    return at == by_etag_.end() ? nullptr : at->second;
  }
  void Overwrite(ObjectStore& store, uint64_t object) {
    std::lock_guard one_writer(writing_[object]);
    const auto version = std::make_shared<const Version>(HashKey(kDomain, {kSeed, object, versions_++}));
    {
      std::lock_guard lock(mutex_);
      by_etag_[version->etag] = version;
    }
    const auto put = PutBlocking(store, Key(object), AsBytes(version->bytes));
    ASSERT_TRUE(put.ok()) << put.status();
    std::lock_guard lock(mutex_);
    newest_[object] = version;
  }
  uint64_t overwritten() const { return versions_ - kObjects; }

 private:
  std::atomic<uint64_t> versions_{0};
  std::mutex mutex_;
  std::array<std::mutex, kObjects> writing_;
  std::array<std::shared_ptr<const Version>, kObjects> newest_;
  std::map<std::string, std::shared_ptr<const Version>> by_etag_;
};

struct Outcomes {
  std::atomic<uint64_t> right{0};
  std::atomic<uint64_t> wrong{0};
  std::atomic<uint64_t> changed{0};      // FailedPrecondition
  std::atomic<uint64_t> data_loss{0};    // damaged each time it was fetched
  std::atomic<uint64_t> unavailable{0};  // given up
  std::atomic<uint64_t> other{0};

  void Count(const absl::Status& error) {
    switch (error.code()) {
      case absl::StatusCode::kFailedPrecondition:
        ++changed;
        return;
      case absl::StatusCode::kDataLoss:
        ++data_loss;
        return;
      case absl::StatusCode::kUnavailable:
        ++unavailable;
        return;
      default:
        ++other;
        ADD_FAILURE() << error;
    }
  }
};

/// Reads some samples of the version that the index has. False when there is another by now.
bool ReadIndexed(ObjectStore& store, uint64_t object, const Version& version, Rng& rng, Outcomes& outcomes) {
  const uint64_t first = rng.Below(kSamples);
  const uint64_t count = 1 + rng.Below(std::min<uint64_t>(kSamples - first, 3));
  GetOptions options{.range = {first * kSample, count * kSample}, .if_match = version.etag};
  for (uint64_t i = first; i < first + count; ++i) {
    options.checksums.push_back({{i * kSample, kSample}, version.crc32cs[i]});
  }
  std::string buffer(options.range.length, '?');
  const ByteRange range = options.range;
  const auto result = GetBlocking(store, Key(object), WritableBytes(buffer), std::move(options));
  if (!result.ok()) {
    outcomes.Count(result.status());
    return !absl::IsFailedPrecondition(result.status());
  }
  ++(buffer == std::string_view(version.bytes).substr(range.offset, range.length) ? outcomes.right : outcomes.wrong);
  return true;
}

/// Reads the whole of whatever version there is, which only the store's checksum vouches for.
void ReadWhole(ObjectStore& store, uint64_t object, Objects& objects, Outcomes& outcomes) {
  std::string buffer(kObjectSize, '?');
  const auto result =
      GetBlocking(store, Key(object), WritableBytes(buffer), {.range = {0, kObjectSize}, .whole = true});
  if (!result.ok()) return outcomes.Count(result.status());
  const auto version = objects.Find(result->etag);
  ++(version != nullptr && version->bytes == buffer ? outcomes.right : outcomes.wrong);
}

void RunThreads(int threads, const std::function<void(uint64_t thread)>& work) {
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) running.emplace_back([&work, i] { work(static_cast<uint64_t>(i)); });
  for (std::thread& thread : running) thread.join();
}

TEST(S3Storm, NoWrongByteInManyReads) {
  constexpr int kThreads = 64;
  const uint64_t kReads = TestAll() ? 100'000 : 25'000;
  const std::vector<std::string> faults = {
      "GET bkt/o* flip=0 p=0.01",      "GET bkt/o* flip=1000 p=0.02",    "GET bkt/o* flip=4095 p=0.01",
      "GET bkt/o* cut=2000 p=0.02",    "GET bkt/o* reset=1 p=0.01",      "GET bkt/o* reset=head p=0.01",
      "GET bkt/o* cut=head:40 p=0.01", "GET bkt/o* chunked=1500 p=0.01", "GET bkt/o* wrong-range p=0.02",
      "GET bkt/o* short-range p=0.01", "GET bkt/o* whole p=0.01",        "GET bkt/o* close p=0.01",
      "GET bkt/o* status=503 p=0.01",  "GET bkt/o* status=500 p=0.01",   "GET bkt/o* error=400:RequestTimeout p=0.01",
  };
  DevstoreBucket bucket({.faults = faults, .seed = kSeed});
  const auto client = bucket.NewClient(true, /*io_threads=*/2);
  Objects objects(client->store);
  Outcomes outcomes;
  RunThreads(kThreads, [&](uint64_t thread) {
    Rng rng(HashKey(kDomain, {kSeed, thread}));
    std::array<std::shared_ptr<const Version>, kObjects> index;
    for (uint64_t i = 0; i < kObjects; ++i) index[i] = objects.Newest(i);
    for (uint64_t n = 0; n < (kReads + kThreads - 1) / kThreads; ++n) {
      const uint64_t object = rng.Below(kObjects);
      if (rng.Below(1500) == 0) objects.Overwrite(client->store, object);
      if (rng.Below(20) == 0) {
        ReadWhole(client->store, object, objects, outcomes);
      } else if (!ReadIndexed(client->store, object, *index[object], rng, outcomes)) {
        index[object] = objects.Newest(object);  // as the message says: build the index again
      }
    }
  });
  const std::vector<uint64_t> fired = bucket.server().fault_firings();
  for (size_t i = 0; i < faults.size(); ++i) fmt::print("{:45} {}\n", faults[i], fired[i]);
  const RequestCounters& counters = client->s3.counters();
  fmt::print("right {}, changed {}, data loss {}, unavailable {}; overwritten {}; GETs {}, retries {}, hedges {}\n",
             outcomes.right.load(), outcomes.changed.load(), outcomes.data_loss.load(), outcomes.unavailable.load(),
             objects.overwritten(), counters.get.load(), counters.retries.load(), counters.hedges.load());
  EXPECT_EQ(outcomes.wrong, 0u);
  EXPECT_EQ(outcomes.other, 0u);
  EXPECT_GE(outcomes.right + outcomes.changed + outcomes.data_loss + outcomes.unavailable, kReads);
  EXPECT_GT(outcomes.right, kReads * 9 / 10);
  EXPECT_LT(outcomes.data_loss + outcomes.unavailable, kReads / 1000);  // a store that heals is no error
  EXPECT_GT(outcomes.changed, 0u);
  for (const uint64_t count : fired) EXPECT_GT(count, kReads / 200);
}

/// These clients are too young to send second requests, of which one would swallow a flip: so the counts are exact.
TEST(S3Storm, EveryFlipIsDetected) {
  constexpr int kThreads = 16;
  constexpr int kClients = 15;    // of a thread, one after the other
  constexpr int kReadsEach = 45;  // with retries, fewer than 100 first bytes
  DevstoreBucket bucket(
      {.faults = {"GET bkt/o* flip=0 p=0.05", "GET bkt/o* flip=2000 p=0.05", "GET bkt/o* flip=4095 p=0.05"},
       .seed = kSeed});
  Objects objects(bucket.NewClient()->store);
  Outcomes outcomes;
  std::atomic<uint64_t> retries{0};
  std::atomic<uint64_t> hedges{0};
  RunThreads(kThreads, [&](uint64_t thread) {
    Rng rng(HashKey(kDomain, {kSeed + 1, thread}));
    for (int i = 0; i < kClients; ++i) {
      const auto client = bucket.NewClient();
      for (int n = 0; n < kReadsEach; ++n) {
        const uint64_t object = rng.Below(kObjects);
        if (n % 5 == 0) {
          ReadWhole(client->store, object, objects, outcomes);
        } else {
          ReadIndexed(client->store, object, *objects.Newest(object), rng, outcomes);
        }
      }
      retries += client->s3.counters().retries;
      hedges += client->s3.counters().hedges;
    }
  });
  const std::vector<uint64_t> fired = bucket.server().fault_firings();
  const uint64_t flips = std::accumulate(fired.begin(), fired.end(), uint64_t{0});
  fmt::print("{} flips injected, {} detected; {} reads right, {} given up as damaged\n", flips,
             retries + outcomes.data_loss, outcomes.right.load(), outcomes.data_loss.load());
  EXPECT_EQ(outcomes.wrong, 0u);
  EXPECT_EQ(hedges, 0u);
  EXPECT_EQ(retries + outcomes.data_loss, flips);  // the last fetch of a read that is given up is not followed by one
  EXPECT_EQ(outcomes.right + outcomes.data_loss, uint64_t{kThreads * kClients * kReadsEach});
  EXPECT_GT(flips, 1000u);
}

}  // namespace
}  // namespace millrace
