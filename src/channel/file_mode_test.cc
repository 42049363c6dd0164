#include "channel/file_mode.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "store/blocking.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class FileModeTest : public ::testing::Test {
 protected:
  FileModeTest() {
    job_.root = folder_.path() + "/ml";
    job_.channels = {{"train", "mem://data/p", ""}};
    EXPECT_TRUE(MakeJobTree(job_).ok());
  }

  void Put(const std::string& key, const std::string& text, const std::string& store = "data") {
    const absl::StatusOr<Location> to = stores_.Open("mem://" + store);
    ASSERT_TRUE(to.ok() && PutBlocking(*to->store, key, AsBytes(text)).ok());
  }

  absl::StatusOr<FileModeReport> Fill(const std::string& uri = "mem://data/p", std::stop_token stop = {}) {
    job_.channels.front().uri = uri;
    return FillChannel(stores_, job_, job_.channels.front(), {.progress = {}, .stop = std::move(stop)});
  }

  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> files;
    const fs::path folder = job_.ChannelFolder(job_.channels.front());
    if (!fs::exists(folder)) return files;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path());
      files[fs::relative(entry.path(), folder)] = {std::istreambuf_iterator<char>(file), {}};
    }
    return files;
  }

  TempFolder folder_;
  Runtime runtime_;
  Stores stores_{runtime_};
  TrainingJob job_;
};

TEST_F(FileModeTest, TheFolderIsLikeTheSource) {
  Put("p/a", "one");
  Put("p/deep/er/b", "two");
  Put("pq", "is not below p/");
  const absl::StatusOr<FileModeReport> report = Fill();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(Files(), UnorderedElementsAre(Pair("a", "one"), Pair("deep/er/b", "two")));
  EXPECT_EQ(report->objects, 2u);
  EXPECT_EQ(report->copied, 2u);
  EXPECT_EQ(report->bytes, 6u);
}

TEST_F(FileModeTest, ASecondRunCopiesWhatChanged) {
  Put("p/a", "one");
  Put("p/b", "two");
  Put("p/c", "three");
  ASSERT_TRUE(Fill().ok());
  Put("p/b", "twofold");
  const absl::StatusOr<Location> data = stores_.Open("mem://data");
  ASSERT_TRUE(data.ok() && DeleteBlocking(*data->store, "p/c").ok());
  const absl::StatusOr<FileModeReport> report = Fill();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->copied, 1u);
  EXPECT_EQ(report->objects, 2u);
  EXPECT_THAT(Files(), UnorderedElementsAre(Pair("a", "one"), Pair("b", "twofold")));
}

TEST_F(FileModeTest, OneObjectIsAChannel) {
  Put("p/a.tar", "one");
  Put("p/a.tar/b", "is another's");
  for (const uint64_t copied : {1, 0}) {
    const absl::StatusOr<FileModeReport> report = Fill("mem://data/p/a.tar");
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->copied, copied);
    EXPECT_THAT(Files(), UnorderedElementsAre(Pair("a.tar", "one")));
  }
}

// The contents of one URI are never taken for those of another, although names, sizes and even times would fit.
TEST_F(FileModeTest, AnotherUriReplacesEverything) {
  Put("p/a", "old", "other");
  Put("p/x", "gone", "data");
  Put("p/a", "new", "data");
  ASSERT_TRUE(Fill("mem://data/p").ok());
  const absl::StatusOr<FileModeReport> report = Fill("mem://other/p");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(Files(), UnorderedElementsAre(Pair("a", "old")));
}

TEST_F(FileModeTest, FilesOfOthersAreNotTouched) {
  Put("p/a", "one");
  const std::string folder = job_.ChannelFolder(job_.channels.front());
  fs::create_directories(folder);
  std::ofstream(folder + "/mine") << "precious";
  const absl::Status status = Fill().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("remove them"));
  EXPECT_THAT(Files(), UnorderedElementsAre(Pair("mine", "precious")));
}

TEST_F(FileModeTest, AnEmptySourceIsAnErrorAndRemovesNothing) {
  EXPECT_EQ(Fill().status().code(), absl::StatusCode::kNotFound);
  Put("p/a", "one");
  ASSERT_TRUE(Fill().ok());
  const absl::Status status = Fill("mem://data/typo").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("mem://data/typo has no objects"));
  EXPECT_THAT(Files(), UnorderedElementsAre(Pair("a", "one")));
}

TEST_F(FileModeTest, AnObjectThatCannotBeAFileIsNamed) {
  Put("p/a", "one");
  Put("p/../../escape", "two");
  const absl::Status status = Fill().status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("escape"));
  EXPECT_THAT(Files(), UnorderedElementsAre(Pair("a", "one")));
}

TEST_F(FileModeTest, AStopEndsIt) {
  Put("p/a", "one");
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(Fill("mem://data/p", stop.get_token()).status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(Files(), IsEmpty());
}

}  // namespace
}  // namespace millrace
