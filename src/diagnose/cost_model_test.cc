#include "diagnose/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "diagnose/advise.h"
#include "diagnose/data_source.h"

// The numbers are those of AWS's guide to data sources of training jobs, and of its report on heterogeneous clusters,
// where they are right (docs/evidence.md lists the others).

namespace millrace {
namespace {

double ValueOf(const CostPrediction& prediction, const std::string& name) {
  for (const Derivation& line : prediction.lines) {
    if (line.name == name) return line.value;
  }
  ADD_FAILURE() << prediction.mode << " has no line " << name;
  return 0;
}

/// Returns the guide's rates.
CostInputs Published(double bytes, uint64_t files) {
  const PriceList& prices = BuiltInPrices();
  CostInputs in;
  in.objects = files;
  in.object_bytes = static_cast<uint64_t>(bytes);
  in.samples = files;
  in.first_byte_seconds = 0.03;
  in.one_bytes_per_second = 90e6;
  in.list_seconds_per_page = kListedPerPage / prices.listed_objects_per_second;
  in.download_bytes_per_second = prices.file_mode_bytes_per_second;
  in.download_files_per_second = prices.file_mode_files_per_second;
  in.stream_bytes_per_second = 1e9;
  in.stream_requests = files;
  in.stream_bytes = in.object_bytes;
  in.vcpus = 8;
  in.workers = 8;
  return in;
}

TEST(CostModel, FileModeAtThePublishedRate) {
  EXPECT_DOUBLE_EQ(DownloadSeconds(50e9, 1, 200e6, 150), 250);
  // Large files: the bytes count. 54 GB at 200 MB/s, and at the 250 MB/s of a volume that is not the limit.
  CostInputs large = Published(54e9, 491);
  EXPECT_NEAR(ValueOf(PredictFile(large, BuiltInPrices()), "download"), 270, 1e-6);
  large.download_bytes_per_second = 1e9;
  large.disk_bytes_per_second = 250e6;
  EXPECT_NEAR(ValueOf(PredictFile(large, BuiltInPrices()), "download"), 216, 1e-6);
  // Small files: their number counts, and 1.5 million take 10,000 s, which is 5.4 MB/s.
  const CostPrediction small = PredictFile(Published(54e9, 1'500'000), BuiltInPrices());
  EXPECT_NEAR(ValueOf(small, "download"), 10'000, 1e-6);
  EXPECT_NEAR(54e9 / ValueOf(small, "download"), 5.4e6, 1);
}

TEST(CostModel, ListingAndImportOfNames) {
  const CostPrediction fastfile = PredictFastFile(Published(54e9, 1'500'000), BuiltInPrices());
  EXPECT_NEAR(ValueOf(fastfile, "listing"), 273, 1);
  const CostPrediction fsx = PredictFsx(Published(54e9, 1'500'000), BuiltInPrices());
  EXPECT_NEAR(ValueOf(fsx, "import of names"), 45 * 60, 1e-6);
}

TEST(CostModel, PricesOfRequestsStorageAndMachines) {
  const PriceList& prices = BuiltInPrices();
  const CostPrediction file = PredictFile(Published(54e9, 1'500'000), prices);
  EXPECT_NEAR(file.request_dollars, 0.60 + 1500 * 5e-6, 1e-9);
  EXPECT_EQ(file.requests, 1'501'500U);
  EXPECT_NEAR(StorageDollarsPerMonth(1e12, prices), 23, 1e-9);
  EXPECT_NEAR(FsxDollars(1e12, 730 * 3600, prices), 168, 1e-9);  // the least that there is: 1.2 TB
  EXPECT_NEAR(FsxBytesPerSecond(1e9, prices), 240e6, 1);
  EXPECT_NEAR(FsxBytesPerSecond(10e12, prices), 2e9, 1);
  EXPECT_NEAR(MachineDollars(3.825, 3600), 3.825, 1e-12);
  EXPECT_NEAR(MachineDollars(3.825, 100), 0.106, 0.0005);  // what 100 s more of start-up cost
}

TEST(CostModel, EpochsAreChargedByModeThatReadsAgain) {
  CostInputs in = Published(1e9, 1000);
  const auto requests = [&](auto predict, uint64_t epochs) {
    in.epochs = epochs;
    return predict(in, BuiltInPrices()).requests;
  };
  EXPECT_EQ(requests(PredictFile, 1), requests(PredictFile, 10));
  EXPECT_EQ(requests(PredictFastFile, 10) - 1, 10 * (requests(PredictFastFile, 1) - 1));
  EXPECT_EQ(requests(PredictStreaming, 10) - 2, 10 * (requests(PredictStreaming, 1) - 2));
}

TEST(CostModel, CacheReadsOnce) {
  CostInputs in = Published(1e9, 1000);
  in.epochs = 5;
  in.disk_bytes_per_second = 2e9;
  const CostPrediction without = PredictStreaming(in, BuiltInPrices());
  const CostPrediction with = PredictStreamingWithCache(in, BuiltInPrices());
  EXPECT_NEAR(without.total_seconds(5) - without.startup_seconds, 5, 1e-9);
  EXPECT_NEAR(with.total_seconds(5) - with.startup_seconds, 1 + 4 * 0.5, 1e-9);
  EXPECT_EQ(without.requests - with.requests, 4000U);
  EXPECT_EQ(with.total_seconds(0), with.startup_seconds);
}

TEST(CostModel, TheLargerOfReadingAndCpuIsTheEpoch) {
  CostInputs in = Published(1e9, 1000);
  EXPECT_NEAR(PredictStreaming(in, BuiltInPrices()).epoch_seconds, 1, 1e-9);  // 1 GB at 1 GB/s
  in.cpu_seconds_per_sample = 0.08;                                           // 80 s on 8 vCPUs
  EXPECT_NEAR(PredictStreaming(in, BuiltInPrices()).epoch_seconds, 10, 1e-9);
  in.dollars_per_hour = 36;
  in.epochs = 2;
  const CostPrediction two = PredictStreaming(in, BuiltInPrices());
  EXPECT_NEAR(two.machine_dollars, (two.startup_seconds + 20) / 100, 1e-9);
}

TEST(CostModel, WhatWasTriedCountsMore) {
  CostInputs in = Published(1e9, 1000);
  in.cpu_seconds_per_sample = 0.008;
  in.batch = 100;
  in.tried_startup_seconds = {.median = 2, .least = 1.5, .most = 3};
  in.tried_samples_per_second = {.median = 90, .least = 45, .most = 100};
  in.tried_copy_filling_seconds = {.median = 2, .least = 1, .most = 4};
  in.tried_copy_bytes_per_second = {.median = 50e6, .least = 40e6, .most = 100e6};
  in.list_seconds_per_page = 0.5;
  const CostPrediction streaming = PredictStreaming(in, BuiltInPrices());
  EXPECT_EQ(streaming.startup_seconds, 2);
  EXPECT_EQ(streaming.startup_range.most, 3);
  EXPECT_NEAR(streaming.epoch_seconds, 10, 1e-9);  // 900 samples behind the first batch
  EXPECT_NEAR(streaming.epoch_range.least, 9, 1e-9);
  EXPECT_NEAR(streaming.epoch_range.most, 20, 1e-9);
  EXPECT_NEAR(streaming.later_epoch_seconds, 1000.0 / 90, 1e-9);
  const CostPrediction file = PredictFile(in, BuiltInPrices());
  EXPECT_NEAR(file.startup_seconds, 0.5 + 2 + 20 + 0.1, 1e-9);  // a page, and 100 samples on 8 vCPUs
  EXPECT_NEAR(file.startup_range.least, 0.5 + 1 + 10 + 0.1, 1e-9);
  EXPECT_NEAR(file.startup_range.most, 0.5 + 4 + 25 + 0.1, 1e-9);
  // There are no trials of shards that do not exist yet, and no samples behind the first batch if it has all of them.
  EXPECT_EQ(PredictStreamingPacked(in, BuiltInPrices()).startup_range.most, 0);
  in.batch = 1000;
  EXPECT_NEAR(PredictStreaming(in, BuiltInPrices()).epoch_seconds, 1, 1e-9);
  for (const CostPrediction& one : {streaming, file}) {
    EXPECT_DOUBLE_EQ(ValueOf(one, "start-up"), one.startup_seconds) << one.mode;
    EXPECT_DOUBLE_EQ(ValueOf(one, "epoch"), one.epoch_seconds) << one.mode;
  }
  EXPECT_EQ(PredictStreamingWithCache(in, BuiltInPrices()).later_epoch_seconds,
            1);  // its CPUs, at a disk that is no limit
}

TEST(CostModel, TheModelCountsInTimeAndPrice) {
  CostInputs in = Published(1e9, 1000);
  in.cpu_seconds_per_sample = 0.008;  // 1 s on 8 vCPUs, as reading
  in.batch = 100;
  in.dollars_per_hour = 36;
  in.epochs = 3;
  in.step_seconds = 0.5;
  EXPECT_DOUBLE_EQ(ModelSeconds(in), 5);
  const CostPrediction slow = PredictStreaming(in, BuiltInPrices());
  EXPECT_DOUBLE_EQ(slow.epoch_seconds, 5);
  EXPECT_DOUBLE_EQ(ValueOf(slow, "model of an epoch"), 5);
  EXPECT_NEAR(slow.machine_dollars, (slow.startup_seconds + 15) / 100, 1e-9);
  EXPECT_DOUBLE_EQ(PredictStreamingWithCache(in, BuiltInPrices()).later_epoch_seconds, 5);
  in.accelerators = 8;  // the last step is not full
  EXPECT_DOUBLE_EQ(ModelSeconds(in), 1);
  in.step_seconds = 0.01;
  EXPECT_DOUBLE_EQ(PredictStreaming(in, BuiltInPrices()).epoch_seconds, 1);
  // The same holds if the loader was tried.
  in.tried_startup_seconds = {.median = 2, .least = 2, .most = 2};
  in.tried_samples_per_second = {.median = 900, .least = 450, .most = 9000};
  in.step_seconds = 1;
  const CostPrediction tried = PredictStreaming(in, BuiltInPrices());
  EXPECT_DOUBLE_EQ(tried.epoch_seconds, 2);
  EXPECT_DOUBLE_EQ(tried.later_epoch_seconds, 2);
  EXPECT_DOUBLE_EQ(tried.epoch_range.least, 2);
  EXPECT_DOUBLE_EQ(tried.epoch_range.most, 2);
}

TEST(CostModel, AnotherMachineConnectsAsThisOneDoes) {
  CostInputs in = Published(1e9, 1000);
  const double arithmetic = PredictStreaming(in, BuiltInPrices()).startup_seconds;
  in.tried_beyond_seconds = 0.4;
  const CostPrediction streaming = PredictStreaming(in, BuiltInPrices());
  EXPECT_NEAR(streaming.startup_seconds, arithmetic + 0.4, 1e-12);
  EXPECT_DOUBLE_EQ(ValueOf(streaming, "start-up"), streaming.startup_seconds);
}

TEST(CostModel, LinesAddUpToTheResult) {
  CostInputs in = Published(1e9, 25'000);
  in.cpu_seconds_per_sample = 0.002;
  in.index_bytes = 1'000'000;
  for (const CostPrediction& one :
       {PredictFile(in, BuiltInPrices()), PredictFastFile(in, BuiltInPrices()), PredictFsx(in, BuiltInPrices()),
        PredictStreaming(in, BuiltInPrices()), PredictStreamingWithCache(in, BuiltInPrices()),
        PredictMountWithCache(in, BuiltInPrices()), PredictEfs(in, BuiltInPrices()),
        PredictStreamingPacked(in, BuiltInPrices())}) {
    EXPECT_DOUBLE_EQ(ValueOf(one, "start-up"), one.startup_seconds) << one.mode;
    EXPECT_DOUBLE_EQ(ValueOf(one, "epoch"), one.epoch_seconds) << one.mode;
    EXPECT_DOUBLE_EQ(ValueOf(one, "price of requests"), one.request_dollars) << one.mode;
    for (const Derivation& line : one.lines) {
      EXPECT_TRUE(std::isfinite(line.value)) << one.mode << " " << line.name;
      EXPECT_FALSE(line.formula.empty() || line.numbers.empty()) << one.mode << " " << line.name;
    }
  }
  // Above 10,000 objects the index is not compared with the store, and nothing is listed.
  const CostPrediction streaming = PredictStreaming(in, BuiltInPrices());
  EXPECT_EQ(std::count_if(streaming.lines.begin(), streaming.lines.end(),
                          [](const Derivation& line) { return line.name == "listing"; }),
            0);
}

TEST(CostModel, EfsMountAndPacking) {
  const PriceList& prices = BuiltInPrices();
  // A terabyte has 150 MB/s, 300 MB/s for twelve hours of a day; a larger one no more than the most.
  EXPECT_NEAR(EfsBytesPerSecond(1e12, /*burst=*/false, prices), 150e6, 1);
  EXPECT_NEAR(EfsBytesPerSecond(1e12, /*burst=*/true, prices), 300e6, 1);
  EXPECT_NEAR(EfsBytesPerSecond(1e15, /*burst=*/false, prices), 3072e6, 1);
  EXPECT_NEAR(EfsDollars(1e12, 730 * 3600, prices), 300, 1e-6);
  CostInputs in = Published(1e12, 1'000'000);
  const CostPrediction copied = PredictEfs(in, prices);
  EXPECT_NEAR(ValueOf(copied, "copying to it"), 1e12 / 300e6, 1e-6);
  EXPECT_EQ(copied.requests, 1'001'000U);
  in.in_efs = true;
  const CostPrediction there = PredictEfs(in, prices);
  EXPECT_EQ(there.requests, 0U);
  EXPECT_LT(there.startup_seconds, 1);
  EXPECT_NEAR(there.epoch_seconds, 1e12 / 150e6, 1e-6);

  in.epochs = 4;
  in.disk_bytes_per_second = 2e9;
  const CostPrediction mount = PredictMountWithCache(in, prices);
  EXPECT_EQ(mount.requests, 1'001'000U);  // once
  EXPECT_NEAR(mount.later_epoch_seconds, 500, 1e-9);
  EXPECT_EQ(PredictFastFile(in, prices).requests, 4'001'000U);

  const CostPrediction packed = PredictStreamingPacked(in, prices);
  EXPECT_EQ(packed.requests, 4 * 635'783U + 1 + 7);  // 1 TB by 1.5 MiB, four times; 6,667 shards are 7 pages
  EXPECT_NEAR(ValueOf(packed, "price of packing, once"), 0.4 + 59'605 * 5e-6, 1e-9);
  EXPECT_LT(packed.request_dollars, PredictStreaming(in, prices).request_dollars);
}

TEST(CostModel, NothingIsDividedByZero) {
  const CostInputs nothing;
  for (const CostPrediction& one :
       {PredictFile(nothing, BuiltInPrices()), PredictFastFile(nothing, BuiltInPrices()),
        PredictFsx(nothing, BuiltInPrices()), PredictStreaming(nothing, BuiltInPrices()),
        PredictStreamingWithCache(nothing, BuiltInPrices()), PredictMountWithCache(nothing, BuiltInPrices()),
        PredictEfs(nothing, BuiltInPrices()), PredictStreamingPacked(nothing, BuiltInPrices())}) {
    for (const Derivation& line : one.lines) EXPECT_TRUE(std::isfinite(line.value)) << one.mode << " " << line.name;
  }
}

TEST(CostModel, Pages) {
  EXPECT_EQ(ListPages(0), 1U);
  EXPECT_EQ(ListPages(1000), 1U);
  EXPECT_EQ(ListPages(1001), 2U);
  EXPECT_EQ(ListPages(UINT64_MAX), UINT64_MAX / 1000 + 1);
}

TEST(CostModel, Steps) {
  // These are a p4d alone and with two c5.18xlarge that prepare its data; a p3 alone and with a c5.9xlarge.
  EXPECT_NEAR(DollarsOfSteps(37.688, 0.192, 100), 0.201, 0.0005);
  EXPECT_NEAR(DollarsOfSteps(45.032, 0.086, 100), 0.108, 0.0005);
  EXPECT_NEAR(DollarsOfSteps(3.825, 1.193, 100), 0.127, 0.0005);
  EXPECT_NEAR(DollarsOfSteps(5.661, 0.184, 100), 0.029, 0.0005);
  EXPECT_NEAR(1 - DollarsOfSteps(45.032, 0.086, 1) / DollarsOfSteps(37.688, 0.192, 1), 0.465, 0.001);
  EXPECT_NEAR(1 - DollarsOfSteps(5.661, 0.184, 1) / DollarsOfSteps(3.825, 1.193, 1), 0.772, 0.001);
}

TEST(CostModel, TinyDataAreToldAsTheyAre) {
  const auto advice = [](const CostInputs& in) {
    std::string text;
    const SourceChoice choice = ChooseSource({.bytes = static_cast<double>(in.object_bytes), .files = in.objects});
    for (const std::string& one : RecommendFrom(PredictAll(in, BuiltInPrices()), in, choice)) text += one + '\n';
    return text;
  };
  const CostInputs tiny = Published(60e3, 6);
  EXPECT_NE(advice(tiny).find(" is less than a cent.\n"), std::string::npos) << advice(tiny);
  EXPECT_EQ(advice(tiny).find('$'), std::string::npos) << advice(tiny);
  const std::string large = advice(Published(54e9, 1'500'000));
  EXPECT_EQ(large.find("less than a cent"), std::string::npos) << large;
  EXPECT_NE(large.find("in place of $"), std::string::npos) << large;
  const std::vector<Derivation> lines = PredictFile(tiny, BuiltInPrices()).lines;
  ASSERT_EQ(lines.front().name, "listing");
  EXPECT_EQ(lines.front().numbers.find("1 (of 6 objects) x "), 0U) << lines.front().numbers;
}

}  // namespace
}  // namespace millrace
