#include "diagnose/advise_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
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
    settings.machine =
        MachinePrice{.name = "big", .dollars_per_hour = advice.inputs.dollars_per_hour, .date = "2026-02-03"};
  advice.predictions = PredictAll(advice.inputs, settings.prices);
  return AnswerLines(advice, settings);
}

TEST(AdviseAnswer, FiveLinesForWhoPays) {
  const std::vector<std::string> lines = Lines(Measured());
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_THAT(lines[0], StartsWith("Do: stream from the store"));
  // These are ten epochs of 125 s on the CPUs.
  EXPECT_THAT(lines[1], StartsWith("Cost: $12.5"));
  EXPECT_THAT(lines[1], HasSubstr("for big at $36.00 an hour"));
  EXPECT_THAT(lines[1], HasSubstr("Storing the data costs $0.230 a month."));
  EXPECT_THAT(lines[1], HasSubstr("The price of the machine is of 2026-02-03, the others of " + BuiltInPrices().date));
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
  EXPECT_THAT(lines[3], HasSubstr("no difference in time to"));
  EXPECT_THAT(lines[3], HasSubstr("File mode"));
  EXPECT_THAT(lines[4], StartsWith("Limit: the model"));
}

TEST(AdviseAnswer, APriceThatIsNotKnownIsNotMadeUp) {
  Advice advice = Measured();
  advice.inputs.dollars_per_hour = 0;
  const std::vector<std::string> lines = Lines(advice);
  EXPECT_THAT(lines[1], HasSubstr("whose price is not known (--machine)"));
  EXPECT_THAT(lines[3], HasSubstr("of requests"));  // that price is known
}

CostPrediction Way(const char* mode, double epoch_seconds, double machine_dollars, double request_dollars) {
  return {.mode = mode,
          .title = mode,
          .epoch_seconds = epoch_seconds,
          .later_epoch_seconds = epoch_seconds,
          .request_dollars = request_dollars,
          .machine_dollars = machine_dollars};
}

TEST(AdviseAnswer, TheCheapestOfThoseThatTakeAsLong) {
  CostInputs in;
  in.epochs = 1;
  // File mode takes the least time by 3 %, and a way with a cache asks for less.
  const AdviceAnswer answer =
      AnswerOf({Way("file", 100, 10, 0.1), Way("streaming", 103, 10.3, 1), Way("streaming-cache", 103, 10.3, 0.1),
                Way("mount-cache", 104, 10.4, 0.1), Way("fastfile", 106, 10.6, 1)},
               in);
  EXPECT_EQ(answer.chosen.mode, "file");
  ASSERT_EQ(answer.equal.size(), 3U);
  EXPECT_EQ(answer.equal[0].mode, "streaming-cache");
  EXPECT_EQ(answer.equal[1].mode, "mount-cache");
  EXPECT_EQ(answer.equal[2].mode, "streaming");
  ASSERT_EQ(answer.other.size(), 1U);
  EXPECT_EQ(answer.other[0].mode, "fastfile");
}

TEST(AdviseAnswer, TheSimplestOfOnePrice) {
  CostInputs in;
  in.epochs = 1;
  // Half a percent of the price, or less than a cent, are no reason to fill a disk.
  EXPECT_EQ(AnswerOf({Way("file", 100, 10, 0), Way("streaming", 100, 10, 0.05)}, in).chosen.mode, "streaming");
  EXPECT_EQ(AnswerOf({Way("file", 1, 0.001, 0), Way("streaming", 1, 0.001, 0.004)}, in).chosen.mode, "streaming");
  EXPECT_EQ(AnswerOf({Way("file", 100, 0, 0), Way("streaming", 104, 0, 0)}, in).chosen.mode, "streaming");
  EXPECT_EQ(AnswerOf({Way("file", 100, 0, 0), Way("streaming", 106, 0, 0)}, in).chosen.mode, "file");
}

TEST(AdviseAnswer, TheRecommendationForProgramsIsTheSame) {
  Advice advice;
  advice.inputs.epochs = 1;
  advice.predictions = {Way("file", 100, 0, 0), Way("streaming", 104, 0, 0), Way("fastfile", 200, 0, 0)};
  const Recommendation what = RecommendedBy(advice);
  EXPECT_EQ(what.mode, "streaming");
  EXPECT_EQ(what.no_difference, std::vector<std::string>{"file"});
}

TEST(AdviseAnswer, EqualWaysHavePrices) {
  Advice advice = Measured();
  advice.inputs.step_seconds = 4;
  advice.inputs.objects = advice.inputs.stream_requests = 10'000'000;  // $4 for reading each once
  advice.inputs.first_byte_seconds = 0.0001;
  const std::vector<std::string> lines = Lines(advice);
  EXPECT_THAT(lines[3], HasSubstr("no difference in time to "));
  EXPECT_THAT(lines[3], HasSubstr("FastFile mode ($"));
}

