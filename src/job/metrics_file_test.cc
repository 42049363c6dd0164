#include "job/metrics_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/long_task.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(MetricsFile, ItIsWrittenWhileTheRunLives) {
  const TempFolder folder;
  const std::string path = folder / "run.prom";
  RunMetrics metrics;
  std::vector<std::string> said;
  const auto say = [&](const std::string& text) { said.push_back(text); };
  {
    MetricsFile file(path, metrics, say, std::chrono::milliseconds(1));
    file.Write();
    EXPECT_THAT(TextOf(path), HasSubstr("\nmillrace_run_alive_timestamp_seconds "));
    // The file is written without an event.
    std::filesystem::remove(path);
    for (int i = 0; i < 30'000 && !std::filesystem::exists(path); ++i)
      ASSERT_TRUE(SleepUnlessStopped(std::chrono::milliseconds(1), {}));
    EXPECT_TRUE(std::filesystem::exists(path));
    metrics.OnEvent("end", {{"outcome", std::string("success")}});
    file.Write();
  }
  EXPECT_THAT(TextOf(path), HasSubstr("millrace_run_ended{outcome=\"success\"} 1\n"));
  EXPECT_THAT(TextOf(path), Not(HasSubstr("alive_timestamp"))) << "a job that has ended is not lost";
  EXPECT_THAT(said, IsEmpty());
  std::filesystem::remove(path);
  MetricsFile("", metrics, say).Write();
  MetricsFile(folder.path(), metrics, say).Write();  // a folder
  EXPECT_THAT(said, SizeIs(1));
}

}  // namespace
}  // namespace millrace
