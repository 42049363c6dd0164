#include "mount/block_tier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "store/blocking.h"
#include "store/testing/scripted_store.h"

namespace millrace {
namespace {

class BlockTierTest : public ::testing::Test {
 protected:
  static Patience NoHurry() { return {std::chrono::steady_clock::now() + std::chrono::minutes(5), {}}; }
  Node Put(const std::string& key, const std::string& text) {
    return {.key = key, .size = text.size(), .etag = PutBlocking(store_, key, AsBytes(text))->etag};
  }
  std::string Text(BlockTier::Hold& hold) {
    const absl::StatusOr<ByteSpan> bytes = hold.Wait(NoHurry());
    return bytes.ok() ? std::string(AsText(*bytes)) : std::string(ToStd(bytes.status().message()));
  }

  // The budgets come before the store, which waits for its requests: what those hold is given back until then.
  MemoryBudget memory_{(8 << 20) + (600 << 10)};  // eight blocks, and what they leave
  MemoryBudget plenty_{256 << 20};
  ScriptedStore store_;
};

TEST_F(BlockTierTest, AVersionsBlockIsAskedForOnce) {
  BlockTier tier(store_, memory_, 4 << 20);
  const Node old = Put("k", "old");
  {
    const auto one = tier.Fetch(old, 0);
    const auto two = tier.Fetch(old, 0);
    EXPECT_EQ(Text(*one), "old");
    EXPECT_EQ(Text(*two), "old");
  }
  const Node now = Put("k", "new");
  EXPECT_EQ(Text(*tier.Fetch(now, 0)), "new");
  EXPECT_EQ(Text(*tier.Fetch(old, 0)), "old");  // still there, and it is that version
  EXPECT_EQ(store_.gets().size(), 2u);
}

TEST_F(BlockTierTest, WhatWasUsedLongestAgoGoesFirst) {
  BlockTier tier(store_, memory_, 3 << 20);
  std::vector<Node> nodes;
  for (int i = 0; i < 5; ++i) nodes.push_back(Put(std::to_string(i), std::string(1 << 20, static_cast<char>('a' + i))));
  for (const int i : {0, 1, 2, 0, 3}) EXPECT_EQ(Text(*tier.Fetch(nodes[i], 0))[0], 'a' + i);
  EXPECT_TRUE(tier.Has(nodes[0], 0));
  EXPECT_FALSE(tier.Has(nodes[1], 0));
  EXPECT_EQ(tier.bytes(), 3u << 20);
  // A block that is held stays.
  const auto held = tier.Fetch(nodes[2], 0);
  for (const int i : {0, 1, 3, 4}) EXPECT_EQ(Text(*tier.Fetch(nodes[i], 0))[0], 'a' + i);
  EXPECT_TRUE(tier.Has(nodes[2], 0));
}

TEST_F(BlockTierTest, WhatWasUsedUpGoesBeforeAllOthers) {
  BlockTier tier(store_, memory_, 3 << 20);
  std::vector<Node> nodes;
  for (int i = 0; i < 6; ++i) nodes.push_back(Put(std::to_string(i), std::string(1 << 20, static_cast<char>('a' + i))));
  const auto read = [&](int i, bool use_up) {
    const auto hold = tier.Fetch(nodes[i], 0);
    EXPECT_EQ(Text(*hold)[0], 'a' + i);
    if (use_up) hold->UseUp();
  };
  read(0, false);
  read(1, true);
  read(2, true);
  read(3, false);
  EXPECT_TRUE(tier.Has(nodes[0], 0) && tier.Has(nodes[3], 0));
  EXPECT_FALSE(tier.Has(nodes[1], 0) || tier.Has(nodes[2], 0));
  // Somebody reads it again: it is like others.
  read(1, true);
  read(1, false);
  read(4, false);
  EXPECT_FALSE(tier.Has(nodes[0], 0)) << "now the one that was used longest ago";
  EXPECT_TRUE(tier.Has(nodes[1], 0));
  // One that is held is not up.
  const auto held = tier.Fetch(nodes[1], 0);
  held->UseUp();
  read(5, false);
  EXPECT_TRUE(tier.Has(nodes[1], 0));
}

// Files of all sizes, each read once: what their program has read is little, however much is kept.
TEST_F(BlockTierTest, WhatWasUsedUpGivesItsMemoryToTheNext) {
  BlockTier tier(store_, plenty_, 16 << 20);
  Rng rng(6);
  const Node first = Put("first", std::string(1 << 20, 'x'));
  EXPECT_EQ(Text(*tier.Fetch(first, 0))[0], 'x');
  uint64_t bytes = 0;
  for (int i = 0; i < 60; ++i) {
    const std::string text(1 + rng.Below(1 << 20), static_cast<char>('a' + i % 26));
    bytes += text.size();
    const auto hold = tier.Fetch(Put(std::to_string(i), text), 0);
    EXPECT_TRUE(Text(*hold) == text) << i;
    hold->UseUp();
    ASSERT_LE(plenty_.used(), uint64_t{8} << 20) << "a quarter and one, and two that are not used up";
  }
  EXPECT_GE(bytes, uint64_t{20} << 20);
  EXPECT_TRUE(tier.Has(first, 0));
}

TEST_F(BlockTierTest, AVersionTellsWhatIsThereAndWhatWasUsed) {
  std::vector<std::shared_ptr<GetCallback>> asked;
  store_.on_get = [&](const GetOptions&, int, const absl::AnyInvocable<void()>&, GetCallback& done) {
    asked.push_back(std::make_shared<GetCallback>(std::move(done)));
  };
  std::chrono::steady_clock::time_point now{};
  BlockTier tier(store_, memory_, 8 << 20, [&] { return now; });
  const Node node{.key = "k", .size = 4 << 20, .etag = "e"};
  auto version = std::make_unique<BlockTier::Version>(tier, node);
  EXPECT_EQ(version->Find(0), nullptr);
  EXPECT_FALSE(version->Has(0));
  {
    const auto hold = version->Fetch(0, 2);
    EXPECT_TRUE(version->Has(1));
    EXPECT_NE(version->Find(1), nullptr);
    EXPECT_EQ(hold->asked_at(), now);
    now += std::chrono::seconds(3);
    EXPECT_FALSE(hold->took().has_value());
    std::move (*asked[0])(GetResult{.etag = "e", .object_size = node.size});
    EXPECT_EQ(hold->took().value(), std::chrono::seconds(3));
  }
  for (const bool first : {true, false}) {
    for (const uint64_t number : {0, 1}) EXPECT_EQ(version->Find(number)->Use(number), first) << number;
  }
  version.reset();  // the pieces stay
  EXPECT_TRUE(tier.Has(node, 1));
  EXPECT_FALSE(tier.Has(node, 2));
}

// Several programs read ahead, and together hold more than is kept: each of them continues in memory that is there.
TEST_F(BlockTierTest, OneGivesItsMemoryToTheNextAndTheOthersStay) {
  BlockTier tier(store_, memory_, 2 << 20);
  std::vector<Node> nodes;
  for (int i = 0; i < 7; ++i) nodes.push_back(Put(std::to_string(i), std::string(1 << 20, static_cast<char>('a' + i))));
  std::vector<std::shared_ptr<BlockTier::Hold>> held;
  for (int i = 0; i < 5; ++i) held.push_back(tier.Fetch(nodes[i], 0));
  for (const auto& hold : held) EXPECT_TRUE(hold->Wait(NoHurry()).ok());
  for (const int i : {3, 4}) {
    held[i]->UseUp();
    held[i].reset();
  }
  held[3] = tier.Fetch(nodes[5], 0);
  EXPECT_EQ(Text(*held[3])[0], 'f');
  EXPECT_EQ(tier.bytes(), 5u << 20);
  EXPECT_TRUE(tier.Has(nodes[3], 0));
  EXPECT_FALSE(tier.Has(nodes[4], 0));
  held[4] = tier.Fetch(nodes[6], 0);
  EXPECT_EQ(Text(*held[4])[0], 'g');
  EXPECT_EQ(tier.bytes(), 5u << 20);
  EXPECT_FALSE(tier.Has(nodes[3], 0));
  // Once less is held, it is again as much as is kept.
  held.clear();
  EXPECT_EQ(tier.bytes(), 2u << 20);
  EXPECT_EQ(Text(*tier.Fetch(nodes[0], 0))[0], 'a');
  EXPECT_EQ(tier.bytes(), 2u << 20);
}

TEST_F(BlockTierTest, TheBudgetIsTheBound) {
  BlockTier tier(store_, memory_, 100 << 20);
  std::vector<std::shared_ptr<BlockTier::Hold>> holds;
  for (int i = 0; i < 8; ++i) {
    holds.push_back(tier.Fetch(Put(std::to_string(i), std::string(1 << 20, 'x')), 0));
    ASSERT_NE(holds.back(), nullptr);
  }
  const Node more = Put("more", std::string(1 << 20, 'y'));
  EXPECT_EQ(tier.Fetch(more, 0), nullptr);
  for (const auto& hold : holds) EXPECT_EQ(Text(*hold)[0], 'x');
  holds.clear();
  EXPECT_NE(tier.Fetch(more, 0), nullptr);
}

TEST_F(BlockTierTest, MemoryIsGivenBackOfWhatNobodyHolds) {
  store_.on_get = [](const GetOptions&, int, const absl::AnyInvocable<void()>&, GetCallback& done) {
    std::move(done)(GetResult{});
  };
  BlockTier tier(store_, memory_, 8 << 20);
  const Node node{.key = "k", .size = 8 << 20, .etag = "e"};
  const auto held = tier.Fetch(node, 0);
  for (uint64_t i = 1; i < 4; ++i) ASSERT_NE(tier.Fetch(node, i), nullptr);
  EXPECT_EQ(tier.GiveBack(1), 1u << 20) << "a block, as it came";
  EXPECT_FALSE(tier.Has(node, 1)) << "the one that was used longest ago";
  EXPECT_EQ(memory_.used(), 3u << 20);
  EXPECT_EQ(tier.GiveBack(100 << 20), 2u << 20);
  EXPECT_EQ(tier.GiveBack(1), 0u);
  EXPECT_TRUE(tier.Has(node, 0));
  EXPECT_EQ(memory_.used(), 1u << 20);
}

TEST_F(BlockTierTest, AfterAnErrorItIsAskedAgain) {
  BlockTier tier(store_, memory_, 4 << 20);
  const Node node = Put("k", "text");
  store_.on_get = [](const GetOptions&, int times, absl::AnyInvocable<void()> read, GetCallback& done) {
    if (times == 0) return std::move(done)(absl::UnavailableError("away"));
    read();
  };
  {
    const auto hold = tier.Fetch(node, 0);
    EXPECT_EQ(Text(*hold), "away");
    EXPECT_TRUE(hold->took().has_value());
    EXPECT_FALSE(tier.Has(node, 0));
  }
  EXPECT_EQ(Text(*tier.Fetch(node, 0)), "text");
}

TEST_F(BlockTierTest, WhatNobodyWaitsForIsCancelled) {
  std::mutex mutex;
  std::vector<std::function<void()>> answers;
  std::stop_token token;
  store_.on_get = [&](const GetOptions& options, int, absl::AnyInvocable<void()>, GetCallback& done) {
    std::lock_guard lock(mutex);
    token = options.stop;
    auto kept = std::make_shared<GetCallback>(std::move(done));
    answers.push_back([kept] { std::move (*kept)(absl::CancelledError("stopped")); });
  };
  BlockTier tier(store_, memory_, 4 << 20);
  const Node node = Put("k", "text");
  auto one = tier.Fetch(node, 0);
  auto two = tier.Fetch(node, 0);
  one.reset();
  EXPECT_FALSE(token.stop_requested());
  two.reset();
  EXPECT_TRUE(token.stop_requested());
  EXPECT_FALSE(tier.Has(node, 0));
  const auto three = tier.Fetch(node, 0);
  EXPECT_FALSE(three->took().has_value());
  for (const auto& answer : answers) answer();
  EXPECT_GE(three->took().value(), std::chrono::nanoseconds(0));
}

TEST_F(BlockTierTest, BlocksThatAreAskedForTogetherAreOneRequest) {
  BlockTier tier(store_, memory_, 8 << 20);
  std::string text(5 << 20, 'a');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + (i >> 20));
  text.resize(text.size() - 100);
  const Node node = Put("k", text);
  const auto third = tier.Fetch(node, 3);
  const auto first = tier.Fetch(node, 0, 8);  // up to what is there
  EXPECT_EQ(first->range(), (ByteRange{0, 3 << 20}));
  const auto last = tier.Fetch(node, 4, 8);
  EXPECT_EQ(last->range(), (ByteRange{4 << 20, (1 << 20) - 100}));
  EXPECT_EQ(tier.Fetch(node, 1)->range(), first->range());
  EXPECT_EQ(Text(*first) + Text(*third) + Text(*last), text);
  EXPECT_EQ(store_.gets().size(), 3u);
  EXPECT_EQ(tier.bytes(), text.size());
}

TEST_F(BlockTierTest, APieceIsAsLargeAsThereIsRoom) {
  BlockTier tier(store_, memory_, 100 << 20);
  const Node node = Put("k", std::string(20 << 20, 'x'));
  std::vector<std::shared_ptr<BlockTier::Hold>> holds;
  holds.push_back(tier.Fetch(node, 0, 6));
  holds.push_back(tier.Fetch(node, 6, 8));
  EXPECT_EQ(holds.back()->range(), (ByteRange{6 << 20, 2 << 20}));
  EXPECT_EQ(tier.Fetch(node, 8, 8), nullptr);
}

TEST_F(BlockTierTest, WhatIsFetchedAheadLeavesAQuarter) {
  BlockTier tier(store_, memory_, 100 << 20);
  const Node node = Put("k", std::string(20 << 20, 'x'));
  std::vector<std::shared_ptr<BlockTier::Hold>> holds;
  for (uint64_t i = 0; i < 6; ++i) {
    holds.push_back(tier.Fetch(node, i, 1, BlockTier::Need::kAhead));
    ASSERT_NE(holds.back(), nullptr);
  }
  EXPECT_EQ(tier.Fetch(node, 6, 1, BlockTier::Need::kAhead), nullptr);
  EXPECT_NE(tier.Fetch(node, 6, 1, BlockTier::Need::kNow), nullptr);
}

// Pieces of one size take the place of each other, over and over.
TEST_F(BlockTierTest, MemoryIsUsedAgainAndNeverTwice) {
  BlockTier tier(store_, memory_, 3 << 20);
  std::vector<Node> nodes;
  std::vector<std::string> blocks;
  for (int i = 0; i < 3; ++i) {
    nodes.push_back(Put(std::to_string(i), std::string(16 << 20, static_cast<char>('a' + i))));
    blocks.emplace_back(1 << 20, static_cast<char>('a' + i));
  }
  Rng rng(4);
  std::vector<std::pair<int, std::shared_ptr<BlockTier::Hold>>> held;
  for (int i = 0; i < 500; ++i) {
    const int which = static_cast<int>(rng.Below(3));
    auto hold = tier.Fetch(nodes[which], rng.Below(16));
    ASSERT_NE(hold, nullptr);
    held.emplace_back(which, std::move(hold));
    if (rng.Below(3) == 0) held.front().second->UseUp();
    if (held.size() > 4) held.erase(held.begin());
    for (const auto& [of, one] : held) {
      const absl::StatusOr<ByteSpan> bytes = one->Wait(NoHurry());
      ASSERT_TRUE(bytes.ok());
      ASSERT_TRUE(AsText(*bytes) == blocks[of]) << i;
    }
    ASSERT_LE(tier.bytes(), uint64_t{5} << 20) << "three that are kept, or five that are held";
  }
}

}  // namespace
}  // namespace millrace
