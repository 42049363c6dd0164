#include "diagnose/advise_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A machine at $36 an hour, that is a cent a second; 100,000 samples of 100 KB.
Advice Measured() {
  Advice advice;
  CostInputs& in = advice.inputs;
  in.objects = in.samples = 100'000;
  in.object_bytes = in.stream_bytes = 10'000'000'000;
  in.stream_requests = 10'000;
  in.first_byte_seconds = 0.03;
  in.one_bytes_per_second = 90e6;
  in.list_seconds_per_page = 0.1;
  in.download_bytes_per_second = 500e6;
  in.stream_bytes_per_second = 1e9;
  in.cpu_seconds_per_sample = 0.01;
  in.vcpus = 8;
  in.workers = 8;
  in.epochs = 10;
  in.dollars_per_hour = 36;
  advice.data.object_bytes = in.object_bytes;
  return advice;
}

std::vector<std::string> Lines(Advice advice) {
  AdviseSettings settings;
  settings.prices = BuiltInPrices();
  settings.epochs = advice.inputs.epochs;
  if (advice.inputs.dollars_per_hour > 0)
    settings.machine = MachinePrice{.name = "big", .dollars_per_hour = advice.inputs.dollars_per_hour};
  advice.predictions = PredictAll(advice.inputs, settings.prices);
  return AnswerLines(advice, settings);
}

TEST(AdviseAnswer, FiveLinesForWhoPays) {
  const std::vector<std::string> lines = Lines(Measured());
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_THAT(lines[0], StartsWith("Do: stream from the store"));
  // Ten epochs of 125 s on the CPUs.
  EXPECT_THAT(lines[1], StartsWith("Cost: $12.5"));
  EXPECT_THAT(lines[1], HasSubstr("for big at $36.00 an hour"));
  EXPECT_THAT(lines[1], HasSubstr("Storing the data costs $0.230 a month."));
  EXPECT_THAT(lines[2], HasSubstr("then 2 min 5 s for each epoch, without the time of the model (--step-ms)"));
  EXPECT_THAT(lines[3], HasSubstr("FastFile mode takes "));
  EXPECT_THAT(lines[4], StartsWith("Limit: the CPUs"));
}

TEST(AdviseAnswer, ASlowModelLeavesNoDifference) {
  Advice advice = Measured();
  advice.inputs.step_seconds = 4;
  const std::vector<std::string> lines = Lines(advice);
  EXPECT_THAT(lines[0], HasSubstr("makes no difference"));
  EXPECT_THAT(lines[2], HasSubstr("in which the model takes 52 min 8 s"));
  EXPECT_THAT(lines[3], HasSubstr("no difference to"));
  EXPECT_THAT(lines[3], HasSubstr("File mode"));
  EXPECT_THAT(lines[4], StartsWith("Limit: the model"));
}

TEST(AdviseAnswer, APriceThatIsNotKnownIsNotMadeUp) {
  Advice advice = Measured();
  advice.inputs.dollars_per_hour = 0;
  const std::vector<std::string> lines = Lines(advice);
  EXPECT_THAT(lines[1], HasSubstr("whose price is not known (--machine)"));
  EXPECT_EQ(lines[3].find('$'), std::string::npos) << lines[3];
}

TEST(AdviseAnswer, Times) {
  EXPECT_EQ(TimeText(0.3141), "0.314 s");
  EXPECT_EQ(TimeText(61), "1 min 1 s");
  EXPECT_EQ(TimeText(3 * 3600 + 12 * 60), "3 h 12 min");
  EXPECT_EQ(TimeText(52.4 * 3600), "2 d 4 h");
}

}  // namespace
}  // namespace millrace
