#include "mount/look_ahead.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "store/blocking.h"
#include "store/testing/scripted_store.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

class LookAheadTest : public ::testing::Test {
 protected:
  LookAheadTest() {
    for (int i = 0; i < 300; ++i) {
      EXPECT_TRUE(PutBlocking(store_, Key(i), AsBytes(fmt::format("text {}", i))).ok());
    }
  }
  static std::string Key(int i) { return fmt::format("p/{}/{:04}", i / 50, i); }

  bool Eventually(const std::function<bool()>& done) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    while (!done() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    return done();
  }
  Node NodeOf(int i) {
    const ObjectInfo info = *HeadBlocking(store_, Key(i));
    return {.key = Key(i), .size = info.size, .etag = info.etag};
  }

  // The budgets come before the store, which waits for its requests: what those hold is given back until then.
  MemoryBudget memory_{64 << 20};
  MemoryBudget little_{20};
  ScriptedStore store_;
  BlockTier tier_{store_, memory_, 16 << 20};
  RemoteTree tree_{store_, std::chrono::hours(1)};
  AheadLimits limits_{.files = 16, .ttl = std::chrono::hours(1)};
};

TEST_F(LookAheadTest, FilesInOrderAreReadBeforeTheyAreOpenedAcrossFolders) {
  LookAhead ahead(store_, tier_, tree_, "p/", limits_, "");
  for (int i = 0; i < 300; ++i) {
    if (i == 3) {
      ASSERT_TRUE(Eventually([&] { return ahead.Find(Key(20)).has_value(); }));
    }
    if (i > 8) {
      ASSERT_TRUE(Eventually([&] { return tier_.Has(NodeOf(i), 0); })) << i;
      EXPECT_TRUE(ahead.Find(Key(i)).has_value()) << i;
    }
    ahead.OnOpen(Key(i));
  }
  // The store gets one listing for each thousand keys or so, and reads each file once.
  EXPECT_LE(store_.counters().list, 5u);
  EXPECT_LE(store_.gets().size(), 300u);
}

TEST_F(LookAheadTest, FilesAtRandomCostFewListings) {
  LookAhead ahead(store_, tier_, tree_, "p/", limits_, "");
  Rng rng(2);
  for (int i = 0; i < 2000; ++i) ahead.OnOpen(fmt::format("q/{}", rng.Below(1 << 30)));
  EXPECT_LE(store_.counters().list, 60u);
  EXPECT_TRUE(store_.gets().empty());
}

TEST_F(LookAheadTest, AFileOfTheOrderIsFollowedAndReadAgainWhenItIsReplaced) {
  const TempFolder folder;
  const std::string path = folder.path() + "/order";
  const auto write = [&](const std::vector<int>& order) {
    std::ofstream file(path + ".new");
    for (const int i : order) file << Key(i).substr(2) << "\n";
    file.close();
    ASSERT_EQ(std::rename((path + ".new").c_str(), path.c_str()), 0);
  };
  std::vector<int> order;
  for (int i = 0; i < 150; ++i) order.push_back(i * 7 % 150);
  write(order);
  LookAhead ahead(store_, tier_, tree_, "p/", limits_, path);
  for (const int i : order) {
    // It may have been read by a pass that has ended since: then it is known once the order comes to it.
    ASSERT_TRUE(Eventually([&] { return tier_.Has(NodeOf(i), 0) && ahead.Find(Key(i)).has_value(); })) << i;
    ahead.OnOpen(Key(i));
  }
  EXPECT_FALSE(tier_.Has(NodeOf(205), 0));
  write({200, 201, 202, 203, 204, 205});
  // Whatever is opened next makes it look, some time later.
  ASSERT_TRUE(Eventually([&] {
    ahead.OnOpen("p/none");
    return tier_.Has(NodeOf(205), 0);
  }));
}

TEST_F(LookAheadTest, AFileOfTheOrderThatTheProgramDoesNotKeepToIsInNobodysWay) {
  const TempFolder folder;
  std::ofstream file(folder / "order");
  std::vector<int> order(300);
  for (int i = 0; i < 300; ++i) order[i] = i;
  Rng rng(8);
  for (int i = 300; i > 1; --i) std::swap(order[i - 1], order[rng.Below(i)]);
  for (const int i : order) file << Key(i).substr(2) << "\n";
  file.close();
  LookAhead ahead(store_, tier_, tree_, "p/", limits_, folder / "order");
  for (int i = 0; i < 40; ++i) {
    if (i == 3) {
      ASSERT_TRUE(Eventually([&] { return ahead.Find(Key(20)).has_value(); }));
    }
    if (i > 8) {
      ASSERT_TRUE(Eventually([&] { return tier_.Has(NodeOf(i), 0); })) << i;
    }
    ahead.OnOpen(Key(i));
  }
}

TEST_F(LookAheadTest, WhatIsForgottenIsAskedAgain) {
  LookAhead ahead(store_, tier_, tree_, "p/", limits_, "");
  for (int i = 0; i < 10; ++i) ahead.OnOpen(Key(i));
  ASSERT_TRUE(Eventually([&] { return ahead.Find(Key(12)).has_value(); }));
  ahead.Forget(Key(12));
  EXPECT_FALSE(ahead.Find(Key(12)).has_value());
  EXPECT_TRUE(ahead.Find(Key(13)).has_value());
}

TEST_F(LookAheadTest, AFullBudgetHoldsUpNothing) {
  BlockTier tier(store_, little_, 20);
  LookAhead ahead(store_, tier, tree_, "p/", limits_, "");
  for (int i = 0; i < 300; ++i) ahead.OnOpen(Key(i));
  EXPECT_LE(little_.used(), 20u);
}

