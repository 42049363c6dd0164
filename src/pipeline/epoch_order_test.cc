#include "pipeline/epoch_order.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "net/runtime.h"
#include "pipeline/testing/token_pair.h"

namespace millrace {
namespace {

class EpochOrderTest : public ::testing::Test {
 protected:
  EpochOrderTest() : runtime_({.io_threads = 1, .cpu_threads = 1}), stores_(runtime_) {
    std::vector<uint32_t> lengths;
    for (uint32_t i = 0; i < 500; ++i) lengths.push_back(1 + i * 37 % 90);
    dataset_ = OpenTokenPair(runtime_, stores_, "mem://tokens", lengths);
    options_.batch = 4;
    options_.allow_arrays = true;
    options_.world = 3;
    options_.rank = 1;
    options_.seed = 11;
    options_.memory_bytes = uint64_t{16} << 20;
    options_.extent = 7;
    options_.window = 16;
    options_.lanes = 8;
  }

  Source Buckets() {
    const TokenOptions tokens{.layout = RowLayout::kPad, .buckets = {{16, 5}, {48, 3}, {90, 2}}};
    return *Source::OfRows(stores_, *dataset_, tokens);
  }

  // Compares TurnOf of every draw with a walk through the rest of the epoch.
  void CheckTurns(const LoaderPlan& plan, uint64_t epoch) {
    EpochOrder order(plan, epoch);
    for (const uint64_t steps : {0u, 1u, 7u, 20u}) {
      uint64_t consumed = 0;
      for (uint64_t i = 0; i < steps && plan.StepsFrom(plan.After(consumed)) > 0; ++i) consumed = plan.After(consumed);
      std::map<std::pair<uint64_t, uint64_t>, uint64_t> turns;  // of draws
      uint64_t before = 0;
      for (uint64_t at = consumed; plan.StepsFrom(at) > 0; at = plan.After(at)) {
        const EpochOrder::Step step = order.StepAt(at);
        for (uint64_t row = 0; row < step.rows; ++row) {
          const EpochOrder::Row walked = order.RowAt(at, row);
          if (!walked.counts) continue;
          EXPECT_TRUE(turns.empty() || walked.turn > before);
          before = walked.turn;
          EXPECT_TRUE(turns.emplace(std::pair(walked.draw.item, walked.draw.turn), walked.turn).second);
        }
      }
      ASSERT_FALSE(turns.empty());
      uint64_t most_turns = 0;
      for (const auto& [draw, turn] : turns) most_turns = std::max(most_turns, draw.second);
      for (uint64_t item = 0; item < plan.source.size(); ++item) {
        for (uint64_t turn = 0; turn <= most_turns; ++turn) {
          const auto found = turns.find({item, turn});
          const std::optional<uint64_t> expected =
              found == turns.end() ? std::nullopt : std::optional<uint64_t>(found->second);
          ASSERT_EQ(order.TurnOf({item, turn}, consumed), expected) << "item " << item << " after " << consumed;
        }
      }
    }
  }

  Runtime runtime_;
  Stores stores_;
  std::unique_ptr<Dataset> dataset_;
  LoaderOptions options_;
};

TEST_F(EpochOrderTest, TurnsOfSamplesAreThoseOfAWalk) {
  for (const Shuffle shuffle : {Shuffle::kNone, Shuffle::kGlobal, Shuffle::kWindow}) {
    for (const LastBatch last : {LastBatch::kPad, LastBatch::kDrop, LastBatch::kWrap, LastBatch::kShort}) {
      options_.shuffle = shuffle;
      options_.last = last;
      CheckTurns(*Settle(*dataset_, options_), 2);
    }
  }
}

TEST_F(EpochOrderTest, TurnsOfRowsInBucketsAreThoseOfAWalk) {
  const Source rows = Buckets();
  for (const Shuffle shuffle : {Shuffle::kNone, Shuffle::kGlobal, Shuffle::kWindow}) {
    for (const LastBatch last : {LastBatch::kPad, LastBatch::kDrop, LastBatch::kWrap}) {
      options_.shuffle = shuffle;
      options_.last = last;
      CheckTurns(*Settle(rows, options_), 2);
    }
  }
}

TEST_F(EpochOrderTest, TurnsOfAMixAreThoseOfAWalk) {
  options_.mix = MixOptions{.length = 700, .stages = {{0, {1, 3}}}};
  CheckTurns(*Settle(Source({*dataset_, *dataset_}), options_), 2);
}

// The order of an epoch of buckets must never change. If this test fails, positions that were written before lead to
// other places: raise the version of positions (plan/position.cc), or undo the change.
TEST_F(EpochOrderTest, GoldenOfBuckets) {
  options_.shuffle = Shuffle::kGlobal;
  options_.world = 2;
  options_.rank = 0;
  const LoaderPlan plan = *Settle(Buckets(), options_);
  for (const auto& [epoch, steps, rows] :
       {std::tuple(0,
                   "2022112122211122122221222121212222121221201110212102222201202222112222222122212221211111222222000",
                   "493 75 290 356 223 94 289 246 388 457 403 222 "),
        std::tuple(3,
                   "1122122210122122212201122221222201221222102222112102221220121221222102202111222122221120221212221",
                   "248 125 479 308 109 303 406 372 249 25 180 467 ")}) {
    EpochOrder order(plan, epoch);
    std::string shapes;
    std::string items;
    for (uint64_t step = 0; plan.StepsFrom(step) > 0; ++step) {
      shapes += static_cast<char>('0' + order.StepAt(step).shape);
      if (step < 12) items += fmt::format("{} ", order.RowAt(step, 0).draw.item);
    }
    EXPECT_EQ(shapes, steps);
    EXPECT_EQ(items, rows);
  }
}

}  // namespace
}  // namespace millrace
