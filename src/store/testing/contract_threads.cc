#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "store/blocking.h"
#include "store/testing/contract.h"

namespace millrace {
namespace {

TEST_P(StoreContract, CallbacksRunOnceOnAThreadOfTheStore) {
  PutText("k", "0123456789");
  std::string into(10, '?');
  GetOptions options;
  options.range = {0, 10};
  const auto self = std::this_thread::get_id();
  std::atomic<int> calls{0};
  std::atomic<int> foreign{0};
  std::latch finished(10);
  const auto done = [&](auto) {
    ++calls;
    if (std::this_thread::get_id() != self) ++foreign;
    finished.count_down();
  };
  store().Get("k", AsWritableBytes(into), options, done);
  store().Get("missing", {}, {}, done);
  store().Get("", {}, {}, done);
  store().Head("k", {}, done);
  store().Head("", {}, done);
  store().Put("p", AsBytes("x"), {}, done);
  store().Put("", AsBytes("x"), {}, done);
  store().Delete({""}, done);
  store().List({}, done);
  store().List({.max_keys = 0}, done);
  finished.wait();
  store_.reset();
  EXPECT_EQ(calls, 10);
  EXPECT_EQ(foreign, 10);
}

TEST_P(StoreContract, TheDestructorWaitsForTheCallbacks) {
  constexpr int kCalls = 64;
  PutText("k", std::string(100'000, 'k'));
  std::vector<std::string> into(kCalls, std::string(100'000, '?'));
  std::atomic<int> gets{0};
  std::atomic<int> others{0};
  for (int i = 0; i < kCalls; ++i) {
    GetOptions options;
    options.range = {0, into[i].size()};
    store().Get("k", AsWritableBytes(into[i]), options, [&](absl::StatusOr<GetResult> result) {
      if (result.ok() || absl::IsCancelled(result.status())) ++gets;
    });
    store().Put(fmt::format("p{}", i), AsBytes("x"), {}, [&](absl::StatusOr<ObjectInfo>) { ++others; });
    store().Head("k", {}, [&](absl::StatusOr<ObjectInfo>) { ++others; });
    store().List({}, [&](absl::StatusOr<ListPage>) { ++others; });
    store().Delete({"missing"}, [&](const std::vector<absl::Status>&) { ++others; });
  }
  store_.reset();
  EXPECT_EQ(gets, kCalls);
  EXPECT_EQ(others, 4 * kCalls);
}

TEST_P(StoreContract, AStoppedReadIsCancelled) {
  PutText("k", "0123456789");
  std::stop_source stop;
  GetOptions options;
  options.stop = stop.get_token();
  EXPECT_TRUE(GetText("k", {0, 10}, options).ok());
  stop.request_stop();
  const auto got = GetText("k", {0, 10}, options);
  EXPECT_EQ(got.status().code(), absl::StatusCode::kCancelled) << got.status();
}

TEST_P(StoreContract, ProgressEndsWithDone) {
  PutText("k", "0123456789");
  RequestProgress progress{RequestPhase::kConnect};
  GetOptions options;
  options.progress = &progress;
  EXPECT_TRUE(GetText("k", {0, 10}, options).ok());
  EXPECT_EQ(progress.load(), RequestPhase::kDone);
  progress = RequestPhase::kConnect;
  EXPECT_FALSE(GetText("missing", {0, 10}, options).ok());
  EXPECT_EQ(progress.load(), RequestPhase::kDone);
}

TEST_P(StoreContract, CountsRequestsAndBytes) {
  const RequestCounters& counters = store().counters();
  const uint64_t put = counters.put, get = counters.get, head = counters.head, list = counters.list, del = counters.del;
  const uint64_t bytes = counters.bytes_read;
  PutText("k", "0123456789");
  EXPECT_TRUE(GetText("k", {2, 5}).ok());
  EXPECT_TRUE(HeadBlocking(store(), "k").ok());
  EXPECT_TRUE(ListBlocking(store(), {}).ok());
  EXPECT_TRUE(DeleteBlocking(store(), "k").ok());
  EXPECT_EQ(counters.put, put + 1);
  EXPECT_EQ(counters.get, get + 1);
  EXPECT_EQ(counters.head, head + 1);
  EXPECT_EQ(counters.list, list + 1);
  EXPECT_EQ(counters.del, del + 1);
  EXPECT_EQ(counters.bytes_read, bytes + 5);
}

TEST_P(StoreContract, IsThreadSafe) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 20;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const std::string key = fmt::format("t{}/{}", t, i);
        if (!PutBlocking(store(), key, AsBytes(key)).ok() || Contents(key) != key) ++wrong;
        if (!ListBlocking(store(), {.prefix = "t"}).ok()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(Keys("t").size(), static_cast<size_t>(kThreads * kRounds));
}

// A reader at the same time sees one version or the other, whole.
TEST_P(StoreContract, ReplacingIsAtomicForReaders) {
  const std::string a(200'000, 'a');
  const std::string b(200'000, 'b');
  PutText("k", a);
  std::atomic<bool> done{false};
  std::atomic<int> mixed{0};
  std::thread writer([&] {
    for (int i = 0; i < 10; ++i) (void)PutBlocking(store(), "k", AsBytes(i % 2 == 0 ? b : a));
    done = true;
  });
  do {
    const auto text = GetText("k", {0, a.size()});
    if (!text.ok() || (*text != a && *text != b)) ++mixed;
  } while (!done);
  writer.join();
  EXPECT_EQ(mixed, 0);
}

}  // namespace
}  // namespace millrace