TEST_F(LookAheadTest, WhatIsKnownOfFilesOfTheOrderIsNotAskedFor) {
  const TempFolder folder;
  std::ofstream file(folder / "order");
  for (int i = 0; i < 100; ++i) file << Key(i * 37 % 100).substr(2) << "\n";
  file.close();
  std::map<std::string, Node> known;
  for (int i = 0; i < 100; ++i) known[Key(i)] = NodeOf(i);
  const uint64_t before = store_.counters().head;
  LookAhead ahead(store_, tier_, tree_, "p/", limits_, folder / "order",
                  [&](const std::string& key) { return std::optional(known.at(key)); });
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(Eventually([&] { return tier_.Has(known.at(Key(i * 37 % 100)), 0); })) << i;
    ahead.OnOpen(Key(i * 37 % 100));
  }
  EXPECT_EQ(store_.counters().head, before);
}

// This is the second epoch over files that fit into the memory of the machine.
TEST_F(LookAheadTest, WhatTheKernelHasIsNotReadUntilItAsksAgain) {
  const TempFolder folder;
  std::ofstream file(folder / "order");
  const auto nth = [](int i) { return Key(299 - i); };  // which does not look like the order of the keys
  for (int i = 0; i < 300; ++i) file << nth(i).substr(2) << "\n";
  file.close();
  std::map<std::string, Node> known;
  for (int i = 0; i < 300; ++i) {
    known[Key(i)] = NodeOf(i);
    known[Key(i)].fresh_until = std::chrono::steady_clock::now() + std::chrono::hours(1);
  }
  LookAhead ahead(store_, tier_, tree_, "p/", limits_, folder / "order",
                  [&](const std::string& key) { return std::optional(known.at(key)); });
  ASSERT_TRUE(Eventually([&] { return store_.gets().size() == limits_.files; }));
  for (int i = 0; i < 100; ++i) ahead.OnUnread();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(Eventually([&] { return ahead.Find(nth(i)).has_value(); })) << i;
    ahead.OnOpen(nth(i));
  }
  ASSERT_TRUE(Eventually([&] { return ahead.Find(nth(103)).has_value(); })) << "several are looked at together";
  EXPECT_EQ(store_.gets().size(), limits_.files);
  // One that it does not have.
  ahead.OnOpen(nth(100));
  ahead.OnRead();
  for (int i = 101; i < 200; ++i) {
    ASSERT_TRUE(Eventually([&] { return tier_.Has(known.at(nth(i)), 0); })) << i;
    ahead.OnOpen(nth(i));
  }
}

TEST_F(LookAheadTest, LargeFilesOfTheOrderTakeNoMoreThanTheirShare) {
  const TempFolder folder;
  std::ofstream file(folder / "order");
  std::map<std::string, Node> known;
  for (int i = 0; i < 60; ++i) {
    const std::string key = fmt::format("p/large/{:02}", i);
    const std::string text(3 << 20, 'x');
    known[key] = {.key = key, .size = text.size(), .etag = PutBlocking(store_, key, AsBytes(text))->etag};
    file << key.substr(2) << "\n";
  }
  file.close();
  limits_ = {.files = 64, .bytes = 8 << 20, .ttl = std::chrono::hours(1)};
  BlockTier tier(store_, memory_, 0);
  LookAhead ahead(store_, tier, tree_, "p/", limits_, folder / "order",
                  [&](const std::string& key) { return std::optional(known.at(key)); });
  // The first time nothing is known of their sizes.
  ASSERT_TRUE(Eventually([&] { return tier.bytes() >= 8 << 20; }));
  for (int i = 0; i < 60; ++i) {
    const std::string key = fmt::format("p/large/{:02}", i);
    ahead.OnOpen(key);
    EXPECT_LE(tier.bytes(), 17u << 20) << i;
  }
}

// The store does not answer, and the program continues: each file is asked for, and only the oldest requests end.
TEST_F(LookAheadTest, WhatDoesNotComeIsCancelledOnceItIsFarTooMuch) {
  const TempFolder folder;
  std::ofstream file(folder / "order");
  for (int i = 299; i >= 0; --i) file << Key(i).substr(2) << "\n";  // nor does it look like that of the keys
  file.close();
  std::map<std::string, Node> known;
  for (int i = 0; i < 300; ++i) known[Key(i)] = NodeOf(i);
  std::mutex mutex;
  std::vector<std::stop_token> asked;
  std::vector<GetCallback> never;
  store_.on_get = [&](const GetOptions& options, int, absl::AnyInvocable<void()>, GetCallback& done) {
    const std::lock_guard lock(mutex);
    asked.push_back(options.stop);
    never.push_back(std::move(done));
  };
  const auto cancelled = [&] {
    const std::lock_guard lock(mutex);
    return std::count_if(asked.begin(), asked.end(), [](const auto& token) { return token.stop_requested(); });
  };
  BlockTier tier(store_, memory_, 16 << 20);
  LookAhead ahead(store_, tier, tree_, "p/", limits_, folder / "order",
                  [&](const std::string& key) { return std::optional(known.at(key)); });
  for (int i = 0; i < 300; ++i) {
    const std::string key = Key(299 - i);
    ASSERT_TRUE(Eventually([&] { return tier.Has(known.at(key), 0); })) << i;
    // 16 are ahead, and 128 are not too much.
    if (i < 112) {
      ASSERT_EQ(cancelled(), 0) << i;
    }
    ahead.OnOpen(key);
  }
  EXPECT_TRUE(Eventually([&] { return cancelled() >= 300 - 128; }));
}

}  // namespace
}  // namespace millrace