TEST(AdviseAnswer, AFolderIsReadAsItIs) {
  Advice advice = Measured();
  advice.inputs.in_folder = true;
  advice.inputs.download_bytes_per_second = 1e15;  // a copy that would take no time
  for (const double step_seconds : {0.0, 4.0}) {
    advice.inputs.step_seconds = step_seconds;
    const std::vector<std::string> lines = Lines(advice);
    EXPECT_THAT(lines[0],
                AllOf(StartsWith("Do: read the folder as it is (`millrace.Loader`)"), Not(HasSubstr("store"))));
    EXPECT_THAT(lines[1], AllOf(HasSubstr("for big at $36.00 an hour"), Not(HasSubstr("of requests")),
                                Not(HasSubstr("Storing")), HasSubstr("The price is of 2026-02-03.")));
    EXPECT_EQ(lines[3],
              "Otherwise: nothing to compare; a copy, a mount or a cache brings nothing, since the data are here.");
    EXPECT_THAT(lines[4], Not(HasSubstr("store")));
  }
  advice.inputs.dollars_per_hour = 0;
  EXPECT_THAT(Lines(advice)[1], AllOf(HasSubstr("of the machine, whose price is not known (--machine)"),
                                      Not(HasSubstr("$")), Not(HasSubstr("are of"))));
  advice.predictions = PredictAll(advice.inputs, BuiltInPrices());
  EXPECT_EQ(RecommendedBy(advice).mode, "streaming");
  EXPECT_THAT(RecommendedBy(advice).no_difference, IsEmpty());
  for (const CostPrediction& one : advice.predictions) EXPECT_EQ(one.request_dollars, 0) << one.mode;
}

TEST(AdviseAnswer, TheLimitIsThatOfTheChosenWay) {
  Advice advice = Measured();
  CostInputs& in = advice.inputs;
  in.cpu_seconds_per_sample = 0.0001;
  in.stream_bytes_per_second = 40e6;  // of many small ranges: an epoch takes 250 s
  in.one_bytes_per_second = 1e6;
  in.download_bytes_per_second = 100e6;
  const std::vector<std::string> lines = Lines(advice);
  EXPECT_THAT(lines[0], HasSubstr("File mode"));
  EXPECT_EQ(lines[4],
            "Limit: the copy to the disk, which the store and the network bring (by the arithmetic, 1 min 40 s before "
            "the first batch).");
  in.disk_bytes_per_second = 99e6;
  EXPECT_EQ(Lines(advice)[4], "Limit: the disk of the machine (by the arithmetic, 1 min 41 s of an epoch).");
}

TEST(AdviseAnswer, ReadersThatWaitAreALimit) {
  Advice advice = Measured();
  CostInputs& in = advice.inputs;
  in.cpu_seconds_per_sample = 0.0001;
  in.epochs = 1;
  advice.predictions = {PredictFastFile(in, BuiltInPrices())};
  AdviseSettings settings;
  settings.prices = BuiltInPrices();
  const std::vector<std::string> lines = AnswerLines(advice, settings);
  EXPECT_THAT(lines.back(), StartsWith("Limit: the readers, which wait for each file"));
}

TEST(AdviseAnswer, LittleMoneyAndTimeAreSaidOnce) {
  Advice advice = Measured();
  CostInputs& in = advice.inputs;
  in.objects = in.samples = 50;
  in.object_bytes = in.stream_bytes = 500'000;
  in.stream_requests = 50;
  in.list_seconds_per_page = in.first_byte_seconds = 0.001;
  in.cpu_seconds_per_sample = 0.0001;
  in.vcpus = 8;
  advice.data.object_bytes = in.object_bytes;
  in.dollars_per_hour = 1;
  const std::vector<std::string> lines = Lines(advice);
  EXPECT_THAT(lines[1],
              AllOf(StartsWith("Cost: under a cent for 10 epochs, requests included, for big at $1.00 an hour."),
                    Not(HasSubstr("Storing")), Not(HasSubstr("<$"))));
  EXPECT_EQ(lines[2], "Time: less than a second for 10 epochs, without the time of the model (--step-ms).");
  for (const std::string& line : {lines[3], lines[4]})
    EXPECT_THAT(line, AllOf(Not(HasSubstr("$")), Not(HasSubstr("0.0")))) << line;
}

TEST(AdviseAnswer, Times) {
  EXPECT_EQ(TimeText(0.3141), "0.314 s");
  EXPECT_EQ(TimeText(61), "1 min 1 s");
  EXPECT_EQ(TimeText(3 * 3600 + 12 * 60), "3 h 12 min");
  EXPECT_EQ(TimeText(52.4 * 3600), "2 d 4 h");
}

}  // namespace
}  // namespace millrace
