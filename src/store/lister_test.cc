#include "store/lister.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "base/thread_pool.h"
#include "store/blocking.h"
#include "store/testing/forwarding_store.h"

namespace millrace {
namespace {

// Lists keys in pages of 1,000, answered by many threads after a while.
class KeyStore final : public ForwardingStore {
 public:
  KeyStore(std::vector<std::string> keys, int lists_at_once)
      : ForwardingStore({.root = "keys://", .lists_at_once = lists_at_once}), keys_(std::move(keys)) {}

  void List(ListOptions options, ListCallback done) override {
    ++in_flight_;
    threads_.Submit([this, options = std::move(options), done = std::move(done)]() mutable {
      const int now = ++at_once_;
      for (int most = most_at_once; most < now && !most_at_once.compare_exchange_weak(most, now);) {
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const int number = ++pages;  // another thread may count on meanwhile
      --at_once_;
      number == fail_page ? done(absl::UnavailableError("keys://: the store is away")) : done(Page(options));
      --in_flight_;
      in_flight_.notify_all();
    });
  }

  /// Returns when nothing is asked for any more: a reader asks in the callbacks of its requests, and when it is read.
  void WaitUntilIdle() {
    for (int count; (count = in_flight_) != 0;) in_flight_.wait(count);
  }

  std::atomic<int> pages{0};
  std::atomic<int> most_at_once{0};
  std::atomic<int> fail_page{-1};

 private:
  ListPage Page(const ListOptions& options) const {
    const std::string& after = std::max(options.continuation, options.start_after);
    auto key = after < options.prefix ? std::lower_bound(keys_.begin(), keys_.end(), options.prefix)
                                      : std::upper_bound(keys_.begin(), keys_.end(), after);
    ListPage page;
    for (; key != keys_.end() && key->starts_with(options.prefix); ++key) {
      if (page.objects.size() == 1000) {
        page.continuation = page.objects.back().key;
        break;
      }
      page.objects.emplace_back().key = *key;
    }
    return page;
  }

  const std::vector<std::string> keys_;
  std::atomic<int> at_once_{0};
  std::atomic<int> in_flight_{0};
  ThreadPool threads_{8, "keys"};
};

std::vector<std::string> Numbers(int count) {
  std::vector<std::string> keys;
  for (int i = 0; i < count; ++i) keys.push_back(fmt::format("p/{:08}", i));
  return keys;
}

absl::StatusOr<std::vector<std::string>> All(Lister& lister) {
  std::vector<std::string> keys;
  for (;;) {
    ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects, lister.Next());
    if (objects.empty()) return keys;
    for (const ObjectInfo& object : objects) keys.push_back(object.key);
  }
}

TEST(Lister, GivesAllKeysInOrder) {
  const std::vector<std::string> numbers = Numbers(60'500);
  for (const int lists_at_once : {1, 2, 8}) {
    KeyStore store(numbers, lists_at_once);
    Lister lister(store, "p/");
    const auto keys = All(lister);
    ASSERT_TRUE(keys.ok()) << keys.status();
    EXPECT_TRUE(*keys == numbers);
    EXPECT_TRUE(lister.Next()->empty()) << "the end stays the end";
    EXPECT_LE(store.most_at_once, lists_at_once);
    EXPECT_TRUE(lists_at_once == 1 || store.most_at_once > 1);
  }
}

TEST(Lister, GivesNothingWhereNothingIs) {
  KeyStore store(Numbers(10), 8);
  Lister lister(store, "q/");
  EXPECT_TRUE(lister.Next()->empty());
}

TEST(Lister, DoesNotRunFarAheadOfItsReader) {
  KeyStore store(Numbers(60'000), 1);
  Lister lister(store, "p/");
  ASSERT_FALSE(lister.Next()->empty());
  store.WaitUntilIdle();
  EXPECT_LE(store.pages, 10);
}

TEST(Lister, EndsWithTheErrorOfAnyPage) {
  for (const int fail_page : {1, 2, 17}) {
    KeyStore store(Numbers(60'000), 8);
    store.fail_page = fail_page;
    Lister lister(store, "p/");
    EXPECT_EQ(All(lister).status().ToString(), "UNAVAILABLE: keys://: the store is away");
    EXPECT_FALSE(lister.Next().ok());
  }
}

TEST(Lister, MayBeLeftAtAnyMoment) {
  for (int batches = 0; batches < 10; ++batches) {
    KeyStore store(Numbers(20'000), 8);
    Lister lister(store, "p/");
    for (int i = 0; i < batches; ++i) ASSERT_TRUE(lister.Next().ok());
  }
}

TEST(Lister, StopsWhenTold) {
  KeyStore store(Numbers(60'000), 1);
  std::stop_source stop;
  Lister lister(store, "p/", stop.get_token());
  ASSERT_TRUE(lister.Next().ok());
  std::jthread stopping([&] { stop.request_stop(); });
  absl::Status status;
  while (status.ok()) {
    const auto objects = lister.Next();
    status = objects.status();
    if (objects.ok() && objects->empty()) break;
  }
  EXPECT_EQ(status.ToString(), "CANCELLED: keys://p/: interrupted");
}

}  // namespace
}  // namespace millrace
