#include "service/local_stream.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/loader_plan.h"
#include "service/row_functions.h"
#include "store/blocking.h"
#include "store/stores.h"

namespace millrace {
namespace {

constexpr uint64_t kStreams = 2;
constexpr uint64_t kMemory = uint64_t{64} << 20;

// There is a data set of texts, and a trainer that reads it in steps of four.
class LocalStreamTest : public ::testing::Test {
 protected:
  LocalStreamTest()
      : runtime_({.io_threads = 1, .cpu_threads = 1, .memory_bytes = uint64_t{512} << 20}), stores_(runtime_) {
    const Location data = *stores_.Open("mem://data");
    for (int i = 0; i < 30; ++i) {
      EXPECT_TRUE(PutBlocking(*data.store, fmt::format("a/{:02}.txt", i), AsBytes(fmt::format("text {}", i))).ok());
    }
    dataset_ = *Dataset::Open(runtime_, stores_, "mem://data");
    options_.fields = {{.name = "text", .field = "txt", .kind = BatchField::Kind::kText}};
    options_.batch = 4;
    options_.extent = 2;
    options_.window = 64;
    options_.epochs = 2;
    options_.memory_bytes = kMemory;
    source_.emplace(*dataset_);
    plan_ = *Settle(*source_, options_);
    options_ = plan_->options;
    steps_.emplace(*plan_, kStreams);
  }

  LocalReading Reading(bool with_function = false) {
    return {.runtime = runtime_,
            .source = *source_,
            .options = options_,
            .steps = *steps_,
            .memory = kMemory,
            .with_function = with_function};
  }
  // Returns the batch of this step, when there is one.
  static LocalBatch Await(LocalStream& stream, uint64_t step) {
    for (;;) {
      absl::StatusOr<std::optional<LocalBatch>> batch = stream.Next(step);
      EXPECT_TRUE(batch.ok()) << batch.status();
      if (!batch.ok()) return {};
      if (*batch) return **std::move(batch);
    }
  }

  Runtime runtime_;
  Stores stores_;
  std::unique_ptr<Dataset> dataset_;
  LoaderOptions options_;
  std::optional<Source> source_;
  std::optional<LoaderPlan> plan_;
  std::optional<StreamSteps> steps_;
};

TEST_F(LocalStreamTest, ItsRowsAreThoseOfTheTrainersBatches) {
  const std::unique_ptr<Loader> trainer = *Loader::Create(runtime_, *source_, options_);
  LocalStream first(Reading(), 0, Reservation());
  LocalStream second(Reading(), 1, Reservation());
  for (uint64_t step = 0; step < steps_->end(); ++step) {
    absl::StatusOr<std::optional<Batch>> batch = trainer->Next();
    ASSERT_TRUE(batch.ok() && *batch) << batch.status();
    const std::vector<std::string>& rows = (*batch)->values.front().rows;
    const StreamSteps::Place place = *steps_->PlaceOf(step);
    for (LocalStream* stream : {&first, &second}) {
      const uint64_t number = stream == &first ? 0 : 1;
      const LocalBatch local = Await(*stream, step);
      EXPECT_TRUE(steps_->Check(place, number, local.frame).ok()) << steps_->Check(place, number, local.frame);
      for (uint64_t row = 0; row < steps_->stream_rows(); ++row) {
        EXPECT_EQ(local.frame.facts.values.front().rows[row], rows[steps_->FirstRow(place, number) + row * kStreams]);
      }
    }
  }
}

TEST_F(LocalStreamTest, HasNoResultsOfFunctions) {
  LocalStream stream(Reading(true), 0, Reservation());
  const LocalBatch batch = Await(stream, 0);
  const BatchValues& results = batch.frame.facts.values.back();
  EXPECT_EQ(results.name, kFunctionEntry);
  EXPECT_EQ(results.rows, std::vector<std::string>(steps_->stream_rows()));
}

TEST_F(LocalStreamTest, WaitsForMemoryThatOthersHave) {
  LocalStream stream(Reading(), 0, Reservation());
  Reservation other = runtime_.memory().TryReserve(runtime_.memory().limit() - runtime_.memory().used());
  ASSERT_TRUE(other);
  const absl::StatusOr<std::optional<LocalBatch>> none = stream.Next(0);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->has_value());
  other = Reservation();
  EXPECT_EQ(Await(stream, 0).frame.facts.size, steps_->stream_rows());
}

TEST_F(LocalStreamTest, KeepsItsMemoryWhileItIsClosedAndGoesOnAtAnyStep) {
  const auto has_memory = [this] { return !runtime_.memory().TryReserve(runtime_.memory().limit() - kMemory + 1); };
  EXPECT_FALSE(has_memory());
  LocalStream stream(Reading(), 1, runtime_.memory().TryReserve(kMemory));
  EXPECT_TRUE(has_memory());
  for (const uint64_t step : {0, 5, 2}) {
    const LocalBatch batch = Await(stream, step);
    EXPECT_TRUE(steps_->Check(*steps_->PlaceOf(step), 1, batch.frame).ok()) << step;
    stream.Close();
    stream.Close();
    EXPECT_TRUE(has_memory());
  }
  // The stream reserves again the memory that it has lost to others meanwhile.
  LocalStream poor(Reading(), 0, Reservation());
  poor.Close();
  EXPECT_FALSE(runtime_.memory().TryReserve(runtime_.memory().limit() - 2 * kMemory + 1));
}

}  // namespace
}  // namespace millrace
