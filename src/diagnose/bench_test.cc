#include "diagnose/bench.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "diagnose/bench_run.h"
#include "diagnose/read_rates.h"
#include "diagnose/synthetic_shards.h"

namespace millrace {
namespace {

/// Provides a folder that goes with the test.
class BenchFolder : public ::testing::Test {
 protected:
  BenchFolder() : path_(testing::TempDir() + "bench-" + std::to_string(getpid())) {
    std::filesystem::remove_all(path_);
  }
  ~BenchFolder() override { std::filesystem::remove_all(path_); }

  std::string Make(const std::string& name, const SyntheticShards& settings) {
    Runtime runtime;
    Stores stores(runtime);
    std::string uri = path_ + "/" + name;
    auto place = stores.Open(uri);
    EXPECT_TRUE(place.ok()) << place.status();
    const auto made = WriteSyntheticShards(runtime, *place, settings, {}, {});
    EXPECT_TRUE(made.ok()) << made.status();
    report_ = made.value_or(SyntheticReport{});
    return uri;
  }

  BenchSettings Short() const {
    BenchSettings settings;
    settings.loader.batch = 8;
    settings.loader.image.height = settings.loader.image.width = 32;
    settings.loader.memory_bytes = uint64_t{32} << 20;
    settings.warm_up_seconds = 0.01;
    settings.window_seconds = 0.05;
    settings.windows = 3;
    settings.cache_folder = path_ + "/cache";
    return settings;
  }

