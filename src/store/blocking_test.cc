#include "store/blocking.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <stop_token>
#include <thread>

#include "store/memory_store.h"
#include "store/testing/forwarding_store.h"

namespace millrace {
namespace {

TEST(ReadAll, GivesTheWholeObjectUpToALimit) {
  MemoryStore store("m");
  ASSERT_TRUE(PutBlocking(store, "k", AsBytes("0123456789")).ok());
  ASSERT_TRUE(PutBlocking(store, "empty", {}).ok());
  EXPECT_EQ(*ReadAll(store, "k", 10), "0123456789");
  EXPECT_EQ(*ReadAll(store, "empty", 0), "");
  EXPECT_EQ(ReadAll(store, "k", 9).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReadAll(store, "missing", 9).status().code(), absl::StatusCode::kNotFound);
}

TEST(ForEachPage, GivesEveryPageInOrderAndStopsAtAnError) {
  MemoryStore store("m");
  for (int i = 0; i < 2500; ++i) ASSERT_TRUE(PutBlocking(store, fmt::format("p/{:04}", i), {}).ok());
  ASSERT_TRUE(PutBlocking(store, "q", {}).ok());
  std::vector<size_t> sizes;
  const auto count = [&](const ListPage& page) {
    sizes.push_back(page.objects.size());
    return absl::OkStatus();
  };
  EXPECT_TRUE(ForEachPage(store, "p/", "", count).ok());
  EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), size_t{0}), 2500u);
  EXPECT_EQ(ListAll(store, "p/")->size(), 2500u);

  int pages = 0;
  const auto fail = [&](const ListPage&) {
    ++pages;
    return absl::DataLossError("stop");
  };
  EXPECT_EQ(ForEachPage(store, "p/", "", fail).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(pages, 1);
}

// Gives the same page for ever when it is listed, as a broken server does.
class StuckStore final : public ForwardingStore {
 public:
  void List(ListOptions, ListCallback done) override {
    ListPage page;
    page.continuation = "again";
    done(page);
  }
};

// Never answers.
class SilentStore final : public ForwardingStore {
 public:
  void Head(std::string, HeadOptions, HeadCallback) override {}
  void List(ListOptions, ListCallback) override {}
};

TEST(Blocking, AStopEndsTheWait) {
  SilentStore store;
  std::stop_source stop;
  std::jthread stopping([&] { stop.request_stop(); });
  EXPECT_TRUE(absl::IsCancelled(HeadBlocking(store, "k", stop.get_token()).status()));
  EXPECT_EQ(ListBlocking(store, {.prefix = "p"}, stop.get_token()).status().ToString(),
            "CANCELLED: test://p: interrupted");
}

TEST(ForEachPage, NoticesAListingThatDoesNotAdvance) {
  StuckStore store;
  EXPECT_EQ(ListAll(store, "x").status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace millrace
