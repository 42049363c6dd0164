#include "diagnose/rivals.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr const char* kAnswer =
    R"({"first_batch_seconds": 1.5, "pixels": {"samples": 100, "mean": 120.5, "deviation": 20, "whole_epoch": true}, )"
    R"("windows": [{"seconds": 2, "samples": 100, "cpu_seconds": 1}, {"seconds": 2, "samples": 300, "cpu_seconds": 6}], )"
    R"("versions": {"torch": "2.0"}})";

TEST(RivalsTest, NamesAndDataOfTheirOwn) {
  const auto found = ParseRivals({"dataloader,mosaicml=s3://b/mds", "spdl"});
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 3u);
  EXPECT_EQ((*found)[0].name, "dataloader");
  EXPECT_EQ((*found)[0].uri, "");
  EXPECT_EQ((*found)[1].name, "mosaicml");
  EXPECT_EQ((*found)[1].uri, "s3://b/mds");
  EXPECT_EQ((*found)[2].name, "spdl");
  EXPECT_TRUE(ParseRivals({})->empty());
}

TEST(RivalsTest, AllAreThoseThatAreNotNamed) {
  const auto found = ParseRivals({"mosaicml=s3://b/mds,all"});
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), RivalNames().size());
  EXPECT_EQ(found->front().uri, "s3://b/mds");
  std::set<std::string> names;
  for (const RivalRequest& request : *found) names.insert(request.name);
  EXPECT_EQ(names.size(), RivalNames().size());
}

TEST(RivalsTest, WhatIsNoRivalIsRefused) {
  for (const std::string text : {"", "tensorflow", "spdl,", "spdl=", "spdl,spdl", "all,all", "all=s3://b/x"}) {
    const auto found = ParseRivals({text});
    EXPECT_TRUE(absl::IsInvalidArgument(found.status())) << text;
    EXPECT_THAT(std::string(found.status().message()), HasSubstr("--rival")) << text;
  }
}

TEST(RivalsTest, AnswersBecomeMediansAndCosts) {
  const auto point = ParseRivalAnswer(kAnswer);
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ(point->first_batch_seconds, 1.5);
  EXPECT_EQ(point->samples_per_second.least, 50);
  EXPECT_EQ(point->samples_per_second.most, 150);
  EXPECT_EQ(point->cpu_per_1000.median, 15);
  EXPECT_EQ(point->pixels.samples, 100u);
  EXPECT_TRUE(point->pixels.whole_epoch);
  ASSERT_EQ(point->versions.size(), 1u);
  EXPECT_EQ(point->versions[0].second, "2.0");
}

TEST(RivalsTest, AnswersThatMakeNoSenseAreRefused) {
  for (const std::string answer :
       {"", "null", "[]", "{}", R"({"first_batch_seconds": 1})", R"({"first_batch_seconds": 1, "windows": []})",
        R"({"first_batch_seconds": 1, "windows": [3]})",
        R"({"first_batch_seconds": 1, "windows": [{"seconds": 0, "samples": 1, "cpu_seconds": 1}]})",
        R"({"first_batch_seconds": -1, "windows": [{"seconds": 1, "samples": 1, "cpu_seconds": 1}]})",
        R"({"first_batch_seconds": 1, "windows": [{"seconds": 1, "samples": 1, "cpu_seconds": 1}], "pixels": 7})"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseRivalAnswer(answer).status())) << answer;
  }
}

TEST(RivalsTest, PixelsTellWhetherImagesWereDecoded) {
  const PixelMeans ours{.samples = 1000, .mean = 120, .deviation = 20, .whole_epoch = true};
  PixelMeans theirs = ours;
  theirs.mean = 123;
  EXPECT_EQ(PixelsDiffer(ours, theirs), "");
  theirs.mean = 130;
  EXPECT_THAT(PixelsDiffer(ours, theirs), HasSubstr("130.00"));
  theirs = ours;
  theirs.samples = 990;
  EXPECT_THAT(PixelsDiffer(ours, theirs), HasSubstr("990 images"));
  theirs.samples = 1024;
  theirs.whole_epoch = false;  // it was not at its end
  EXPECT_THAT(PixelsDiffer(ours, theirs), HasSubstr("more than 1000 images"));
  PixelMeans part = ours;  // of a large data set
  part.whole_epoch = false;
  EXPECT_EQ(PixelsDiffer(part, theirs), "");
  EXPECT_NE(PixelsDiffer(ours, PixelMeans{}), "");
}

