#include "pack/pack_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace millrace {
namespace {

using ::testing::HasSubstr;

PackJob SomeJob() {
  return {.source_uri = "/data/raw",
          .source = "0123",
          .samples = 7,
          .format = "tar",
          .shard_bytes = 1 << 20,
          .order = "kept",
          .classes = "",
          .fields = "",
          .shards = 3};
}

TEST(PackJob, WhatWasWrittenIsRead) {
  const PackJob job = SomeJob();
  const auto read = PackJob::FromJson(job.ToJson());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToJson(), job.ToJson());
  EXPECT_EQ(read->Id(), job.Id());
  EXPECT_EQ(Difference(*read, job), "");
}

TEST(PackJob, ImagesAreAPartOfTheJobIfTheyAreChanged) {
  PackJob job = SomeJob();
  EXPECT_EQ(job.ToJson().find("images"), std::string::npos) << "older versions must be able to continue it";
  job.images = ImagesOf({.shorter_side = 256, .quality = 80, .jpeg_tiles = true});
  EXPECT_EQ(job.images, "resized to 256 at quality 80 and tiled");
  EXPECT_EQ(ImagesOf({.jpeg_tiles = true}), "tiled");
  EXPECT_EQ(ImagesOf({}), "");
  const auto read = PackJob::FromJson(job.ToJson());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->images, job.images);
  EXPECT_EQ(read->Id(), job.Id());
  EXPECT_NE(read->Id(), SomeJob().Id());
  EXPECT_THAT(Difference(SomeJob(), job), HasSubstr("images are kept as they are there and resized to 256"));
}

TEST(PackJob, JobsThatWroteKeysInAnotherWayAreNotContinued) {
  EXPECT_EQ(KeysOf(DataKind::kMds), "");
  EXPECT_EQ(SomeJob().ToJson().find("keys"), std::string::npos) << "jobs of other formats are continued";
  PackJob job = SomeJob();
  job.keys = KeysOf(DataKind::kTar);
  const auto read = PackJob::FromJson(job.ToJson());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->Id(), job.Id());
  EXPECT_EQ(Difference(*read, job), "");
  EXPECT_NE(SomeJob().Id(), job.Id());
  EXPECT_THAT(Difference(SomeJob(), job), HasSubstr("another version of Millrace, which wrote keys in another way"));
}

TEST(PackJob, Records) {
  const PackRecord record{.job = SomeJob(), .shards = "abc", .samples = 6, .skipped = 1, .index_bytes = 500};
  const auto read = PackRecord::FromJson(record.ToJson());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToJson(), record.ToJson());
  EXPECT_EQ(read->job.Id(), SomeJob().Id());
  for (const std::string& text : {std::string(), SomeJob().ToJson(), std::string("{\"done\": {}}")})
    EXPECT_EQ(PackRecord::FromJson(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
}

TEST(PackJob, WhatWasLeftOut) {
  const std::vector<SkippedSample> skipped = {{.key = "a\"b\n", .why = "gone"}, {.key = "", .why = "\xff"}};
  const std::string lines = SkippedToJsonLines(skipped);
  const auto read = SkippedFromJsonLines(lines);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].key, "a\"b\n");
  EXPECT_EQ((*read)[1].why, "\xef\xbf\xbd");
  EXPECT_TRUE(SkippedFromJsonLines("")->empty());
  for (const char* text : {"x", "\n", "{\"key\": 1, \"why\": \"\"}", "{\"key\": \"\"}"})
    EXPECT_EQ(SkippedFromJsonLines(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
}

TEST(PackJob, NamesThatAreNoUtf8) {
  PackJob job = SomeJob();
  job.source_uri = "/data/\xff";
  EXPECT_EQ(Difference(*PackJob::FromJson(job.ToJson()), job), "");
}

TEST(PackJob, OtherTextIsRefused) {
  for (const char* text : {"", "millrace pack\n", "{}", "[]", "{\"version\": 2}", "{\"version\": 1, \"source\": 3}"})
    EXPECT_EQ(PackJob::FromJson(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
}

TEST(PackJob, TheDifferenceIsNamed) {
  const std::pair<std::function<void(PackJob*)>, const char*> cases[] = {
      {[](PackJob* job) { job->source = "4567"; }, "the objects of /data/raw have changed"},
      {[](PackJob* job) { job->source = "4567", job->source_uri = "/other"; }, "/data/raw there and /other now"},
      {[](PackJob* job) { job->shard_bytes = 2 << 20; }, "--shard-size is 1.0 MiB there and 2.0 MiB now"},
      {[](PackJob* job) { ++job->shard_bytes; }, "--shard-size is 1048576 bytes there and 1048577 bytes now"},
      {[](PackJob* job) { job->format = "mds"; }, "--format is tar there"},
      {[](PackJob* job) { job->order = "shuffled by seed 7"; }, "kept there and shuffled by seed 7 now"},
      {[](PackJob* job) { job->classes = "x"; }, "class map"},
      {[](PackJob* job) { job->fields = "x=y\n"; }, "--field"},
      {[](PackJob* job) { job->samples = 8; }, "the number of samples in the source is 7 there and 8 now"},
      {[](PackJob* job) { job->shards = 4; },
       "the number of shards is 3 there and 4 now: it was begun by another version"},
  };
  for (const auto& [change, message] : cases) {
    PackJob asked = SomeJob();
    change(&asked);
    EXPECT_THAT(Difference(SomeJob(), asked), HasSubstr(message));
    EXPECT_NE(SomeJob().Id(), asked.Id());
  }
}

// The same folder may be mounted at another place on another machine.
TEST(PackJob, TheUriOfTheSourceMayDiffer) {
  PackJob other = SomeJob();
  other.source_uri = "/mnt/raw";
  EXPECT_EQ(Difference(SomeJob(), other), "");
  EXPECT_EQ(SomeJob().Id(), other.Id());
}

}  // namespace
}  // namespace millrace
