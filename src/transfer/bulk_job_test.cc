#include "transfer/bulk_job.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <set>

#include "store/blocking.h"
#include "store/file_store.h"
#include "store/pieces.h"
#include "store/testing/scripted_store.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class BulkJobTest : public ::testing::Test {
 protected:
  ObjectInfo Put(ObjectStore& store, const std::string& key, const std::string& text) {
    const auto put = PutBlocking(store, key, AsBytes(text));
    EXPECT_TRUE(put.ok()) << put.status();
    return *HeadBlocking(store, key);
  }
  std::vector<std::string> Keys(ObjectStore& store) {
    std::vector<std::string> keys;
    const auto objects = ListAll(store, "");
    EXPECT_TRUE(objects.ok()) << objects.status();
    for (const ObjectInfo& object : *objects) keys.push_back(object.key);
    return keys;
  }

  ScriptedStore from_{"from"};
  ScriptedStore to_{"to"};
};

TEST_F(BulkJobTest, CopiesSmallAndLargeObjectsAndTellsOfEachByte) {
  BulkProgress last;
  BulkJob job({.progress = [&](const BulkProgress& now) { last = now; }, .stop = {}});
  uint64_t bytes = 0;
  for (int i = 0; i < 200; ++i) {
    const std::string text(i % 50 == 7 ? (9 << 20) + i : i, static_cast<char>('a' + i % 26));
    bytes += text.size();
    ASSERT_TRUE(job.Copy(from_, Put(from_, fmt::format("{:03}", i), text), to_, fmt::format("to/{:03}", i)).ok());
  }
  const BulkReport report = job.Finish().copied;
  EXPECT_EQ(report.objects, 200u);
  EXPECT_EQ(report.bytes, bytes);
  EXPECT_EQ(report.failed, 0u);
  EXPECT_EQ(last.copied_bytes, bytes);
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(*ReadAll(to_, fmt::format("to/{:03}", i), 10 << 20), *ReadAll(from_, fmt::format("{:03}", i), 10 << 20));
  }
}

