#include "plan/batching.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/plan.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

/// Holds what the ranks of one world receive in a stretch of steps.
struct Delivery {
  std::vector<int> counted;  // per position: how often it was delivered as a sample of the epoch
  uint64_t repeats = 0;      // wrapped slots
  uint64_t padding = 0;      // padded slots
};

/// Runs up to `steps` steps of all ranks from `consumed` on; returns the samples consumed after them.
uint64_t Consume(Batching batching, uint64_t consumed, uint64_t steps, Delivery* delivery) {
  for (; steps > 0 && batching.StepsFrom(consumed) > 0; --steps) {
    uint64_t valid = 0;
    for (batching.rank = 0; batching.rank < batching.world; ++batching.rank) {
      for (uint64_t row = 0; row < batching.Rows(consumed); ++row) {
        const Batching::Slot slot = batching.At(consumed, row);
        EXPECT_EQ(slot.padding, row >= batching.Taken(consumed));
        if (!slot.padding) {
          EXPECT_EQ(slot.position % batching.world, batching.rank);
          EXPECT_GE(slot.position, consumed);
          EXPECT_LT(slot.position, consumed + batching.batch * batching.world);
          ++delivery->counted.at(slot.position);
          ++valid;
        } else if (batching.repeats()) {
          EXPECT_LT(slot.position, batching.samples);
          ++delivery->repeats;
        } else {
          EXPECT_EQ(slot.position, batching.samples);
          ++delivery->padding;
        }
      }
    }
    batching.rank = 0;
    const uint64_t after = batching.After(consumed);
    EXPECT_GT(after, consumed);
    EXPECT_LE(after, batching.samples);
    EXPECT_LE(valid, after - consumed);
    const uint64_t left = batching.StepsFrom(consumed);
    EXPECT_EQ(batching.StepsFrom(after), left - 1);
    consumed = after;
  }
  return consumed;
}

TEST(Batching, EveryPositionOnceOverAllRanks) {
  for (const LastBatch last : {LastBatch::kDrop, LastBatch::kPad, LastBatch::kWrap, LastBatch::kShort}) {
    for (uint64_t world = 1; world <= 16; ++world) {
      for (const uint64_t batch : {1u, 2u, 5u, 8u}) {
        for (uint64_t samples = 1; samples <= 150; ++samples) {
          const Batching batching = {.samples = samples, .batch = batch, .world = world, .last = last};
          if (!batching.Check().ok()) continue;
          const uint64_t step = batch * world;
          const uint64_t steps = batching.StepsFrom(0);
          ASSERT_EQ(steps, last == LastBatch::kDrop ? samples / step : (samples + step - 1) / step);
          Delivery delivery = {.counted = std::vector<int>(samples)};
          ASSERT_EQ(Consume(batching, 0, UINT64_MAX, &delivery), samples);
          const uint64_t whole = last == LastBatch::kDrop ? steps * step : samples;
          for (uint64_t position = 0; position < samples; ++position) {
            ASSERT_EQ(delivery.counted[position], position < whole ? 1 : 0) << position << " of " << samples;
          }
          ASSERT_EQ(delivery.padding, last == LastBatch::kPad ? steps * step - samples : 0);
          if (last == LastBatch::kShort) {  // as torch's DistributedSampler: as many as make all ranks equal
            ASSERT_EQ(delivery.repeats, (world - samples % world) % world);
          } else {
            ASSERT_EQ(delivery.repeats, last == LastBatch::kWrap ? steps * step - samples : 0);
          }
        }
      }
    }
  }
}

TEST(Batching, AnySequenceOfWorldsAndBatchesDeliversEachPositionOnce) {
  Rng rng(3);
  for (int trial = 0; trial < 3000; ++trial) {
    const uint64_t samples = 1 + rng.Below(2000);
    const auto last = static_cast<LastBatch>(rng.Below(4));
    Delivery delivery = {.counted = std::vector<int>(samples)};
    uint64_t consumed = 0;
    uint64_t dropped_from = samples;
    while (consumed < samples) {
      const Batching batching = {
          .samples = samples, .batch = 1 + rng.Below(20), .world = 1 + rng.Below(16), .last = last};
      if (last == LastBatch::kDrop) {
        const uint64_t step = batching.batch * batching.world;
        dropped_from = consumed + batching.StepsFrom(consumed) * step;
        if (batching.StepsFrom(consumed) == 0) break;
      }
      consumed = Consume(batching, consumed, 1 + rng.Below(10), &delivery);
    }
    if (last != LastBatch::kDrop) dropped_from = samples;
    for (uint64_t position = 0; position < samples; ++position) {
      ASSERT_EQ(delivery.counted[position], position < dropped_from ? 1 : 0) << trial;
    }
  }
}

