#include "simulation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "pipeline/explain.h"
#include "simulated_data.h"

namespace millrace {
namespace {

constexpr uint64_t kSamples = 6000;
constexpr uint64_t kSampleBytes = 4000;
constexpr uint64_t kBatch = 16;

class SimulationTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string path = ::testing::TempDir() + "millrace-scale-XXXXXX";
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    folder_ = path;
  }
  static void TearDownTestSuite() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void SetUp() override {
    runtime_ = std::make_unique<Runtime>(
        RuntimeOptions{.io_threads = 1, .cpu_threads = 1, .memory_bytes = uint64_t{64} << 20});
    absl::StatusOr<Stores::Wrap> wrap = AsOnS3(*runtime_);
    ASSERT_TRUE(wrap.ok()) << wrap.status();
    stores_ = std::make_unique<Stores>(*runtime_, *wrap);
    const DataModel model{.samples = kSamples, .sample_bytes = kSampleBytes, .shard_bytes = 2'000'000, .prefixes = 2};
    absl::StatusOr<std::unique_ptr<Dataset>> data = OpenSimulatedData(*runtime_, *stores_, folder_ + "/data", model);
    ASSERT_TRUE(data.ok()) << data.status();
    data_ = *std::move(data);
  }

  static JobModel Model(uint64_t ranks) {
    JobModel model;
    model.ranks = ranks;
    model.ranks_per_host = 2;
    model.loader.batch = kBatch;
    model.loader.image.height = model.loader.image.width = 8;
    model.loader.memory_bytes = uint64_t{64} << 20;
    model.loader.extent = 16;
    model.loader.window = 64;
    model.loader.lanes = 16;
    model.decode = {.threads = 2, .sample_ms = 0.5};
    model.store.latency.first_byte_ms = 30;
    return model;
  }
  JobResult Simulate(const JobModel& model) {
    absl::StatusOr<JobResult> result = SimulateJob(*data_, model);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : JobResult{};
  }

  static std::string folder_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Stores> stores_;
  std::unique_ptr<Dataset> data_;
};
std::string SimulationTest::folder_;

TEST_F(SimulationTest, AnEpochDeliversEachSampleOnceAndIsAlwaysTheSame) {
  const JobResult first = Simulate(Model(4));
  EXPECT_EQ(first.delivered, kSamples);
  EXPECT_EQ(first.fetched.samples, kSamples);
  EXPECT_EQ(first.steps, (kSamples + 4 * kBatch - 1) / (4 * kBatch));
  EXPECT_GT(first.seconds, 0);
  EXPECT_EQ(first.refused, 0u);
  const JobResult second = Simulate(Model(4));
  EXPECT_EQ(first.seconds, second.seconds);
  EXPECT_EQ(first.fetched.requests, second.fetched.requests);
  EXPECT_EQ(first.first_batch_seconds, second.first_batch_seconds);
}

TEST_F(SimulationTest, RequestsAndBytesOfARankAreThoseThatExplainTells) {
  for (const uint64_t ranks : {1, 3, 4}) {
    JobModel model = Model(ranks);
    uint64_t requests = 0;
    uint64_t bytes = 0;
    for (uint64_t rank = 0; rank < ranks; ++rank) {
      LoaderOptions options = model.loader;
      options.rank = rank;
      options.world = ranks;
      const absl::StatusOr<LoaderExplanation> told = Explain(Source(*data_), options);
      ASSERT_TRUE(told.ok()) << told.status();
      requests += told->fetches.requests;
      bytes += told->fetches.bytes;
    }
    const JobResult found = Simulate(model);
    EXPECT_EQ(found.fetched.requests, requests) << ranks << " ranks";
    EXPECT_EQ(found.fetched.bytes, bytes) << ranks << " ranks";
  }
}

TEST_F(SimulationTest, RanksThatAreNoPowerOfTwoReadMore) {
  const auto reads = [](const JobResult& found) {
    return static_cast<double>(found.fetched.samples) / static_cast<double>(found.fetched.requests);
  };
  EXPECT_GT(reads(Simulate(Model(4))), 1.5 * reads(Simulate(Model(3))));
}

TEST_F(SimulationTest, TheModelIsTheLimitWhenItIsSlow) {
  JobModel model = Model(2);
  model.step_ms = 400;
  model.steps = 40;
  const JobResult found = Simulate(model);
  EXPECT_EQ(found.limit(), "the model");
  // The first step does not wait, and no other.
  EXPECT_NEAR(found.seconds, 40 * 0.4, 0.05);
}

