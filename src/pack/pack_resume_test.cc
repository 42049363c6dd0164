#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>

#include "pack/destination.h"
#include "pack/merge.h"
#include "pack/pack.h"
#include "pack/testing/pack_fixture.h"
#include "store/memory_store.h"
#include "store/testing/scripted_store.h"

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
  EXPECT_TRUE(report->complete && !report->already_packed);
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

// It may be of a run that is about to write its fragment, and an index may have its ETag.
TEST_F(PackResume, AWholeShardWithoutAFragmentIsNotReplaced) {
  PutRawObjects("mem://s/raw", 4);
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/one", 20'000).ok());
  PackOptions second_half;
  second_half.shard_bytes = 20'000;
  second_half.parts = 2;
  second_half.part = 1;
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/out", second_half).ok());
  Put("mem://s/out", "shard-000000.tar", ReadKey("mem://s/one", "shard-000000.tar"));
  const auto out = stores_.Open("mem://s/out");
  const std::string etag = HeadBlocking(*out->store, out->Key("shard-000000.tar"))->etag;
  const auto report = Run("mem://s/raw", "mem://s/out", 20'000);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->complete);
  EXPECT_EQ(HeadBlocking(*out->store, out->Key("shard-000000.tar"))->etag, etag);
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
  EXPECT_TRUE(report->complete && report->already_packed && !first->already_packed);
  EXPECT_EQ(report->shards_kept, first->shards);
  EXPECT_EQ(report->samples, first->samples);
  EXPECT_EQ(report->shard_bytes, first->shard_bytes);
  EXPECT_EQ(report->index_bytes, first->index_bytes);
  Put("mem://s/out", "shard-000000.tar", "not this");
  const absl::Status changed = Run("mem://s/raw", "mem://s/out", 20'000).status();
  EXPECT_EQ(changed.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(changed.ToString(), HasSubstr("were changed"));
}

// Objects that users have put beside the shards stay, in this run and in later ones.
TEST_F(PackResume, NothingElseIsRemoved) {
  PutRawObjects("mem://s/raw", 4);
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/out", 20'000).ok());
  Put("mem://s/out", "shard-000999.tar", "of somebody");
  Put("mem://s/out", "shard-000000.rec", "of somebody");
  const std::vector<std::string> before = Keys("mem://s/out");
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/out", 20'000).ok());
  EXPECT_EQ(Keys("mem://s/out"), before);
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/out", 20'000, true).ok());
  EXPECT_EQ(Keys("mem://s/out").size(), before.size() - 2) << "--force replaces shards, whoever has written them";
  for (const char* name : {"shard-000001.txt", "shard-000001", "shard-000001.tar.txt", "shard-000001.notes.tar"}) {
    Put("mem://s/out", name, "mine");
    const absl::Status forced = Run("mem://s/raw", "mem://s/out", 20'000, true).status();
    EXPECT_EQ(forced.code(), absl::StatusCode::kAlreadyExists) << name;
    EXPECT_EQ(ReadKey("mem://s/out", name), "mine");
    const auto location = stores_.Open("mem://s/out");
    ASSERT_TRUE(DeleteBlocking(*location->store, location->Key(name)).ok());
  }
}

TEST_F(PackResume, AShardOfSomebodyInWhatWasBegun) {
  PutRawObjects("mem://s/raw", 4);
  BeginOnly("mem://s/raw", "mem://s/out", 20'000);
  Put("mem://s/out", "shard-000999.tar", "of somebody");
  const absl::Status status = Run("mem://s/raw", "mem://s/out", 20'000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(status.ToString(), HasSubstr("shard-000999.tar"));
}

// A shard that the index pins is not replaced by a run that has begun earlier and comes late.
TEST_F(PackResume, WhoComesLateReplacesNothing) {
  PutRawObjects("mem://s/raw", 4);
  BeginOnly("mem://s/raw", "mem://s/out", 20'000);
  Put("mem://s/out", "shard-000001.tar", "a killed run's");
  const auto job = PackJob::FromJson(ReadKey("mem://s/out", ".millrace/incomplete"));
  ASSERT_TRUE(job.ok());
  PackDestination late(*stores_.Open("mem://s/out"), DataKind::kTar, {});
  ASSERT_TRUE(late.Begin(*job, false).ok());
  EXPECT_FALSE(late.ClaimShard(0)->granted) << "it is complete";
  EXPECT_TRUE(late.ClaimShard(3)->granted) << "it is missing";
  EXPECT_EQ(late.ClaimShard(3)->stale_etag, "");
  EXPECT_TRUE(late.ClaimShard(1)->granted);
  EXPECT_NE(late.ClaimShard(1)->stale_etag, "") << "only that may be replaced";
  EXPECT_EQ(ReadKey("mem://s/out", "shard-000001.tar"), "a killed run's") << "and nothing is missing meanwhile";
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/out", 20'000).ok());
  const std::vector<std::string> whole = Keys("mem://s/out");
  EXPECT_FALSE(late.ClaimShard(1)->granted);
  EXPECT_FALSE(*late.IsInProgress());
  EXPECT_EQ(Keys("mem://s/out"), whole);
  EXPECT_EQ(Digest("mem://s/out"), Digest("mem://s/raw"));
}

// An answer that was lost, or another run: what is there is taken if it has the very bytes.
TEST_F(PackResume, AShardThatCameMeanwhileIsAdoptedByItsBytes) {
  PutRawObjects("mem://s/raw", 4);
  BeginOnly("mem://s/raw", "mem://s/out", 20'000);
  const auto job = PackJob::FromJson(ReadKey("mem://s/out", ".millrace/incomplete"));
  PackDestination mine(*stores_.Open("mem://s/out"), DataKind::kTar, {});
  ASSERT_TRUE(mine.Begin(*job, false).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(mine.Adopt(1, 5, {}).status())) << "nothing is there";
  Put("mem://s/out", "shard-000001.tar", "bytes");
  Xxh3Stream hash;
  hash.Update(AsBytes("bytes"));
  EXPECT_TRUE(mine.Adopt(1, 5, hash.Digest()).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(mine.Adopt(1, 6, hash.Digest()).status()));
  Put("mem://s/out", "shard-000001.tar", "other");
  EXPECT_TRUE(absl::IsAlreadyExists(mine.Adopt(1, 5, hash.Digest()).status())) << "of the same size";
}

// A run that still works at a replaced job writes nothing more.
TEST_F(PackResume, AnotherJobMeanwhile) {
  PutRawObjects("mem://s/raw", 4);
  BeginOnly("mem://s/raw", "mem://s/out", 20'000);
  const auto job = PackJob::FromJson(ReadKey("mem://s/out", ".millrace/incomplete"));
  PackDestination old(*stores_.Open("mem://s/out"), DataKind::kTar, {});
  ASSERT_TRUE(old.Begin(*job, false).ok());
  PackJob other = *job;
  other.shard_bytes = 77;
  PackDestination now(*stores_.Open("mem://s/out"), DataKind::kTar, {});
  ASSERT_TRUE(now.Begin(other, true).ok());
  for (const absl::Status& status : {old.IsInProgress().status(), old.ClaimShard(3).status(), old.Look().status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(status.ToString(), HasSubstr("--shard-size"));
  }
  EXPECT_TRUE(*now.IsInProgress());
}

// At no moment is what --force has begun to remove a data set.
TEST_F(PackResume, ForceMarksFirst) {
  PutRawObjects("mem://s/raw", 4);
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/out", 20'000).ok());
  PackJob other;
  other.shards = 1;
  PackDestination now(*stores_.Open("mem://s/out"), DataKind::kTar, {});
  ASSERT_TRUE(now.Begin(other, true).ok());
  EXPECT_THAT(Keys("mem://s/out"), ::testing::ElementsAre("out/.millrace/incomplete"));
  EXPECT_EQ(Dataset::Open(runtime_, stores_, "mem://s/out").status().code(), absl::StatusCode::kFailedPrecondition);
}

// A record of shards that somebody has removed does not say that the job is done.
TEST_F(PackResume, AStaleRecordIsReplaced) {
  PutRawObjects("mem://s/raw", 4);
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/out", 20'000).ok());
  const auto location = stores_.Open("mem://s/out");
  for (const std::string& key : Keys("mem://s/out")) {
    if (key.ends_with("/packed")) continue;
    ASSERT_TRUE(DeleteBlocking(*location->store, key).ok());
  }
  const auto report = Run("mem://s/raw", "mem://s/out", 20'000);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->complete);
  EXPECT_EQ(Digest("mem://s/out"), Digest("mem://s/raw"));
  EXPECT_EQ(Run("mem://s/raw", "mem://s/out", 20'000)->shards_kept, report->shards);
}

// A finished pack stays finished, whatever objects lie beside it.
TEST_F(PackResume, AFinishedPackWithOtherFiles) {
  PutRawObjects("mem://s/raw", 4);
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/out", 20'000).ok());
  Put("mem://s/out", "README", "mine");
  const auto report = Run("mem://s/raw", "mem://s/out", 20'000);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->shards_kept, report->shards);
}

// The same command, twice at a time: one may give up, but what is there is right.
TEST_F(PackResume, TwoRunsOfOneCommand) {
  PutRawObjects("mem://s/raw", 6);
  ASSERT_TRUE(Run("mem://s/raw", "mem://s/one", 10'000).ok());
  const auto dataset = Open("mem://s/raw");
  for (int round = 0; round < 5; ++round) {
    const std::string to = fmt::format("mem://s/twice{}", round);
    std::vector<std::thread> threads;
    std::atomic<int> done = 0;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        Runtime own({.io_threads = 1, .cpu_threads = 1, .memory_bytes = 4 << 20});
        PackOptions options;
        options.shard_bytes = 10'000;
        const auto report = Pack(own, stores_, *dataset, to, options);
        EXPECT_TRUE(report.ok() || absl::IsAlreadyExists(report.status())) << report.status();
        done += report.ok() && report->complete ? 1 : 0;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(done > 0 || Run("mem://s/raw", to, 10'000).ok());
    EXPECT_EQ(Shards(to), Shards("mem://s/one"));
    EXPECT_EQ(Digest(to), Digest("mem://s/raw"));
  }
}

TEST_F(PackResume, WhatWasLeftOutIsNotForgotten) {
  PutRawObjects("mem://s/raw", 4);
  const auto dataset = Open("mem://s/raw");
  IndexedSample sample;
  IndexedObject object;
  ASSERT_TRUE(dataset->index().Lookup(7, &sample).ok());
  ASSERT_TRUE(dataset->index().LookupObject(sample.object, &object).ok());
  Put("mem://s/raw", object.key, "another");
  PackOptions options;
  options.shard_bytes = 20'000;
  options.skip_bad = true;
  const auto first = Pack(runtime_, stores_, *dataset, "mem://s/out", options);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->skipped.size(), 1u);
  const auto again = Pack(runtime_, stores_, *dataset, "mem://s/out", options);
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->skipped.size(), 1u);
  EXPECT_EQ(again->skipped[0].key, sample.key);
  EXPECT_EQ(again->skipped[0].why, first->skipped[0].why);
  EXPECT_EQ(again->samples, 59u);
  options.skip_bad = false;
  const absl::Status plain = Pack(runtime_, stores_, *dataset, "mem://s/out", options).status();
  EXPECT_EQ(plain.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(plain.ToString(), HasSubstr("--skip-bad"));
}

// Half of it is packed with --skip-bad, the rest without: the run that completes the job must agree.
TEST_F(PackResume, HolesAreNotAcceptedSilently) {
  PutRawObjects("mem://s/raw", 4);
  const auto dataset = Open("mem://s/raw");
  IndexedSample sample;
  IndexedObject object;
  ASSERT_TRUE(dataset->index().Lookup(0, &sample).ok());
  ASSERT_TRUE(dataset->index().LookupObject(sample.object, &object).ok());
  Put("mem://s/raw", object.key, "another");
  PackOptions options;
  options.shard_bytes = 20'000;
  options.skip_bad = true;
  options.parts = 2;
  ASSERT_TRUE(Pack(runtime_, stores_, *dataset, "mem://s/out", options).ok());
  options.parts = 1;
  options.skip_bad = false;
  const absl::Status plain = Pack(runtime_, stores_, *dataset, "mem://s/out", options).status();
  EXPECT_EQ(plain.code(), absl::StatusCode::kFailedPrecondition) << plain;
  EXPECT_THAT(plain.ToString(), HasSubstr(std::string(sample.key)));
  EXPECT_FALSE(Dataset::Open(runtime_, stores_, "mem://s/out").ok()) << "not complete";
  options.skip_bad = true;
  EXPECT_TRUE(Pack(runtime_, stores_, *dataset, "mem://s/out", options).ok());
}

// An outage is no bad sample: a folder that was unmounted, a bucket that is gone.
TEST_F(PackResume, ASourceThatIsGoneIsNotSkipped) {
  PutRawObjects("mem://s/raw", 4);
  const auto dataset = Open("mem://s/raw");
  const auto location = stores_.Open("mem://s/raw");
  for (const std::string& key : Keys("mem://s/raw")) ASSERT_TRUE(DeleteBlocking(*location->store, key).ok());
  PackOptions options;
  options.skip_bad = true;
  absl::Status status = Pack(runtime_, stores_, *dataset, "mem://s/out", options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("if all of the source is there"));
  // Nor a part of it: a class that lies on a file system of its own, or was made again.
  PutRawObjects("mem://s/raw", 4);
  status = Pack(runtime_, stores_, *dataset, "mem://s/out", options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
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

// Another run completes the job at any point after this one has listed what is there.
TEST_F(PackResume, CompletedAfterTheListing) {
  for (const bool before_merging : {true, false}) {
    MemoryStore store("job");
    const Location location{.store = &store, .prefix = "out/"};
    PackJob job;
    job.samples = job.shards = 1;
    PackDestination other(location, DataKind::kTar, {});
    PackDestination destination(location, DataKind::kTar, {});
    ASSERT_TRUE(other.Begin(job, /*force=*/false).ok());
    ASSERT_TRUE(destination.Begin(job, /*force=*/false).ok());
    const auto shard = PutBlocking(store, location.Key(destination.names().Shard(0)), AsBytes("shard"));
    ASSERT_TRUE(shard.ok());
    for (const std::string& key :
         {location.Key(destination.names().Fragment(0, 5, shard->etag)), location.Key(".millrace/index")})
      ASSERT_TRUE(PutBlocking(store, key, AsBytes("bytes")).ok());
    EXPECT_TRUE(other.Look().value());
    EXPECT_TRUE(destination.Look().value());
    EXPECT_EQ(destination.there().Missing(), 0u);

    const PackDestination::Done done{.samples = 1, .index_bytes = 5, .skipped = {}, .incomplete_objects = {}};
    ASSERT_TRUE(other.Record(done).ok());
    ASSERT_TRUE(other.CleanUp().ok());
    if (before_merging) {
      Runtime runtime({.io_threads = 1, .cpu_threads = 1, .memory_bytes = 4 << 20});
      EXPECT_EQ(MergeFragments(destination, runtime.memory(), {}).status().code(), absl::StatusCode::kNotFound);
      EXPECT_FALSE(destination.Look().value());
    } else {
      EXPECT_TRUE(destination.Record(done).ok());
    }
    EXPECT_TRUE(destination.record().has_value()) << "it is done, and was not removed";
  }
}

// A pack makes only as many requests as are needed to keep this safe: each request in turn is a round trip at its end.
TEST_F(PackResume, WhatIsListedIsNotAskedForAgain) {
  ScriptedStore store;
  std::atomic<int> heads = 0;
  store.on_head = [&](const std::string&) { ++heads; };
  const Location location{.store = &store, .prefix = "out/"};
  PackJob job;
  job.samples = job.shards = 1;
  PackDestination destination(location, DataKind::kTar, {});
  ASSERT_TRUE(destination.Begin(job, /*force=*/false).ok());
  ASSERT_TRUE(destination.Look().value());
  EXPECT_EQ(heads, 0);
  EXPECT_TRUE(store.gets().empty());
  EXPECT_TRUE(*destination.IsInProgress());
  EXPECT_EQ(heads, 1);
  EXPECT_TRUE(store.gets().empty());

  PackDestination another(location, DataKind::kTar, {});
  ASSERT_TRUE(another.Begin(job, /*force=*/false).ok());
  EXPECT_EQ(heads, 1);
  EXPECT_EQ(store.gets().size(), 1u) << "the mark, to compare jobs";
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
