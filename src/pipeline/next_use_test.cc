#include "pipeline/next_use.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/rng.h"
#include "net/runtime.h"
#include "pipeline/testing/token_pair.h"

namespace millrace {
namespace {

constexpr uint64_t kNextUseSamples = 500;

/// Compares NextUse with a walk through the epochs, in which one rank sees all of them.
class NextUseTest : public ::testing::Test {
 protected:
  NextUseTest() : runtime_({.io_threads = 1, .cpu_threads = 1}), stores_(runtime_) {
    std::vector<uint32_t> lengths;
    for (uint32_t i = 0; i < kNextUseSamples; ++i) lengths.push_back(1 + i * 37 % 90);
    dataset_ = OpenTokenPair(runtime_, stores_, "mem://next-use", lengths);
    options_.batch = 4;
    options_.allow_arrays = true;
    options_.seed = 11;
    options_.memory_bytes = uint64_t{16} << 20;
    options_.extent = 7;
    options_.window = 16;
    options_.lanes = 8;
  }

  // Returns the positions of each item, ascending and counted on from epoch to epoch.
  static std::map<uint64_t, std::vector<uint64_t>> Uses(const LoaderPlan& plan, uint64_t epochs) {
    std::map<uint64_t, std::vector<uint64_t>> uses;
    for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
      EpochOrder order(plan, epoch);
      for (uint64_t at = 0; plan.StepsFrom(at) > 0; at = plan.After(at)) {
        const EpochOrder::Step step = order.StepAt(at);
        for (uint64_t row = 0; row < step.rows; ++row) {
          const EpochOrder::Row walked = order.RowAt(at, row);
          if (walked.counts) uses[walked.draw.item].push_back(epoch * order.turns() + walked.turn);
        }
      }
    }
    return uses;
  }
  // Returns the first one after `use`.
  static uint64_t FirstAfter(const std::vector<uint64_t>& uses, uint64_t use) {
    return *std::upper_bound(uses.begin(), uses.end(), use);
  }

  FetchRun Run(const LoaderPlan& plan, uint64_t rank, absl::FunctionRef<bool(uint64_t)> wanted) const {
    return *RunAround(dataset_->index(), nullptr, plan.policy().extent, rank, {.bytes = 1 << 20, .gap = 1 << 20},
                      wanted);
  }

