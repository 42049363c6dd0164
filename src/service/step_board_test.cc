#include "service/step_board.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "decode/jpeg_encoder.h"
#include "pipeline/loader_plan.h"
#include "store/blocking.h"
#include "store/stores.h"

namespace millrace {
namespace {

constexpr int kPixels = 56;
constexpr uint64_t kRowBytes = uint64_t{kPixels} * kPixels * 3;
constexpr uint64_t kSlots = 3;
constexpr BoardValues kValues{.ahead = 100, .of_step = 250, .memory = uint64_t{3} << 20, .share = 8};

// There are the frames of two streams of a data set, and the board that they come to.
class StepBoardTest : public ::testing::Test {
 protected:
  StepBoardTest()
      : runtime_({.io_threads = 1, .cpu_threads = 1, .memory_bytes = uint64_t{1} << 30}), stores_(runtime_) {
    const Location data = *stores_.Open("mem://board");
    for (int i = 0; i < 40; ++i) {
      std::vector<uint8_t> rgb(kRowBytes, static_cast<uint8_t>(5 * i));
      const std::string jpeg = *EncodeJpeg(rgb, kPixels, kPixels, 90);
      EXPECT_TRUE(PutBlocking(*data.store, fmt::format("a/{:02}.jpg", i), AsBytes(jpeg)).ok());
    }
    dataset_ = *Dataset::Open(runtime_, stores_, "mem://board");
    LoaderOptions options;
    options.image.height = options.image.width = kPixels;
    options.batch = 4;
    options.epochs = 1;
    options.memory_bytes = uint64_t{64} << 20;
    plan_ = *Settle(*dataset_, options);
    steps_.emplace(*plan_, 2);
    board_.emplace(*steps_, plan_->layouts.front(), kSlots, Reservation(), kValues, 1,
                   [](std::optional<size_t>, StepBoard::Time) {});
    whole_ = *Loader::Create(runtime_, *dataset_, plan_->options);
    for (uint64_t stream = 0; stream < 2; ++stream) {
      LoaderOptions of_stream = steps_->OptionsOf(plan_->options, stream, steps_->start());
      streams_.push_back(*Loader::Create(runtime_, *dataset_, of_stream));
    }
  }

  // Returns the next batch of a stream, as it comes in one piece.
  WireBatch NextFrame(uint64_t stream) {
    Batch batch = **streams_[stream]->Next();
    WireBatch frame;
    frame.facts.size = batch.size;
    frame.facts.keys = batch.keys;
    for (const BatchArray& array : batch.arrays) frame.arrays.emplace_back(array.bytes);
    held_.push_back(std::move(batch));
    return frame;
  }
  // Adds texts of so many bytes together.
  static WireBatch WithValues(WireBatch frame, size_t bytes) {
    frame.facts.values.push_back(
        {"text", BatchField::Kind::kText, {std::string(bytes / 2, 'a'), std::string(bytes - bytes / 2, 'b')}});
    return frame;
  }
  // Returns the frame with its rows received into their place.
  static WireBatch Placed(WireBatch frame, const std::shared_ptr<RowsPlace>& place) {
    for (size_t array = 0; array < frame.arrays.size(); ++array) {
      ByteSpan from = frame.arrays[array];
      for (const MutableByteSpan row : place->arrays()[array].rows) {
        std::memcpy(row.data(), from.data(), row.size());
        from = from.subspan(row.size());
      }
      if (!place->arrays()[array].rows.empty()) frame.arrays[array] = {};
    }
    place->EndWriting();
    frame.rows = place;
    return frame;
  }
  void ExpectNextIsTheLoaders() {
    const absl::StatusOr<std::optional<Batch>> got = board_->outlet().Next();
    const absl::StatusOr<std::optional<Batch>> wanted = whole_->Next();
    ASSERT_TRUE(got.ok() && *got && wanted.ok() && *wanted);
    EXPECT_EQ((*got)->keys, (*wanted)->keys);
    ASSERT_EQ((*got)->arrays.size(), (*wanted)->arrays.size());
    for (size_t i = 0; i < (*got)->arrays.size(); ++i) {
      EXPECT_TRUE(AsText((*got)->arrays[i].bytes) == AsText((*wanted)->arrays[i].bytes)) << (*got)->arrays[i].name;
    }
  }