TEST(Batching, StartsAtAnyPosition) {
  // Five samples were consumed, then a world of 4 takes over: rank 1 has position 5, rank 0 begins with 8.
  const Batching batching = {.samples = 100, .batch = 2, .rank = 1, .world = 4};
  EXPECT_EQ(batching.At(5, 0).position, 5u);
  EXPECT_EQ(batching.At(5, 1).position, 9u);
  Batching other = batching;
  other.rank = 0;
  EXPECT_EQ(other.At(5, 0).position, 8u);
  EXPECT_EQ(other.At(5, 1).position, 12u);
}

TEST(Batching, WrapsOverAShortEpochMoreThanOnce) {
  const Batching batching = {.samples = 3, .batch = 8, .rank = 0, .world = 1, .last = LastBatch::kWrap};
  ASSERT_TRUE(batching.Check().ok());
  EXPECT_EQ(batching.StepsFrom(0), 1u);
  std::vector<uint64_t> positions;
  for (uint64_t row = 0; row < 8; ++row) {
    positions.push_back(batching.At(0, row).position);
    EXPECT_EQ(batching.At(0, row).padding, row >= 3);
  }
  EXPECT_THAT(positions, ::testing::ElementsAre(0, 1, 2, 0, 1, 2, 0, 1));
}

TEST(Batching, NothingIsLeftBeyondTheEpoch) {
  const Batching batching = {.samples = 10, .batch = 4, .world = 1};
  EXPECT_EQ(batching.StepsFrom(10), 0u);
  EXPECT_EQ(batching.StepsFrom(11), 0u);
  EXPECT_EQ(batching.StepsFrom(UINT64_MAX), 0u);
}

