#include "diagnose/trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "diagnose/advise.h"
#include "diagnose/synthetic_shards.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

TEST(Trials, RatesAreThoseOfTheSecondHalf) {
  std::vector<TrialMark> marks;
  // These are ten samples a second while the pipeline is filled, then a hundred, for a hundredth of a CPU-second each.
  for (int i = 1; i <= 10; ++i) marks.push_back({.seconds = 0.1 * i, .cpu_seconds = 1.0, .samples = uint64_t(i)});
  for (int i = 1; i <= 10; ++i) {
    marks.push_back({.seconds = 1 + 0.1 * i, .cpu_seconds = 1 + 0.1 * i, .samples = uint64_t(10 + 10 * i)});
  }
  const TrialRates rates = RatesFromMarks(marks);
  ASSERT_EQ(rates.samples_per_second.size(), 3U);
  for (const double rate : rates.samples_per_second) EXPECT_NEAR(rate, 100, 1e-6);
  EXPECT_NEAR(rates.cpu_seconds_per_sample, 0.01, 1e-9);
}

TEST(Trials, TooFewMarksSayNothing) {
  EXPECT_TRUE(RatesFromMarks({}).samples_per_second.empty());
  EXPECT_TRUE(RatesFromMarks({{.seconds = 1, .cpu_seconds = 1, .samples = 5}}).samples_per_second.empty());
  const TrialRates two =
      RatesFromMarks({{.seconds = 1, .cpu_seconds = 1, .samples = 5}, {.seconds = 2, .cpu_seconds = 2, .samples = 15}});
  ASSERT_EQ(two.samples_per_second.size(), 1U);
  EXPECT_NEAR(two.samples_per_second[0], 10, 1e-9);
}

TEST(Trials, TheWaitForABurstCounts) {
  const TrialRates rates = RatesFromMarks(
      {{.seconds = 3.9, .cpu_seconds = 1, .samples = 10}, {.seconds = 4.0, .cpu_seconds = 2, .samples = 20}});
  ASSERT_EQ(rates.samples_per_second.size(), 1U);
  EXPECT_NEAR(rates.samples_per_second[0], 5, 1e-9);
  EXPECT_NEAR(rates.cpu_seconds_per_sample, 0.1, 1e-9);
}