// Provides a program in the place of Python.
class RivalProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = ::testing::TempDir() + "millrace-rivals-XXXXXX";
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    folder_ = path;
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  absl::StatusOr<RivalPoint> Run(const std::string& script) { return RunOver("s3://b/data", "", script); }
  absl::StatusOr<RivalPoint> RunOver(const std::string& uri, const std::string& copies, const std::string& script) {
    Install(script);
    BenchSettings settings;
    settings.loader.batch = 64;
    return MeasureRival({.name = "spdl"}, RunOf(uri, copies), settings);
  }
  void Install(const std::string& script) {
    const std::string python = folder_ + "/spdl/bin/python";
    std::filesystem::create_directories(folder_ + "/spdl/bin");
    std::ofstream(python) << "#!/bin/sh\n" << script << "\n";
    ::chmod(python.c_str(), 0755);
  }
  RivalRun RunOf(const std::string& uri, const std::string& copies) const {
    RivalRun run{.uri = uri, .environments = folder_, .scratch = folder_, .copies = copies, .workers = 3};
    run.ours = {.pixels = {.samples = 100, .mean = 120, .deviation = 20, .whole_epoch = true}, .kind = "tar"};
    return run;
  }
  std::string folder_;
};

TEST_F(RivalProcessTest, ItIsToldWhatToReadAndItsLastLineCounts) {
  const auto point = Run(fmt::format("echo noise; echo \"$@\" >{}/said; echo '{}'", folder_, kAnswer));
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ(point->left_out, "");
  EXPECT_EQ(point->name, "spdl");
  EXPECT_EQ(point->samples_per_second.median, 100);
  std::ifstream file(folder_ + "/said");
  const std::string said{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(said, HasSubstr("rival_loaders.py spdl s3://b/data --kind tar --batch 64 --workers 3"));
  for (const char* file : {"rival_loaders.py", "rival_copies.py", "rival_frameworks.py", "rival_images.py",
                           "rival_mounts.py", "rival_torch.py"})
    EXPECT_GT(std::filesystem::file_size(folder_ + "/" + file), 500U) << file;
}

TEST_F(RivalProcessTest, ItGetsACopyInItsOwnFormat) {
  const std::string data = folder_ + "/shards";
  std::filesystem::create_directories(data + "/.millrace");
  std::ofstream(data + "/1.tar") << "one";
  std::ofstream(data + "/.millrace/index") << "index";
  // Makes a file of the names that it is given, or says where it reads. The folder of the copy is the last word.
  const std::string script = fmt::format(
      R"(case "$*" in *--copy-to*) for word in "$@"; do [ "$last" = --copy-from ] && from=$word; last=$word; done
mkdir "$last"; ls -A "$from" >"$last/names";; *--needs-copy*) echo yes;; *) echo "$*" >{}/said; echo '{}';; esac)",
      folder_, kAnswer);
  const auto point = RunOver(data, folder_ + "/copies", script);
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ(point->left_out, "");
  EXPECT_EQ(point->uri, folder_ + "/copies/spdl");
  const auto text = [](const std::string& path) {
    std::ifstream file(path);
    return std::string{std::istreambuf_iterator<char>(file), {}};
  };
  EXPECT_EQ(text(folder_ + "/copies/spdl/names"), "1.tar\n");
  EXPECT_THAT(text(folder_ + "/said"), HasSubstr("spdl " + folder_ + "/copies/spdl --kind own"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/copy"));
}

TEST_F(RivalProcessTest, ItGetsNoCopyIfItMakesNone) {
  std::filesystem::create_directories(folder_ + "/shards");
  std::ofstream(folder_ + "/shards/1.tar") << "one";
  const std::string both = fmt::format("echo '{}'", kAnswer);
  const auto point = RunOver(folder_ + "/shards", folder_ + "/copies", both);
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ(point->left_out, "");
  EXPECT_EQ(point->uri, "");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/data"));  // nothing was copied for it
  EXPECT_EQ(RunOver(folder_ + "/shards", folder_ + "/copies", "echo 'pip install spdl-core' >&2; exit 3")->left_out,
            "pip install spdl-core");
}

TEST_F(RivalProcessTest, ACopyThatFailsLeavesItOut) {
  std::filesystem::create_directories(folder_ + "/shards");
  std::ofstream(folder_ + "/shards/1.tar") << "one";
  std::ofstream(folder_ + "/file") << "not a folder";
  const std::string script =
      R"(case "$*" in *--copy-to*) for last in "$@"; do :; done; mkdir "$last"; echo >"$last/one";; *) echo yes;; esac)";
  const auto point = RunOver(folder_ + "/shards", folder_ + "/file", script);
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_THAT(point->left_out, HasSubstr("copying the data for it failed"));
  EXPECT_EQ(point->uri, "");
  std::filesystem::remove_all(folder_ + "/data");
  const auto gone = RunOver("nosuch://place", folder_ + "/copies", script);
  ASSERT_TRUE(gone.ok()) << gone.status();
  EXPECT_THAT(gone->left_out, HasSubstr("copying the data for it failed"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/data"));
}

TEST_F(RivalProcessTest, EpochsAreToldOneByOne) {
  const auto epochs = [&](const std::string& samples, bool keep) {
    const std::string epoch = fmt::format(R"({{"seconds": 2, "samples": {}, "cpu_seconds": 1}})", samples);
    Install(fmt::format(R"(echo "$*" >{}/said; echo '{{"epochs": [{}, {}]}}')", folder_, epoch, epoch));
    return *MeasureRivalEpochs({.name = "spdl"}, RunOf("s3://b/data", ""), {}, 2, keep);
  };
  const RivalEpochs kept = epochs("100", true);
  EXPECT_EQ(kept.left_out, "");
  EXPECT_TRUE(kept.kept);
  ASSERT_EQ(kept.epochs.size(), 2u);
  EXPECT_EQ(kept.epochs[1].seconds, 2);
  EXPECT_EQ(kept.epochs[1].samples, 100u);
  std::ifstream file(folder_ + "/said");
  const std::string said{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(said, HasSubstr("--epochs 2 --keep"));
  EXPECT_THAT(epochs("99", false).left_out, HasSubstr("99 images, and the data set has 100"));
  Install("echo '{}'");
  EXPECT_THAT(MeasureRivalEpochs({.name = "spdl"}, RunOf("s3://b/data", ""), {}, 2, false)->left_out,
              HasSubstr("no 'epochs'"));
}

TEST_F(RivalProcessTest, WhatAKilledOneHasKeptIsGone) {
  // Keeps something in its scratch folder, whose name is behind --scratch, and says what it found there.
  Install(R"(for word in "$@"; do [ "$last" = --scratch ] && scratch=$word; last=$word; done
[ -e "$scratch/kept" ] && { echo found >&2; exit 1; }
mkdir -p "$scratch/kept"; kill -9 $$)");
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(MeasureRivalEpochs({.name = "spdl"}, RunOf("s3://b/data", ""), {}, 2, true)->left_out,
                HasSubstr("killed"));
    EXPECT_THAT(MeasureRival({.name = "spdl"}, RunOf("s3://b/data", ""), {})->left_out, HasSubstr("killed"));
    // This is the error of its copy.
    EXPECT_THAT(MeasureRival({.name = "spdl"}, RunOf("s3://b/data", "s3://b/copies"), {})->left_out,
                HasSubstr("killed"));
  }
}

TEST_F(RivalProcessTest, WhatIsWrongWithItIsItsOwn) {
  EXPECT_EQ(Run("echo first >&2; echo 'pip install spdl-core' >&2; exit 3")->left_out, "pip install spdl-core");
  EXPECT_THAT(Run("exit 7")->left_out, HasSubstr("ended with 7"));
  EXPECT_THAT(Run("echo nothing")->left_out, HasSubstr("not a JSON object"));
  EXPECT_THAT(Run("kill -9 $$")->left_out, HasSubstr("killed"));
}

}  // namespace
}  // namespace millrace