TEST(Batching, ChecksItsNumbers) {
  const auto message = [](const Batching& batching) {
    const absl::Status status = batching.Check();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE((Batching{.samples = 1}).Check().ok());
  EXPECT_THAT(message({.samples = 0}), HasSubstr("without samples"));
  EXPECT_THAT(message({.samples = 9, .batch = 0}), HasSubstr("a batch has 1 to"));
  EXPECT_THAT(message({.samples = 9, .batch = Batching::kMaxBatch + 1}), HasSubstr("a batch has 1 to"));
  EXPECT_THAT(message({.samples = 9, .world = 0}), HasSubstr("a world has 1 to"));
  EXPECT_THAT(message({.samples = 9, .world = UINT64_MAX}), HasSubstr("a world has 1 to"));
  EXPECT_THAT(message({.samples = 9, .rank = 2, .world = 2}), HasSubstr("ranks are 0 to 1"));
  EXPECT_THAT(message({.samples = 9, .batch = 5, .world = 2, .last = LastBatch::kDrop}), HasSubstr("no full step"));
  EXPECT_TRUE((Batching{.samples = 9, .batch = 5, .world = 2, .last = LastBatch::kPad}).Check().ok());
  const Batching largest = {.samples = Plan::kMaxSamples,
                            .batch = Batching::kMaxBatch,
                            .rank = Batching::kMaxWorld - 1,
                            .world = Batching::kMaxWorld};
  ASSERT_TRUE(largest.Check().ok());
  EXPECT_EQ(largest.StepsFrom(0), uint64_t{1} << 8);
  EXPECT_EQ(largest.StepsFrom(Plan::kMaxSamples - 1), 1u);
  EXPECT_TRUE(largest.At(Plan::kMaxSamples - 1, Batching::kMaxBatch - 1).padding);
}

// A step of `rest` samples gives every rank ceil(rest / world) rows. A row holds position p, or p modulo the epoch. The
// step may begin at any position, also one that is no multiple of the world.
TEST(Batching, AShortStepHasTheRowsThatHoldItsSamples) {
  for (uint64_t world = 1; world <= 5; ++world) {
    for (uint64_t samples = 1; samples <= 40; ++samples) {
      for (uint64_t consumed = 0; consumed < samples; ++consumed) {
        Batching batching = {.samples = samples, .batch = 4, .world = world, .last = LastBatch::kShort};
        const Batching padded = {.samples = samples, .batch = 4, .world = world};
        ASSERT_EQ(batching.StepsFrom(consumed), padded.StepsFrom(consumed));
        ASSERT_EQ(batching.After(consumed), padded.After(consumed));
        const uint64_t rows = std::min<uint64_t>(4, (samples - consumed + world - 1) / world);
        std::set<uint64_t> positions;
        for (batching.rank = 0; batching.rank < world; ++batching.rank) {
          ASSERT_EQ(batching.Rows(consumed), rows);
          const uint64_t first = consumed + (batching.rank + world - consumed % world) % world;
          for (uint64_t row = 0; row < rows; ++row) {
            const Batching::Slot slot = batching.At(consumed, row);
            const uint64_t position = first + row * world;
            ASSERT_EQ(slot.padding, position >= samples);
            ASSERT_EQ(slot.position, position % samples);
            positions.insert(position);
          }
        }
        ASSERT_EQ(positions.size(), rows * world);
        ASSERT_EQ(*positions.rbegin(), consumed + rows * world - 1);
      }
    }
  }
}

// Streams of the data service are ranks of a larger world: together they have all rows of the trainer's short step.
TEST(Batching, StreamsHaveTheRowsOfAShortStep) {
  for (uint64_t world = 1; world <= 3; ++world) {
    for (uint64_t streams = 1; streams <= 4; streams *= 2) {
      for (uint64_t consumed = 0; consumed < 30; ++consumed) {
        const Batching trainer = {
            .samples = 30, .batch = 8, .rank = world - 1, .world = world, .last = LastBatch::kShort};
        std::map<uint64_t, uint64_t> sent;  // delivered for each row's position
        for (uint64_t stream = 0; stream < streams; ++stream) {
          Batching part = trainer;
          part.batch /= streams;
          part.rank += world * stream;
          part.world *= streams;
          const uint64_t first = consumed + (part.rank + part.world - consumed % part.world) % part.world;
          for (uint64_t row = 0; row < part.Rows(consumed); ++row) {
            sent[first + row * part.world] = part.At(consumed, row).position;
          }
        }
        const uint64_t first = consumed + (trainer.rank + world - consumed % world) % world;
        for (uint64_t row = 0; row < trainer.Rows(consumed); ++row) {
          ASSERT_TRUE(sent.contains(first + row * world)) << consumed << " row " << row;
          ASSERT_EQ(sent[first + row * world], trainer.At(consumed, row).position);
        }
      }
    }
  }
}

TEST(LastBatch, ParsesItsNames) {
  EXPECT_EQ(ParseLastBatch("drop").value(), LastBatch::kDrop);
  EXPECT_EQ(ParseLastBatch("pad").value(), LastBatch::kPad);
  EXPECT_EQ(ParseLastBatch("wrap").value(), LastBatch::kWrap);
  EXPECT_EQ(ParseLastBatch("short").value(), LastBatch::kShort);
  for (const std::string_view text : {"", "Pad", "padding", "wrap "}) {
    const auto result = ParseLastBatch(text);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("short, pad, drop or wrap"));
  }
}

// Two epochs whose border lies within a step, as the stages of a staged epoch have it.
TEST(Batching, AStepThatHasBegunElsewhereIsFilled) {
  for (uint64_t world = 1; world <= 5; ++world) {
    for (const uint64_t batch : {1u, 3u, 4u}) {
      const uint64_t step = batch * world;
      for (uint64_t begun = 0; begun < step; ++begun) {
        for (uint64_t samples = 1; samples <= 40; ++samples) {
          const Batching batching = {.samples = samples, .batch = batch, .world = world, .begun = begun};
          ASSERT_TRUE(batching.Check().ok());
          ASSERT_EQ(batching.StepsFrom(0), (begun + samples + step - 1) / step);
          ASSERT_EQ(batching.After(0), std::min(samples, step - begun));
          Delivery delivery = {.counted = std::vector<int>(samples)};
          ASSERT_EQ(Consume(batching, 0, UINT64_MAX, &delivery), samples);
          for (const int times : delivery.counted) ASSERT_EQ(times, 1);
        }
      }
    }
  }
  EXPECT_FALSE((Batching{.samples = 9, .batch = 2, .world = 2, .begun = 4}).Check().ok());
  EXPECT_FALSE((Batching{.samples = 9, .batch = 2, .last = LastBatch::kShort, .begun = 1}).Check().ok());
}

}  // namespace
}  // namespace millrace