TEST(Trials, ACopyIsALineBehindItsBeginning) {
  // 64 objects of 10 bytes at a time, each of which takes 0.2 s: bursts, with the line through their middles.
  std::vector<CopyMark> marks;
  for (uint64_t object = 0; object < 640; ++object) {
    marks.push_back({.seconds = 0.2 * static_cast<double>(object / 64 + 1), .bytes = 10 * (object + 1)});
  }
  const CopyRate rate = CopyRateFromMarks(marks);
  EXPECT_NEAR(rate.bytes_per_second, 3200, 0.02 * 3200);
  EXPECT_NEAR(rate.filling_seconds, 0.1, 0.03);
  // So ten times as many objects are foretold within a burst, where the mean of the whole would be off by the
  // beginning.
  EXPECT_NEAR(rate.filling_seconds + 64'000 / rate.bytes_per_second, 20, 0.4);
}

TEST(Trials, MarksThatSayNothingOfARate) {
  const CopyMark early{.seconds = 1, .bytes = 5};
  const std::vector<std::vector<CopyMark>> cases = {
      {}, {early}, {early, {.seconds = 2, .bytes = 5}}, {early, {.seconds = 1, .bytes = 9}}};
  for (const std::vector<CopyMark>& marks : cases) {
    EXPECT_EQ(CopyRateFromMarks(marks).bytes_per_second, 0);
    EXPECT_EQ(CopyRateFromMarks(marks).filling_seconds, 0);
  }
  const CopyRate straight = CopyRateFromMarks({{.seconds = 2, .bytes = 10}, {.seconds = 4, .bytes = 30}});
  EXPECT_NEAR(straight.bytes_per_second, 10, 1e-9);
  EXPECT_NEAR(straight.filling_seconds, 1, 1e-9);
}

/// A data set in a folder, with another folder for what is temporary.
class TrialsOnData : public ::testing::Test {
 protected:
  TrialsOnData() : path_(testing::TempDir() + "trials-" + std::to_string(getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_ + "/temporary");
    setenv("TMPDIR", (path_ + "/temporary").c_str(), 1);
    settings_.loader.batch = 8;
    settings_.loader.image.height = settings_.loader.image.width = 32;
    settings_.loader.memory_bytes = uint64_t{32} << 20;
    settings_.cache_folder = path_ + "/cache";
    Runtime runtime;
    Stores stores(runtime);
    uri_ = path_ + "/data";
    auto place = stores.Open(uri_);
    EXPECT_TRUE(place.ok()) << place.status();
    const auto made =
        WriteSyntheticShards(runtime, *place, {.samples = 70, .image_bytes = 5000, .shard_bytes = 100'000}, {}, {});
    EXPECT_TRUE(made.ok()) << made.status();
    shards_ = made.ok() ? made->shards : 0;
  }
  ~TrialsOnData() override {
    unsetenv("TMPDIR");
    std::filesystem::remove_all(path_);
  }

  uint64_t BytesOfShards() const {
    uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(uri_)) {
      if (entry.is_regular_file()) bytes += entry.file_size();
    }
    return bytes;
  }

  const std::string path_;
  std::string uri_;
  uint64_t shards_ = 0;
  BenchSettings settings_;
};

TEST_F(TrialsOnData, LoaderDeliversAnEpoch) {
  const auto trial = TryLoader(uri_, settings_, /*index_bytes=*/1);
  ASSERT_TRUE(trial.ok()) << trial.status();
  EXPECT_GE(trial->tries, 1U);
  // A machine that stands still for seconds cuts it off.
  EXPECT_EQ(trial->samples == 70U, trial->whole);
  EXPECT_GE(trial->samples, 8U);
  EXPECT_GT(trial->startup_seconds.least, 0);
  EXPECT_EQ(trial->samples_per_second.least > 0, trial->samples > 8);
  EXPECT_GT(trial->cpu_seconds_per_sample, 0);
  EXPECT_TRUE(std::filesystem::is_empty(path_ + "/temporary"));
}

TEST_F(TrialsOnData, OneBatchHasNoRate) {
  settings_.loader.batch = 100;
  const auto trial = TryLoader(uri_, settings_, /*index_bytes=*/0);
  ASSERT_TRUE(trial.ok()) << trial.status();
  EXPECT_TRUE(trial->whole);
  EXPECT_EQ(trial->samples, 70U);
  EXPECT_EQ(trial->samples_per_second.most, 0);
  EXPECT_GT(trial->cpu_seconds_per_sample, 0);
}

TEST_F(TrialsOnData, CopyTakesAllButMillracesOwn) {
  const auto trial = TryCopy(uri_, settings_, uint64_t{1} << 30);
  ASSERT_TRUE(trial.ok()) << trial.status();
  EXPECT_EQ(trial->objects == shards_, trial->whole);
  EXPECT_EQ(trial->bytes == BytesOfShards(), trial->whole);
  EXPECT_GT(trial->bytes_per_second.least, 0);
  EXPECT_TRUE(std::filesystem::is_empty(path_ + "/temporary"));
}

TEST_F(TrialsOnData, CopyEndsAtItsLimit) {
  const auto some = TryCopy(uri_, settings_, BytesOfShards() - 1);
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_FALSE(some->whole);
  EXPECT_LT(some->objects, shards_);
  const auto none = TryCopy(uri_, settings_, 1000);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->bytes, 0U);
  EXPECT_EQ(none->bytes_per_second.most, 0);
}

TEST_F(TrialsOnData, NeedsNoTemporaryFolder) {
  setenv("TMPDIR", (path_ + "/none").c_str(), 1);
  const auto trial = TryLoader(uri_, settings_, /*index_bytes=*/1);
  ASSERT_TRUE(trial.ok()) << trial.status();
  EXPECT_GE(trial->samples, 8U);
  const auto copy = TryCopy(uri_, settings_, uint64_t{1} << 30);
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(copy->bytes, 0U);
}

TEST_F(TrialsOnData, StopsAreSaidInWords) {
  std::stop_source stop;
  AdviseSettings settings{.bench = settings_, .prices = BuiltInPrices()};
  settings.bench.stop = stop.get_token();
  settings.on_phase = [&](const std::string& what) {
    if (what == "measuring the store") stop.request_stop();
  };
  const absl::Status measured = Advise(uri_, settings).status();
  EXPECT_TRUE(absl::IsCancelled(measured)) << measured;
  EXPECT_THAT(std::string(measured.message()), HasSubstr("data: interrupted while it was measured"));
  EXPECT_TRUE(absl::IsCancelled(TryLoader(uri_, settings.bench, 0).status()));
  EXPECT_TRUE(absl::IsCancelled(TryCopy(uri_, settings.bench, 1 << 30).status()));
}

}  // namespace
}  // namespace millrace