TEST_F(SimulationTest, CpusAreTheLimitWhenDecodingIsSlow) {
  JobModel model = Model(2);
  model.decode = {.threads = 2, .sample_ms = 20};
  const JobResult found = Simulate(model);
  EXPECT_EQ(found.limit(), "CPUs");
  EXPECT_NEAR(found.steady.samples_per_second, 2 * 2 / 0.020, 2 * 2 / 0.020 * 0.05);
}

TEST_F(SimulationTest, TheNetworkOfAHostIsShared) {
  JobModel model = Model(2);
  model.decode.sample_ms = 0;
  model.host_gbit = 0.01;
  const JobResult found = Simulate(model);
  EXPECT_EQ(found.limit(), "network");
  EXPECT_NEAR(found.steady.bytes_per_second, 0.01e9 / 8, 0.01e9 / 8 * 0.1);
}

TEST_F(SimulationTest, NoPrefixServesMoreThanItsLimit) {
  JobModel model = Model(4);
  model.decode.sample_ms = 0;
  model.loader.memory_bytes = uint64_t{3} << 20;  // of which the data are several times as many
  model.loader.shuffle = Shuffle::kGlobal;
  model.store.rate_per_prefix = 100;
  const JobResult found = Simulate(model);
  EXPECT_EQ(found.delivered, kSamples);
  EXPECT_EQ(found.prefixes, 2u);
  EXPECT_GT(found.refused, 0u);
  EXPECT_LE(found.steady.busiest_prefix_per_second, 100 * 1.05);
  EXPECT_EQ(found.limit(), "requests of a prefix");
}

TEST_F(SimulationTest, AHostThatIsLostCostsWhatItsJobHadReadAhead) {
  JobModel model = Model(4);
  model.step_ms = 20;
  model.loss = JobModel::Loss{.step = 45, .hosts = 1, .checkpoint_every = 20};
  const JobResult found = Simulate(model);
  // Two ranks are left, which begin again at step 40.
  EXPECT_EQ(found.delivered, kSamples + 5 * 4 * kBatch);
  EXPECT_GT(found.recovery_seconds, 0.015);
  EXPECT_GT(found.refetched_bytes, 5 * 4 * kBatch * kSampleBytes / 2);
  EXPECT_LE(found.refetched_bytes, found.fetched.bytes);
  EXPECT_GT(found.fetched.samples, kSamples);

  model.loss->replaced = true;
  const JobResult replaced = Simulate(model);
  EXPECT_EQ(replaced.steps, (kSamples + 4 * kBatch - 1) / (4 * kBatch) + 5);
}

TEST_F(SimulationTest, AWorkerThatIsLostCostsNoSteps) {
  JobModel model = Model(2);
  model.workers_per_rank = 2;
  model.step_ms = 20;
  const uint64_t steps = (kSamples + 2 * kBatch - 1) / (2 * kBatch);
  const JobResult calm = Simulate(model);
  EXPECT_EQ(calm.delivered, kSamples);
  EXPECT_EQ(calm.steps, steps);
  EXPECT_EQ(calm.fetched.samples, kSamples);
  model.loss = JobModel::Loss{.step = 45, .hosts = 1, .checkpoint_every = 20};
  const JobResult found = Simulate(model);
  EXPECT_EQ(found.delivered, kSamples);
  EXPECT_EQ(found.steps, steps);
  EXPECT_GT(found.refetched_bytes, 0u);
  EXPECT_EQ(found.refetched_bytes > 0, found.fetched.samples > kSamples);
}

TEST_F(SimulationTest, HostsThatHaveTheIndexOpenSooner) {
  JobModel model = Model(4);
  const JobResult copied = Simulate(model);
  model.copies_index = false;
  const JobResult there = Simulate(model);
  // This is a piece of the index for each host beside HEAD and one page of the listing for each process.
  EXPECT_EQ(copied.opening_requests, 4 * 2 + 2u);
  EXPECT_EQ(there.opening_requests, 4 * 2u);
  EXPECT_GE(copied.open_seconds, there.open_seconds);
  EXPECT_EQ(copied.fetched.requests, there.fetched.requests);
}

TEST_F(SimulationTest, WhatCannotBeIsRefused) {
  JobModel model = Model(2);
  model.workers_per_rank = 3;
  EXPECT_TRUE(absl::IsInvalidArgument(SimulateJob(*data_, model).status()));
  model = Model(2);
  model.loss = JobModel::Loss{.step = 1, .hosts = 1};
  EXPECT_TRUE(absl::IsInvalidArgument(SimulateJob(*data_, model).status()));
}

}  // namespace
}  // namespace millrace