  Runtime runtime_;
  Stores stores_;
  std::unique_ptr<Dataset> dataset_;
  LoaderOptions options_;
};

TEST_F(NextUseTest, OfSamplesIsTheirPositionInTheNextEpoch) {
  options_.shuffle = Shuffle::kGlobal;
  options_.extent = 1;
  const LoaderPlan all = *Settle(*dataset_, options_);
  auto uses = Uses(all, 5);
  options_.world = 3;
  options_.rank = 1;
  const LoaderPlan plan = *Settle(*dataset_, options_);
  NextUse next_use(plan);
  for (const uint64_t epoch : {0, 3, 1}) {
    const EpochOrder order(plan, epoch);
    for (uint64_t rank = 0; rank < kNextUseSamples; rank += 3) {
      const uint64_t turn = *order.AnyTurnOf({rank, 0});
      const FetchRun run = Run(plan, rank, [](uint64_t) { return true; });
      const PlannedRead read = next_use.Of(run, epoch, {rank, 0}, turn);
      EXPECT_EQ(read.use, uses[rank][epoch]);
      EXPECT_EQ(read.period, kNextUseSamples);
      EXPECT_FALSE(read.shared);
      ASSERT_EQ(read.spans.size(), 1u);
      EXPECT_EQ(read.spans[0].range, run.range());
      EXPECT_EQ(read.spans[0].next_use, uses[rank][epoch + 1]) << "for all ranks together";
      EXPECT_EQ(next_use.First(run).spans[0].next_use, uses[rank][0]);
    }
  }
}

// A sample that goes to another machine in the next epoch is not used here then.
TEST_F(NextUseTest, OfOneOfSeveralMachines) {
  options_.shuffle = Shuffle::kGlobal;
  options_.extent = 1;
  auto uses = Uses(*Settle(*dataset_, options_), 3);
  options_.world = 6;
  options_.rank = 3;
  options_.local_ranks = 2;
  const LoaderPlan plan = *Settle(*dataset_, options_);
  NextUse next_use(plan);
  uint64_t here = 0;
  for (uint64_t rank = 0; rank < kNextUseSamples; ++rank) {
    const FetchRun run = Run(plan, rank, [](uint64_t) { return true; });
    const uint64_t next = uses[rank][1];
    const uint64_t reader = next % kNextUseSamples % 6;
    const bool is_here = reader == 2 || reader == 3;
    const uint64_t told = next_use.Of(run, 0, {rank, 0}, uses[rank][0]).spans[0].next_use;
    EXPECT_EQ(told, is_here ? next : 2 * kNextUseSamples) << "else after all that is read here in the next epoch";
    here += is_here ? 1 : 0;
  }
  EXPECT_NEAR(here, kNextUseSamples / 3, 30);
  options_.local_ranks = 7;
  EXPECT_TRUE(absl::IsInvalidArgument(Settle(*dataset_, options_).status()));
}

// A run has some samples of an extent. Its own samples come again in the next epoch; those between them and around them
// may come in this one.
TEST_F(NextUseTest, OfRunsCountsWhatIsStillToComeOfTheExtent) {
  const LoaderPlan plan = *Settle(*dataset_, options_);
  auto uses = Uses(plan, 5);
  NextUse next_use(plan);
  Rng rng(5);
  uint64_t in_this_epoch = 0;
  for (int i = 0; i < 2000; ++i) {
    const uint64_t epoch = rng.Below(3);
    const uint64_t rank = rng.Below(kNextUseSamples);
    const uint64_t use = uses[rank][epoch];
    // The fetcher takes along neighbours that come later and soon.
    const uint64_t reach = rng.Below(150);
    const FetchRun run =
        Run(plan, rank, [&](uint64_t other) { return uses[other][epoch] > use && uses[other][epoch] < use + reach; });
    std::vector<uint64_t> taken;
    for (const FetchRun::Part& part : run.parts) taken.push_back(part.rank);
    uint64_t within = UseHints::kNever;
    uint64_t around = UseHints::kNever;
    const uint64_t begin = rank / 7 * 7;
    for (uint64_t other = begin; other < std::min(begin + 7, kNextUseSamples); ++other) {
      const bool own = std::find(taken.begin(), taken.end(), other) != taken.end();
      const uint64_t next = own ? uses[other][epoch + 1] : FirstAfter(uses[other], use);
      around = std::min(around, next);
      if (taken.front() <= other && other <= taken.back()) within = std::min(within, next);
    }
    const PlannedRead read = next_use.Of(run, epoch, {rank, 0}, use % kNextUseSamples);
    ASSERT_EQ(read.spans.size(), 1u);
    EXPECT_EQ(read.spans[0], (PlannedRead::Span{run.range(), within, around})) << i;
    in_this_epoch += around / kNextUseSamples == epoch ? 1 : 0;
  }
  EXPECT_GT(in_this_epoch, 100u);
}

// In a long extent only some samples are looked up: their next use is not too early, and in the right window.
TEST_F(NextUseTest, OfLongExtentsIsNearlyRight) {
  options_.extent = 250;
  options_.window = 1;
  options_.lanes = 1;
  const LoaderPlan plan = *Settle(*dataset_, options_);
  auto uses = Uses(plan, 3);
  NextUse next_use(plan);
  for (const uint64_t rank : {uint64_t{3}, uint64_t{400}}) {
    const FetchRun run = Run(plan, rank, [](uint64_t) { return true; });
    uint64_t first = UseHints::kNever;
    for (const FetchRun::Part& part : run.parts) first = std::min(first, uses[part.rank][1]);
    const uint64_t told = next_use.Of(run, 0, {rank, 0}, uses[rank][0]).spans[0].next_use;
    EXPECT_GE(told, first);
    EXPECT_LE(told, first + 50) << "of 64 of 250 samples, the first one comes after a 64th or so";
  }
}

// Checks every draw of three epochs: passes that continue from epoch to epoch, or begin with each, and that meet within
// a cycle.
TEST_F(NextUseTest, OfAMixIsTheNextDrawOfWhateverPassInThisEpochOrTheNext) {
  options_.shuffle = Shuffle::kGlobal;
  options_.extent = 1;
  for (const bool fresh : {false, true}) {
    for (const uint64_t length : {uint64_t{900}, uint64_t{9000}}) {
      options_.mix = MixOptions{.length = length, .stages = {{0, {1, 8}}}, .fresh_passes = fresh};
      const LoaderPlan plan = *Settle(Source({*dataset_, *dataset_}), options_);
      auto uses = Uses(plan, 5);
      NextUse next_use(plan);
      uint64_t again = 0;
      uint64_t none = 0;
      for (uint64_t epoch = 0; epoch < 3; ++epoch) {
        EpochOrder order(plan, epoch);
        for (uint64_t turn = 0; turn < length; ++turn) {
          const Draw draw = order.RowAt(turn / options_.batch * options_.batch, turn % options_.batch).draw;
          const auto [part, rank] = plan.source.Find(draw.item);
          FetchRun run = Run(plan, rank, [](uint64_t) { return true; });
          run.part = part;
          const std::vector<uint64_t>& of_item = uses[draw.item];
          const auto next = std::upper_bound(of_item.begin(), of_item.end(), epoch * length + turn);
          // A later use is reported as later than all uses in the next epoch.
          const uint64_t latest = (epoch + 2) * length;
          const uint64_t expected = next == of_item.end() ? latest : std::min(*next, latest);
          ASSERT_EQ(next_use.Of(run, epoch, draw, turn).spans[0].next_use, expected)
              << draw.item << " of pass " << draw.turn << " at " << turn << " of epoch " << epoch;
          again += expected < (epoch + 1) * length ? 1 : 0;
          none += expected == latest ? 1 : 0;
          if (of_item.front() == epoch * length + turn) {
            EXPECT_EQ(next_use.First(run).spans[0].next_use, std::min(of_item.front(), 2 * length));
          }
        }
      }
      EXPECT_GT(again, 300u);
      EXPECT_EQ(none > 0, length == 900) << none;
    }
  }
}

TEST_F(NextUseTest, AllRanksAreOneJob) {
  const LoaderPlan one = *Settle(*dataset_, options_);
  options_.world = 4;
  options_.rank = 2;
  EXPECT_EQ(NextUse::JobOf(*Settle(*dataset_, options_)), NextUse::JobOf(one));
  EXPECT_GT(NextUse::JobOf(one), UseHints::kPinned);
  options_.seed = 12;
  EXPECT_NE(NextUse::JobOf(*Settle(*dataset_, options_)), NextUse::JobOf(one));
}

}  // namespace
}  // namespace millrace
