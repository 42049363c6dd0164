#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "pack/pack.h"
#include "pack/testing/pack_fixture.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

class PackResume : public testing::PackTest {};

TEST_F(PackResume, WhatWasBegunIsNoDataSetAndIsContinued) {
  PutRawObjects("mem://s/raw", 4);
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/whole", 20'000).ok());
  BeginOnly("mem://s/raw", "mem://s/out", 20'000);
  const absl::Status opened = Dataset::Open(runtime_, stores_, "mem://s/out").status();
  EXPECT_EQ(opened.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(opened.ToString(), HasSubstr("run the same"));
  const auto report = Run("mem://s/raw", "mem://s/out", 20'000);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->complete);
  EXPECT_EQ(report->shards_kept, (report->shards + 1) / 2);
  EXPECT_EQ(Shards("mem://s/out"), Shards("mem://s/whole"));
  EXPECT_EQ(Digest("mem://s/out"), Digest("mem://s/raw"));
  EXPECT_EQ(Keys("mem://s/out").size(), report->shards + 2) << "shards, index and record, no leftovers";
}

TEST_F(PackResume, OnlyTheSameJobIsContinued) {
  PutRawObjects("mem://s/raw", 4);
  BeginOnly("mem://s/raw", "mem://s/out", 20'000);
  const std::vector<std::string> before = Keys("mem://s/out");
  const auto refused = [&](const absl::Status& status, const char* message) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(status.ToString(), HasSubstr(message));
    EXPECT_THAT(status.ToString(), HasSubstr("--force"));
    EXPECT_EQ(Keys("mem://s/out"), before);
  };
  refused(Run("mem://s/raw", "mem://s/out", 30'000).status(), "--shard-size");
  PackOptions shuffled;
  shuffled.shard_bytes = 20'000;
  shuffled.shuffle_seed = 3;
  refused(Run("mem://s/raw", "mem://s/out", shuffled).status(), "shuffled by seed 3");
  PutRawObjects("mem://s/raw2", 4);
  refused(Run("mem://s/raw2", "mem://s/out", 20'000).status(), "mem://s/raw/ there and mem://s/raw2/ now");
  Put("mem://s/raw", "new.jpg", "x");
  OpenOptions rebuild;
  rebuild.rebuild = true;
  ASSERT_TRUE(Dataset::Open(runtime_, stores_, "mem://s/raw", rebuild).ok());
  refused(Run("mem://s/raw", "mem://s/out", 20'000).status(), "have changed");

  ASSERT_TRUE(Run("mem://s/raw", "mem://s/out", 30'000, true).ok());
  EXPECT_EQ(Digest("mem://s/out"), Digest("mem://s/raw"));
}

TEST_F(PackResume, AShardThatWasReplacedIsWrittenAgain) {
  PutRawObjects("mem://s/raw", 4);
  BeginOnly("mem://s/raw", "mem://s/out", 20'000);
  Put("mem://s/out", "shard-000000.tar", "not this");
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/out", 20'000).ok());
  EXPECT_EQ(Digest("mem://s/out"), Digest("mem://s/raw"));
}

TEST_F(PackResume, AMarkOfAnotherVersionIsRefused) {
  Put("mem://s/in", "1.jpg", "x");
  Put("mem://s/out", ".millrace/incomplete", "millrace pack\n");
  const absl::Status status = Run("mem://s/in", "mem://s/out").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.ToString(), HasSubstr("--force"));
  EXPECT_TRUE(Run("mem://s/in", "mem://s/out", 256 << 20, true).ok());
}

// A kill between the record and the end: only cleaning up is left.
TEST_F(PackResume, WhenTheRecordIsThereTheRestIsCleaningUp) {
  PutRawObjects("mem://s/raw", 4);
  BeginOnly("mem://s/raw", "mem://s/out", 20'000);
  const std::string mark = ReadKey("mem://s/out", ".millrace/incomplete");
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/out", 20'000).ok());
  const std::vector<std::string> whole = Keys("mem://s/out");
  Put("mem://s/out", ".millrace/incomplete", mark);
  Put("mem://s/out", ".millrace/pack-000001-0123456789abcdef", "left over");
  const auto report = Run("mem://s/raw", "mem://s/out", 20'000);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->shards_kept, report->shards);
  EXPECT_EQ(report->samples, 60u);
  EXPECT_EQ(Keys("mem://s/out"), whole);
}

// A kill right before the exit: the same command finds everything done.
TEST_F(PackResume, WhatIsDoneIsNotDoneAgain) {
  PutRawObjects("mem://s/raw", 4);
  const auto first = Run("mem://s/raw", "mem://s/out", 20'000);
  ASSERT_TRUE(first.ok());
  const uint64_t puts = stores_.Open("mem://s/out")->store->counters().put;
  const auto report = Run("mem://s/raw", "mem://s/out", 20'000);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(stores_.Open("mem://s/out")->store->counters().put, puts);
  EXPECT_TRUE(report->complete);
  EXPECT_EQ(report->shards_kept, first->shards);
  EXPECT_EQ(report->samples, first->samples);
  EXPECT_EQ(report->shard_bytes, first->shard_bytes);
  EXPECT_EQ(report->index_bytes, first->index_bytes);
  Put("mem://s/out", "shard-000000.tar", "not this");
  const absl::Status changed = Run("mem://s/raw", "mem://s/out", 20'000).status();
  EXPECT_EQ(changed.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(changed.ToString(), HasSubstr("were changed"));
}

TEST_F(PackResume, PartsMakeWhatOneMakes) {
  PutRawObjects("mem://s/raw", 5);
  for (const std::optional<uint64_t> seed : {std::optional<uint64_t>(), std::optional<uint64_t>(9)}) {
    PackOptions options;
    options.shard_bytes = 20'000;
    options.shuffle_seed = seed;
    const std::string one = fmt::format("mem://s/one{}", seed.has_value()), many = one + "parts";
    ASSERT_TRUE(Run("mem://s/raw", one, options).ok());
    options.parts = 3;
    for (const uint64_t part : {2, 0, 1}) {
      options.part = part;
      const auto report = Run("mem://s/raw", many, options);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_EQ(report->complete, part == 1);
      EXPECT_EQ(report->missing == 0, part == 1);
      EXPECT_EQ(Dataset::Open(runtime_, stores_, many).ok(), part == 1);
    }
    EXPECT_EQ(Shards(many), Shards(one));
    EXPECT_EQ(Digest(many), Digest(one));
    EXPECT_EQ(Keys(many).size(), Keys(one).size());
  }
}

TEST_F(PackResume, MorePartsThanShards) {
  Put("mem://s/in", "1.jpg", "x");
  PackOptions options;
  options.parts = 3;
  for (const uint64_t part : {2, 1, 0}) {
    options.part = part;
    const auto report = Run("mem://s/in", "mem://s/out", options);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->complete, part == 0);
    EXPECT_EQ(report->samples, part == 0 ? 1u : 0u);
  }
  options.parts = 2;
  options.part = 2;
  EXPECT_EQ(Run("mem://s/in", "mem://s/out2", options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PackResume, PartsSideBySide) {
  PutRawObjects("mem://s/raw", 6);
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/one", 10'000).ok());
  Runtime runtime({.io_threads = 1, .cpu_threads = 1, .memory_bytes = 16 << 20});
  const auto dataset = Open("mem://s/raw");
  std::vector<std::thread> threads;
  std::atomic<int> complete = 0;
  for (uint64_t part = 0; part < 4; ++part) {
    threads.emplace_back([&, part] {
      Runtime own({.io_threads = 1, .cpu_threads = 1, .memory_bytes = 4 << 20});
      PackOptions options;
      options.shard_bytes = 10'000;
      options.parts = 4;
      options.part = part;
      const auto report = Pack(own, stores_, *dataset, "mem://s/parts", options);
      ASSERT_TRUE(report.ok()) << report.status();
      complete += report->complete ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(complete, 1);
  EXPECT_EQ(Shards("mem://s/parts"), Shards("mem://s/one"));
  EXPECT_EQ(Keys("mem://s/parts").size(), Keys("mem://s/one").size());
}

}  // namespace
}  // namespace millrace
