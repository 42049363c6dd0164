#include "diagnose/service_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"

namespace millrace {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

/// Four accelerators that take 1,000 samples a second together, and CPUs for 400 of them.
ServiceQuestion SlowCpus() {
  ServiceQuestion question;
  question.trainer = {.name = "trainer", .vcpus = 8, .gpus = 4, .dollars_per_hour = 10};
  question.kinds = {{.name = "small", .vcpus = 4, .dollars_per_hour = 1},
                    {.name = "large", .vcpus = 64, .dollars_per_hour = 2}};
  question.batch = 25;
  question.step_seconds = 0.1;
  question.cpu_seconds_per_sample = 0.02;
  question.sample_bytes = 100e3;
  question.row_bytes = 150e3;
  return question;
}

ServiceAdvice AdvisedOn(const ServiceQuestion& question) {
  absl::StatusOr<ServiceAdvice> advice = AdviseService(question);
  EXPECT_TRUE(advice.ok()) << advice.status();
  return advice.ok() ? *std::move(advice) : ServiceAdvice();
}

TEST(ServiceAdviceTest, EnoughCpusNeedNoWorkers) {
  ServiceQuestion question = SlowCpus();
  question.trainer.vcpus = 20;
  const ServiceAdvice advice = AdvisedOn(question);
  EXPECT_EQ(advice.before.bound, StepBound::kAccelerator);
  EXPECT_DOUBLE_EQ(advice.before.seconds, 0.1);
  EXPECT_FALSE(advice.best.has_value());
  EXPECT_THAT(advice.sentences, Contains(HasSubstr("No workers are better")));
}

TEST(ServiceAdviceTest, AsManyWorkersAsEndIt) {
  const ServiceAdvice advice = AdvisedOn(SlowCpus());
  EXPECT_EQ(advice.before.bound, StepBound::kCpu);
  EXPECT_NEAR(advice.before.seconds, 0.25, 1e-9);
  // 12 vCPUs are missing: three small machines, or one large one, which costs less than three.
  ASSERT_EQ(advice.plans.size(), 2U);
  EXPECT_EQ(advice.plans[0].workers, 3);
  EXPECT_EQ(advice.plans[1].workers, 1);
  EXPECT_NEAR(advice.plans[0].after.local_share, 0.4, 1e-6);
  EXPECT_NEAR(advice.plans[0].dollars_after, 13.0 / 3600 * 0.1 * 100, 1e-9);
  EXPECT_EQ(advice.best, 1U);
  EXPECT_THAT(advice.sentences, Contains("Take 1 machine of large."));
}

TEST(ServiceAdviceTest, ReceivingTakesCpusToo) {
  ServiceQuestion question = SlowCpus();
  question.receive_seconds_per_sample = 0.002;
  const StepTime all = StepWith(question, 1000, question.kinds[0]);
  EXPECT_EQ(all.bound, StepBound::kAccelerator);
  EXPECT_NEAR(all.local_share, (0.008 - 0.002) / (0.02 - 0.002), 1e-6);
  question.receive_seconds_per_sample = 0.016;  // two vCPUs for each that decodes: workers end nothing
  EXPECT_EQ(StepWith(question, 1000, question.kinds[0]).bound, StepBound::kCpu);
}

TEST(ServiceAdviceTest, ANetworkThatIsTooSlowForSamples) {
  ServiceQuestion question = SlowCpus();
  question.network_bytes_per_second = 20e6;  // 200 samples a second
  const ServiceAdvice advice = AdvisedOn(question);
  EXPECT_EQ(advice.before.bound, StepBound::kNetwork);
  EXPECT_NEAR(advice.before.seconds, 0.5, 1e-9);
  EXPECT_FALSE(advice.best.has_value());  // rows are larger than samples
  question.row_bytes = 5e3;
  EXPECT_TRUE(AdvisedOn(question).best.has_value());
}

TEST(ServiceAdviceTest, AStoreThatGivesEachMachineLittle) {
  ServiceQuestion question = SlowCpus();
  question.store_bytes_per_second = 30e6;  // 300 samples a second, for each machine
  const ServiceAdvice advice = AdvisedOn(question);
  EXPECT_EQ(advice.before.bound, StepBound::kStore);
  EXPECT_NEAR(advice.before.seconds, 1.0 / 3, 1e-9);
  EXPECT_EQ(advice.plans[1].workers, 3);  // 300 of the trainer, and 700 of the others
  EXPECT_EQ(advice.plans[1].after.bound, StepBound::kAccelerator);
}

TEST(ServiceAdviceTest, MeasuredTimesTakeThePlaceOfTheModel) {
  ServiceQuestion question = SlowCpus();
  question.workers = 2;
  question.measured_before = 0.4;
  question.measured_after = 0.2;
  const ServiceAdvice advice = AdvisedOn(question);
  EXPECT_EQ(advice.before.seconds, 0.4);
  EXPECT_TRUE(advice.plans[0].measured);
  EXPECT_DOUBLE_EQ(advice.plans[0].speedup, 2);
}

TEST(ServiceAdviceTest, WhatIsMissingIsSaid) {
  ServiceQuestion question = SlowCpus();
  question.step_seconds = 0;
  EXPECT_THAT(AdviseService(question).status().ToString(), HasSubstr("time of the model"));
  question.measured_before = 1;
  question.measured_after = 0.5;
  EXPECT_THAT(AdviseService(question).status().ToString(), HasSubstr("how many workers"));
}

/// The model against a search over shares, which knows nothing of how it is solved.
TEST(ServiceAdviceTest, AgreesWithASearch) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const auto between = [&rng](double least, double most) { return least + (most - least) * rng.Unit(); };
    ServiceQuestion question = SlowCpus();
    question.trainer.vcpus = 1 + static_cast<int>(rng.Below(32));
    question.cpu_seconds_per_sample = between(0.001, 0.03);
    question.receive_seconds_per_sample = between(0, 0.004);
    question.row_bytes = between(1e3, 300e3);
    question.network_bytes_per_second = rng.Below(3) == 0 ? 0 : between(10e6, 500e6);
    question.store_bytes_per_second = rng.Below(3) == 0 ? 0 : between(10e6, 300e6);
    const int workers = static_cast<int>(rng.Below(6));
    const MachinePrice kind{.name = "worker", .vcpus = 1 + static_cast<int>(rng.Below(8))};
    const double samples = 100;
    double least = 1e9;
    constexpr int kShares = 5000;
    for (int i = 0; i <= kShares; ++i) {
      const double share = workers == 0 ? 1 : static_cast<double>(i) / kShares;
      const double rest = 1 - share;
      std::vector<double> times = {
          question.step_seconds,
          samples * (share * question.cpu_seconds_per_sample + rest * question.receive_seconds_per_sample) /
              question.trainer.vcpus};
      if (workers > 0) times.push_back(samples * rest * question.cpu_seconds_per_sample / (workers * kind.vcpus));
      if (question.network_bytes_per_second > 0) {
        times.push_back(samples * (share * question.sample_bytes + rest * question.row_bytes) /
                        question.network_bytes_per_second);
      }
      if (question.store_bytes_per_second > 0) {
        times.push_back(samples * share * question.sample_bytes / question.store_bytes_per_second);
        if (workers > 0) {
          times.push_back(samples * rest * question.sample_bytes / (question.store_bytes_per_second * workers));
        }
      }
      least = std::min(least, *std::max_element(times.begin(), times.end()));
    }
    EXPECT_NEAR(StepWith(question, workers, kind).seconds, least, 5e-3 * least);
  }
}

}  // namespace
}  // namespace millrace