  Runtime runtime_;
  Stores stores_;
  std::unique_ptr<Dataset> dataset_;
  std::optional<LoaderPlan> plan_;
  std::optional<StreamSteps> steps_;
  std::optional<StepBoard> board_;
  std::unique_ptr<Loader> whole_;
  std::vector<std::unique_ptr<Loader>> streams_;
  std::vector<Batch> held_;
};

TEST_F(StepBoardTest, GivesEachPlaceToOneCall) {
  std::shared_ptr<RowsPlace> place = board_->Claim(0, 1);
  ASSERT_NE(place, nullptr);
  const std::vector<RowsPlace::Array>& arrays = place->arrays();
  ASSERT_EQ(arrays.size(), plan_->layouts.front().shape().size());
  EXPECT_EQ(arrays[0].bytes, 2 * kRowBytes);
  ASSERT_EQ(arrays[0].rows.size(), 2u);
  EXPECT_EQ(arrays[0].rows[0].size(), kRowBytes);
  EXPECT_EQ(arrays[0].rows[1].data() - arrays[0].rows[0].data(), static_cast<std::ptrdiff_t>(2 * kRowBytes));
  EXPECT_TRUE(arrays[1].rows.empty()) << "numbers are not received one by one";
  EXPECT_EQ(board_->Claim(0, 1), nullptr);
  EXPECT_NE(board_->Claim(0, 0), nullptr);
  place.reset();
  EXPECT_NE(board_->Claim(0, 1), nullptr);
  EXPECT_NE(board_->Claim(kSlots - 1, 0), nullptr);
  EXPECT_EQ(board_->Claim(kSlots, 0), nullptr) << "there is no slot";
  EXPECT_EQ(board_->Claim(1000, 0), nullptr) << "there is no such step";
}

TEST_F(StepBoardTest, SaysForWhichStepsThereAreSlots) {
  EXPECT_EQ(board_->Room(), kSlots);
  for (uint64_t stream = 0; stream < 2; ++stream) ASSERT_TRUE(board_->Fill(0, stream, NextFrame(stream), 1));
  EXPECT_EQ(board_->Room(), kSlots);
  std::optional<Batch> batch = *board_->outlet().Next();
  EXPECT_EQ(board_->Room(), kSlots) << "the program has it";
  EXPECT_NE(board_->Claim(kSlots - 1, 0), nullptr);
  EXPECT_EQ(board_->Claim(kSlots, 0), nullptr);
  board_->AwaitRoom(kSlots - 1, std::chrono::minutes(5));
  std::thread program([&batch] { batch.reset(); });
  board_->AwaitRoom(kSlots, std::chrono::minutes(5));
  EXPECT_EQ(board_->Room(), kSlots + 1);
  EXPECT_NE(board_->Claim(kSlots, 0), nullptr);
  program.join();
  board_->Stop();
  board_->AwaitRoom(1000, std::chrono::minutes(5));
}

TEST_F(StepBoardTest, TakesRowsThatAreThereAndOthers) {
  for (uint64_t step = 0; step < 6; ++step) {
    for (uint64_t stream = 0; stream < 2; ++stream) {
      WireBatch frame = NextFrame(stream);
      if ((step + stream) % 3 != 0) {
        const std::shared_ptr<RowsPlace> place = board_->Claim(step, stream);
        ASSERT_NE(place, nullptr);
        frame = Placed(std::move(frame), place);
      }
      ASSERT_TRUE(board_->Fill(step, stream, std::move(frame), stream + 1));
      EXPECT_EQ(board_->Claim(step, stream), nullptr) << "its rows are there";
    }
    ExpectNextIsTheLoaders();
    EXPECT_EQ(board_->Claim(step, 0), nullptr) << "the batch has left";
  }
}

TEST_F(StepBoardTest, WaitsForACallThatWasCancelled) {
  const std::shared_ptr<RowsPlace> cancelled = board_->Claim(0, 0);
  ASSERT_NE(cancelled, nullptr);
  std::thread stream([&] { EXPECT_TRUE(board_->Fill(0, 0, NextFrame(0), 1)); });
  for (const MutableByteSpan row : cancelled->arrays()[0].rows) std::memset(row.data(), 0xee, row.size());
  cancelled->EndWriting();
  stream.join();
  ASSERT_TRUE(board_->Fill(0, 1, NextFrame(1), 1));
  ExpectNextIsTheLoaders();
}

// Rows that the program does not need yet wait until there is room. Rows that it needs next do not wait, however much
// they take of what a step may have. In each round this thread brings rows early. There is room for them only when the
// other thread, which also is the program, takes the batch before theirs. If they did not wait for that, they would
// arrive long before.
TEST_F(StepBoardTest, ValuesHaveABound) {
  constexpr uint64_t kRounds = 3;
  std::vector<WireBatch> frames;
  for (uint64_t step = 0; step < 2 * kRounds; ++step) frames.push_back(WithValues(NextFrame(1), 120));
  std::atomic<uint64_t> begun{0};    // rounds
  std::atomic<uint64_t> leaving{0};  // rounds: the batch before the early rows has its rows, and is taken now
  const auto take = [&](uint64_t step) {
    if (!board_->Fill(step, 1, std::move(frames[step]), 2)) return false;
    if (step % 2 == 1) leaving = step / 2 + 1;
    const absl::StatusOr<std::optional<Batch>> batch = board_->outlet().Next();
    if (!batch.ok() || !*batch || (*batch)->values.size() != 1) return false;
    uint64_t bytes = 0;
    for (const std::string& row : (*batch)->values[0].rows) bytes += row.size();
    EXPECT_EQ(bytes, step == 0 ? 240u : step % 2 == 0 ? 140u : 210u);
    return true;
  };
  std::thread other([&] {
    for (uint64_t round = 0; round < kRounds; ++round) {
      while (begun == round) std::this_thread::yield();
      if (take(2 * round) && take(2 * round + 1)) continue;
      ADD_FAILURE() << "the batches of round " << round << " do not come";
      return board_->Stop();
    }
  });
  EXPECT_TRUE(board_->Fill(0, 0, WithValues(NextFrame(0), 120), 1));
  for (uint64_t round = 0; round < kRounds; ++round) {
    EXPECT_TRUE(board_->Fill(2 * round + 1, 0, WithValues(NextFrame(0), 90), 1));
    WireBatch early = WithValues(NextFrame(0), 20);
    begun = round + 1;
    EXPECT_TRUE(board_->Fill(2 * round + 2, 0, std::move(early), 1));
    EXPECT_GT(leaving.load(), round) << "90 bytes have come early, and 100 may";
  }
  other.join();
}

TEST_F(StepBoardTest, AStepWithTooManyValuesIsToldOf) {
  ASSERT_TRUE(board_->Fill(0, 0, WithValues(NextFrame(0), 200), 1));
  EXPECT_FALSE(board_->Fill(0, 1, WithValues(NextFrame(1), 60), 2));
  const absl::StatusOr<std::optional<Batch>> none = board_->outlet().Next();
  EXPECT_TRUE(absl::IsResourceExhausted(none.status())) << none.status();
  // Two streams bring 260 bytes, of which the first step may have 250; a budget that is larger by a third has more.
  EXPECT_NE(none.status().message().find("take about 260 B, and 250 B of the memory budget of 3.0 MiB"),
            std::string::npos)
      << none.status();
  EXPECT_NE(none.status().message().find("a budget of 5 MiB"), std::string::npos) << none.status();
}

TEST_F(StepBoardTest, AStoppedBoardHoldsNobodyUp) {
  ASSERT_TRUE(board_->Fill(0, 0, WithValues(NextFrame(0), 120), 1));
  ASSERT_TRUE(board_->Fill(1, 0, WithValues(NextFrame(0), 90), 1));
  std::thread ahead(
      [&, frame = WithValues(NextFrame(0), 20)]() mutable { EXPECT_FALSE(board_->Fill(2, 0, std::move(frame), 1)); });
  board_->Stop();
  ahead.join();
}

TEST_F(StepBoardTest, PlacesOutliveTheBoard) {
  const std::shared_ptr<RowsPlace> place = board_->Claim(0, 0);
  ASSERT_NE(place, nullptr);
  board_->Stop();
  EXPECT_EQ(board_->Claim(0, 1), nullptr);
  board_.reset();
  for (const MutableByteSpan row : place->arrays()[0].rows) std::memset(row.data(), 0xee, row.size());
}

}  // namespace
}  // namespace millrace