// To hand each object to a thread, and back after each of its requests, costs more than the work on it.
TEST_F(BulkJobTest, SmallObjectsTakeNoThreadsOfTheirOwn) {
  const auto threads_of_a_copy = [&](uint64_t bytes) {
    std::set<std::string> names;
    BulkJob job({.copied = [&](const ObjectInfo&, const std::string&, const ObjectInfo&) {
      std::array<char, 16> name{};
      pthread_getname_np(pthread_self(), name.data(), name.size());
      names.insert(name.data());
    }});
    const ObjectInfo object = Put(from_, "k", std::string(bytes, 'x'));
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(job.Copy(from_, object, to_, fmt::format("{}", i)).ok());
    EXPECT_EQ(job.Finish().copied.objects, 20u);
    return names;
  };
  EXPECT_FALSE(threads_of_a_copy(100'000).contains("bulk-job"));
  EXPECT_FALSE(threads_of_a_copy(0).contains("bulk-job"));
  EXPECT_THAT(threads_of_a_copy(kPieceBytes + 1), ElementsAre("bulk-job"));
  from_.set_medium(StoreTraits::Medium::kS3);
  EXPECT_FALSE(threads_of_a_copy(100'000).contains("bulk-job"));
  // Otherwise the threads of the first would make the checksums of the bytes that the second gets.
  to_.set_medium(StoreTraits::Medium::kS3);
  EXPECT_THAT(threads_of_a_copy(100'000), ElementsAre("bulk-job"));
}

TEST_F(BulkJobTest, SmallObjectsAreReadTwiceIfTheyAreToBe) {
  from_.set_medium(StoreTraits::Medium::kS3);  // and has no checksums
  from_.damage = [](MutableByteSpan bytes, const GetOptions&, int times) {
    if (times == 0 && bytes.size() == 7) bytes[3] ^= std::byte{1};
  };
  const ObjectInfo sound = Put(from_, "sound", "text");
  const ObjectInfo damaged = Put(from_, "damaged", "damaged");
  BulkJob once({});
  ASSERT_TRUE(once.Copy(from_, sound, to_, "once").ok());
  EXPECT_EQ(once.Finish().copied.unverified, 1u);
  BulkJob twice({.read_twice = true});
  for (const ObjectInfo& object : {sound, damaged}) ASSERT_TRUE(twice.Copy(from_, object, to_, object.key).ok());
  const BulkReport report = twice.Finish().copied;
  EXPECT_EQ(report.read_twice, 1u);
  EXPECT_EQ(report.unverified, 0u);
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_THAT(report.failures.begin()->second.ToString(), HasSubstr("two reads brought different bytes"));
  EXPECT_THAT(Keys(to_), ElementsAre("once", "sound"));
}

TEST_F(BulkJobTest, ItsEndWaitsForSmallObjects) {
  absl::AnyInvocable<void()> read_on;
  from_.on_get = [&](const GetOptions&, int, absl::AnyInvocable<void()> read, GetCallback&) {
    read_on = std::move(read);
  };
  {
    BulkJob job({});
    ASSERT_TRUE(job.Copy(from_, Put(from_, "a", "text"), to_, "a").ok());
    std::move(read_on)();
  }
  EXPECT_THAT(Keys(to_), ElementsAre("a"));
}

TEST_F(BulkJobTest, OneThatFailsLeavesTheOthers) {
  BulkJob job({});
  std::vector<ObjectInfo> objects;
  for (const char* key : {"a", "b", "c"}) objects.push_back(Put(from_, key, key));
  objects[1].etag = "of an older version";
  for (const ObjectInfo& object : objects) ASSERT_TRUE(job.Copy(from_, object, to_, object.key).ok());
  const BulkReport report = job.Finish().copied;
  EXPECT_EQ(report.objects, 2u);
  EXPECT_EQ(report.failed, 1u);
  EXPECT_THAT(report.failures, ElementsAre(Pair("mem://from/b", ::testing::_)));
  EXPECT_THAT(Keys(to_), ElementsAre("a", "c"));
}

TEST_F(BulkJobTest, OfManyFailuresTheFirstTenAreKept) {
  BulkReport report;
  for (int i = 30; i-- > 0;) report.Add(fmt::format("uri-{:02}", i), 1, absl::NotFoundError("gone"));
  report.Add("cut off", 1, absl::CancelledError("stopped"));
  EXPECT_EQ(report.failed, 30u);
  EXPECT_EQ(report.failures.size(), 10u);
  EXPECT_EQ(report.failures.begin()->first, "uri-00");
  EXPECT_EQ(report.failures.rbegin()->first, "uri-09");
}

TEST_F(BulkJobTest, AnErrorThatWouldMeetAllEndsIt) {
  from_.on_get = [](const GetOptions&, int, const absl::AnyInvocable<void()>&, GetCallback& done) {
    done(absl::UnauthenticatedError("no credentials"));
  };
  const ObjectInfo object = Put(from_, "a", "text");
  BulkJob job({});
  uint64_t added = 0;
  while (job.Copy(from_, object, to_, "a").ok()) ASSERT_LT(++added, 1'000'000u);
  const BulkReport report = job.Finish().copied;
  EXPECT_GE(report.failed, 1u);
  EXPECT_LE(report.failed, added);
}

TEST_F(BulkJobTest, AfterAStopNothingIsBegunAndWhatItCutsOffIsNotCounted) {
  std::stop_source stop;
  BulkJob job({.progress = [&](const BulkProgress&) { stop.request_stop(); }, .stop = stop.get_token()});
  const ObjectInfo large = Put(from_, "large", std::string(40 << 20, 'x'));
  ASSERT_TRUE(job.Copy(from_, large, to_, "large").ok());
  const ObjectInfo small = Put(from_, "small", "x");
  while (job.Copy(from_, small, to_, "small").ok()) {
  }
  ASSERT_TRUE(absl::IsCancelled(job.Remove(from_, large)));
  const BulkJob::Reports reports = job.Finish();
  EXPECT_EQ(reports.copied.failed, 0u);
  EXPECT_EQ(reports.removed.objects, 0u);
  EXPECT_TRUE(absl::IsNotFound(HeadBlocking(to_, "large").status()));
}

TEST_F(BulkJobTest, RemovesByTheThousand) {
  std::atomic<uint64_t> told{0};
  BulkJob job({.progress = [&](const BulkProgress& now) { told = now.removed_objects; }, .stop = {}});
  std::vector<ObjectInfo> objects;
  for (int i = 0; i < 2500; ++i) objects.push_back(Put(from_, fmt::format("{:04}", i), "x"));
  Put(from_, "stays", "x");
  for (const ObjectInfo& object : objects) ASSERT_TRUE(job.Remove(from_, object).ok());
  const BulkReport report = job.Finish().removed;
  EXPECT_EQ(report.objects, 2500u);
  EXPECT_EQ(report.bytes, 2500u);
  EXPECT_EQ(told, 2500u);
  EXPECT_THAT(Keys(from_), ElementsAre("stays"));
}

TEST_F(BulkJobTest, WhatLiesBehindALinkIsNotRemoved) {
  const std::filesystem::path root = std::filesystem::path(::testing::TempDir()) / fmt::format("bulk-job-{}", getpid());
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root / "folder");
  std::filesystem::create_directories(root / "elsewhere");
  FileStore store((root / "folder").string());
  FileStore elsewhere((root / "elsewhere").string());
  std::filesystem::create_symlink(root / "elsewhere", root / "folder/link");
  const ObjectInfo own = Put(store, "own", "x");
  ObjectInfo other = Put(elsewhere, "other", "x");
  other.key = "link/other";
  BulkJob job({});
  ASSERT_TRUE(job.Remove(store, own).ok());
  ASSERT_TRUE(job.Remove(store, other).ok());
  const BulkReport report = job.Finish().removed;
  EXPECT_EQ(report.objects, 1u);
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_THAT(report.failures.begin()->second.ToString(), HasSubstr("behind the link"));
  EXPECT_TRUE(std::filesystem::exists(root / "elsewhere/other"));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace millrace