  const std::string path_;
  SyntheticReport report_;
};

constexpr SyntheticShards kFew = {.samples = 70, .image_bytes = 5000, .shard_bytes = 100'000};

std::string FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(BenchFolder, SyntheticShardsAreTheSameEachTime) {
  const std::string one = Make("one", kFew);
  const uint64_t shards = report_.shards;
  EXPECT_GT(shards, 2U);
  const std::string two = Make("two", kFew);
  for (uint64_t i = 0; i < shards; ++i) {
    const std::string name = "/shard-00000" + std::to_string(i) + ".tar";
    EXPECT_FALSE(FileBytes(one + name).empty());
    EXPECT_EQ(FileBytes(one + name), FileBytes(two + name));
  }
}

TEST_F(BenchFolder, ImagesMayBeObjectsOfTheirOwn) {
  SyntheticShards settings = kFew;
  settings.shard_bytes = 0;
  const auto point = MeasureRate(Make("objects", settings), Short());
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ(report_.shards, kFew.samples);
  EXPECT_EQ(point->samples, kFew.samples);
  EXPECT_EQ(point->objects, kFew.samples);
  EXPECT_EQ(point->sample_bytes, report_.bytes);
}

TEST(BenchPointTest, RepeatsOfSeveralMeasurementsAddUp) {
  BenchPoint all;
  AddRepeats({.threads = 2, .samples = 70, .windows = {{.seconds = 1, .samples = 10}}, .peak_rss_bytes = 5}, &all);
  AddRepeats({.threads = 2, .samples = 70, .windows = {{.seconds = 1, .samples = 30}}, .peak_rss_bytes = 9}, &all);
  AddRepeats({.threads = 2, .samples = 70, .windows = {{.seconds = 1, .samples = 20}}, .peak_rss_bytes = 7}, &all);
  EXPECT_EQ(all.threads, 2);
  EXPECT_EQ(all.samples, 70U);
  EXPECT_EQ(all.windows.size(), 3U);
  EXPECT_EQ(all.peak_rss_bytes, 9U);
  const Spread rate = Summarize(all).samples_per_second;
  EXPECT_EQ(rate.median, 20);
  EXPECT_EQ(rate.least, 10);
  EXPECT_EQ(rate.most, 30);
}

TEST_F(BenchFolder, RateCountsWhatItTook) {
  const auto point = MeasureRate(Make("data", kFew), Short());
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ(point->samples, kFew.samples);
  EXPECT_EQ(point->objects, report_.shards);
  ASSERT_EQ(point->windows.size(), 3U);
  for (const BenchWindow& window : point->windows) {
    EXPECT_GE(window.seconds, 0.05);
    EXPECT_GT(window.batches, 0U);
    EXPECT_EQ(window.samples, 8 * window.batches);
    EXPECT_EQ(window.batch_ms.size(), window.batches);
    EXPECT_GT(window.cpu_seconds, 0);
  }
  const BenchSummary sum = Summarize(*point);
  EXPECT_LE(sum.samples_per_second.least, sum.samples_per_second.median);
  EXPECT_LE(sum.samples_per_second.median, sum.samples_per_second.most);
  EXPECT_LE(sum.batch_p50_ms.median, sum.batch_p99_ms.median);
  EXPECT_GT(point->peak_rss_bytes, 0U);
}

TEST_F(BenchFolder, FirstBatch) {
  const auto point = MeasureFirstBatch(Make("data", kFew), Short());
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ(point->samples, kFew.samples);
  EXPECT_GT(point->open_seconds.median, 0);
  EXPECT_LE(point->open_seconds.median, point->seconds.median);
  EXPECT_GT(point->requests.get, 0U);
}

TEST_F(BenchFolder, EpochsWithAndWithoutCache) {
  const std::string uri = Make("data", kFew);
  const auto gets = [&](const std::string& disk) {
    const auto epochs = MeasureEpochs(uri, Short(), 3, disk);
    EXPECT_TRUE(epochs.ok()) << epochs.status();
    uint64_t sum = 0;
    for (const EpochCost& epoch : epochs.value_or(std::vector<EpochCost>{})) {
      EXPECT_EQ(epoch.samples, kFew.samples);
      sum += epoch.requests.get;
    }
    return sum;
  };
  EXPECT_GT(gets(""), 0U);
  // The first run, whose epochs may all be in flight before anything is kept, leaves the data on the disk.
  EXPECT_GT(gets(path_ + "/disk"), 0U);
  EXPECT_EQ(gets(path_ + "/disk"), 0U);
}

TEST_F(BenchFolder, WhatALoaderFetchesBeforeItsFirstBatchIsTakenIsOfItsFirstEpoch) {
  BenchSettings settings = Short();
  const auto set = BenchSet::Open(Make("data", kFew), settings);
  ASSERT_TRUE(set.ok()) << set.status();
  EpochMeter meter(**set);
  const uint64_t opening = (*set)->requests().get;
  settings.loader.epochs = 1;
  const auto loader = (*set)->MakeLoader(settings.loader);
  ASSERT_TRUE(loader.ok()) << loader.status();
  while (!(*loader)->WaitReady(kBenchSlice)) {
  }
  const uint64_t ahead = (*set)->requests().get - opening;
  EXPECT_GT(ahead, 0U);
  const auto epoch = meter.Take(**loader, {}, {});
  ASSERT_TRUE(epoch.ok()) << epoch.status();
  EXPECT_EQ(epoch->samples, kFew.samples);
  EXPECT_GE(epoch->requests.get, ahead);
  EXPECT_EQ(epoch->requests.get, (*set)->requests().get - opening);
}

TEST_F(BenchFolder, StopsAndErrors) {
  const std::string uri = Make("data", kFew);
  BenchSettings settings = Short();
  std::stop_source stop;
  stop.request_stop();
  settings.stop = stop.get_token();
  EXPECT_TRUE(absl::IsCancelled(MeasureRate(uri, settings).status()));
  EXPECT_TRUE(absl::IsNotFound(MeasureRate(path_ + "/nowhere", Short()).status()));
  Runtime runtime;
  Stores stores(runtime);
  EXPECT_TRUE(absl::IsCancelled(
      WriteSyntheticShards(runtime, *stores.Open(path_ + "/x"), kFew, {}, stop.get_token()).status()));
}

TEST_F(BenchFolder, ReadsAreCounted) {
  const std::string uri = Make("data", kFew);
  Runtime runtime;
  Stores stores(runtime);
  ObjectStore& store = *stores.Open(uri)->store;
  const std::vector<ReadPlace> places = {{"shard-000000.tar", {0, 1000}}, {"shard-000001.tar", {512, 100}}};
  const auto rate = MeasureReads(store, places, 4, 60, 10, {});
  ASSERT_TRUE(rate.ok()) << rate.status();
  EXPECT_EQ(rate->reads, 10U);
  EXPECT_EQ(rate->bytes, 5500U);
  EXPECT_GT(rate->bytes_per_second(), 0);
  EXPECT_TRUE(absl::IsNotFound(MeasureReads(store, {{"nothing", {0, 1}}}, 4, 60, 10, {}).status()));
  const auto listed = MeasureListing(store, "", {});
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_TRUE(listed->complete);
  EXPECT_EQ(listed->objects, report_.shards);
  EXPECT_GT(*MeasureFirstByte(store, places, {}), 0);
}

TEST(BenchSummaries, EpochIsExtrapolated) {
  BenchPoint point;
  point.samples = 1000;
  BenchWindow window;
  window.seconds = 2;
  window.samples = 400;
  window.batches = 4;
  window.requests.get = 10;
  window.requests.bytes_read = 4000;
  window.cpu_seconds = 1;
  window.batch_ms = {1, 2, 3, 4};
  point.windows = {window, window};
  const RequestCounts epoch = EpochRequests(point);
  EXPECT_EQ(epoch.get, 25U);
  EXPECT_EQ(epoch.bytes_read, 10'000U);
  const BenchSummary sum = Summarize(point);
  EXPECT_DOUBLE_EQ(sum.samples_per_second.median, 200);
  EXPECT_DOUBLE_EQ(sum.cpu_per_1000.median, 2.5);
  EXPECT_DOUBLE_EQ(sum.busy_cpus.median, 0.5);
  EXPECT_DOUBLE_EQ(sum.gets_per_1000.median, 25);
  EXPECT_DOUBLE_EQ(sum.batch_p50_ms.median, 3);
  EXPECT_EQ(EpochRequests({}).get, 0U);
}

TEST(BenchSummaries, Spreads) {
  const Spread odd = Spread::Of({3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.least, 1);
  EXPECT_EQ(odd.most, 3);
  EXPECT_EQ(Spread::Of({4, 1}).median, 2.5);
  EXPECT_EQ(Spread::Of({}).median, 0);
  EXPECT_TRUE(odd.Overlaps({.median = 3, .least = 3, .most = 4}));
  EXPECT_FALSE(odd.Overlaps({.median = 4, .least = 3.5, .most = 5}));
}

}  // namespace
}  // namespace millrace
