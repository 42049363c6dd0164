#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <string>
#include <vector>

#include "store/blocking.h"
#include "store/testing/contract.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST_P(StoreContract, PutReplaces) {
  PutText("k", "a longer first version");
  PutText("k", "short");
  EXPECT_EQ(Contents("k"), "short");
  EXPECT_THAT(Keys(), ElementsAre("k"));
}

TEST_P(StoreContract, OnlyIfAbsentNeverReplaces) {
  PutOptions absent;
  absent.only_if_absent = true;
  EXPECT_TRUE(PutBlocking(store(), "k", AsBytes("first"), absent).ok());
  const auto second = PutBlocking(store(), "k", AsBytes("second"), absent);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists) << second.status();
  EXPECT_THAT(ToStd(second.status().message()), StartsWith(store().Uri("k")));
  EXPECT_EQ(Contents("k"), "first");
}

TEST_P(StoreContract, OnlyIfAbsentHasOneWinner) {
  constexpr int kRacers = 8;
  PutOptions absent;
  absent.only_if_absent = true;
  std::vector<std::string> bodies;
  for (int i = 0; i < kRacers; ++i) bodies.push_back(fmt::format("racer {}", i));
  std::latch finished(kRacers);
  std::atomic<int> winner{-1};
  std::atomic<int> won{0};
  std::atomic<int> lost{0};
  for (int i = 0; i < kRacers; ++i) {
    store().Put("k", AsBytes(bodies[i]), absent, [&, i](absl::StatusOr<ObjectInfo> result) {
      if (result.ok()) {
        winner = i;
        ++won;
      }
      if (absl::IsAlreadyExists(result.status())) ++lost;
      finished.count_down();
    });
  }
  finished.wait();
  ASSERT_EQ(won, 1);
  EXPECT_EQ(lost, kRacers - 1);
  EXPECT_EQ(Contents("k"), bodies[winner]);
}

TEST_P(StoreContract, DeletesAndDeletingNothingSucceeds) {
  PutText("dir/k", "x");
  EXPECT_TRUE(DeleteBlocking(store(), "dir/k").ok());
  EXPECT_EQ(HeadBlocking(store(), "dir/k").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Keys(), IsEmpty());
  EXPECT_TRUE(DeleteBlocking(store(), "dir/k").ok());
  EXPECT_TRUE(DeleteBlocking(store(), "never/was").ok());
  PutText("dir/k2", "x");
  EXPECT_TRUE(DeleteBlocking(store(), "dir").ok());
  EXPECT_EQ(Contents("dir/k2"), "x");
}

TEST_P(StoreContract, DeletesManyWithAStatusForEach) {
  PutText("a", "x");
  PutText("b/c", "x");
  PutText("keep", "x");
  std::promise<std::vector<absl::Status>> done;
  store().Delete({"a", "", "never/was", "b/c", "a"},
                 [&](std::vector<absl::Status> statuses) { done.set_value(std::move(statuses)); });
  const std::vector<absl::Status> statuses = done.get_future().get();
  ASSERT_EQ(statuses.size(), 5u);
  for (size_t i = 0; i < statuses.size(); ++i) {
    EXPECT_EQ(statuses[i].code(), i == 1 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kOk) << i;
  }
  EXPECT_THAT(Keys(), ElementsAre("keep"));
}

TEST_P(StoreContract, AWriterShowsNothingBeforeItsCommit) {
  PutText("old", "old contents");
  for (const std::string key : {"new/file", "old"}) {
    auto writer = store().Write(key, {});
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE((*writer)->Append(AsBytes("hello ")).ok());
    EXPECT_TRUE((*writer)->Append({}).ok());
    EXPECT_TRUE((*writer)->Append(AsBytes("world")).ok());
    EXPECT_EQ(Contents("old"), "old contents");
    EXPECT_EQ(HeadBlocking(store(), "new").status().code(), absl::StatusCode::kNotFound);
    if (key == "new/file") {
      EXPECT_THAT(Keys(), ElementsAre("old"));
    }
    const auto info = (*writer)->Commit();
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->key, key);
    EXPECT_EQ(info->size, 11u);
    EXPECT_EQ(info->etag, HeadBlocking(store(), key)->etag);
    EXPECT_EQ(Contents(key), "hello world");
  }
}

TEST_P(StoreContract, AnUncommittedWriterLeavesNothingBehind) {
  {
    auto small = store().Write("small", {});
    ASSERT_TRUE(small.ok());
    EXPECT_TRUE((*small)->Append(AsBytes("x")).ok());
    auto large = store().Write("dir/large", {});
    ASSERT_TRUE(large.ok());
    EXPECT_TRUE((*large)->Append(AsBytes(std::string(20 << 20, 'x'))).ok());
  }
  EXPECT_THAT(Keys(), IsEmpty());
  PutText("dir/other", "x");
  EXPECT_THAT(Keys(), ElementsAre("dir/other"));
}

TEST_P(StoreContract, WritersHandleEverySizeAroundAPart) {
  constexpr size_t kPart = 8 << 20;
  const std::string all = RandomText(3 * kPart + 5, 2);
  for (const size_t size : {size_t{0}, size_t{1}, kPart - 1, kPart, kPart + 1, 2 * kPart, all.size()}) {
    const std::string_view text = std::string_view(all).substr(all.size() - size);
    auto writer = store().Write("big", {});
    ASSERT_TRUE(writer.ok()) << writer.status();
    constexpr size_t kStep = 1'000'003;  // no divisor of a part
    for (size_t at = 0; at < size; at += kStep) ASSERT_TRUE((*writer)->Append(AsBytes(text.substr(at, kStep))).ok());
    const auto info = (*writer)->Commit();
    ASSERT_TRUE(info.ok()) << size << " " << info.status();
    EXPECT_EQ(info->size, size);
    EXPECT_TRUE(Contents("big") == text) << size;
  }
}

TEST_P(StoreContract, AWriterOnlyIfAbsentNeverReplaces) {
  PutOptions absent;
  absent.only_if_absent = true;
  PutText("k", "first");
  // The larger one needs several parts of an upload.
  for (const size_t size : {size_t{6}, size_t{9} << 20}) {
    const std::string text(size, 's');
    const auto write = [&](const std::string& key) -> absl::Status {
      ASSIGN_OR_RETURN(const auto writer, store().Write(key, absent));
      RETURN_IF_ERROR(writer->Append(AsBytes(text)));
      return writer->Commit().status();
    };
    const absl::Status taken = write("k");
    EXPECT_EQ(taken.code(), absl::StatusCode::kAlreadyExists) << taken;
    EXPECT_THAT(ToStd(taken.message()), StartsWith(store().Uri("k")));
    EXPECT_EQ(Contents("k"), "first");
    const absl::Status fresh = write(fmt::format("fresh {}", size));
    EXPECT_TRUE(fresh.ok()) << fresh;
    EXPECT_TRUE(Contents(fmt::format("fresh {}", size)) == text);
  }
}

}  // namespace
}  // namespace millrace
