// These tests compare batches from workers with those of a loader of this process.

#include "service/service_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "decode/jpeg_encoder.h"
#include "service/worker.h"
#include "store/blocking.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr int kSide = 56;  // rows of 9 KiB, which are received where they belong; labels and the like are not

std::string Jpeg(uint64_t seed) {
  std::vector<uint8_t> rgb(kSide * kSide * 3);
  for (size_t i = 0; i < rgb.size(); ++i) rgb[i] = static_cast<uint8_t>(seed * 7 + i / (1 + seed % 5));
  return *EncodeJpeg(rgb, kSide, kSide, 90);
}

// Holds everything that a batch says, except its memory.
struct Received {
  std::vector<std::string> arrays;
  std::vector<std::string> keys;
  std::string position;
  uint64_t valid = 0;
  uint64_t epoch = 0;
  bool last_of_epoch = false;
  std::string digest;
  friend bool operator==(const Received&, const Received&) = default;
};

// Has a place of its own for data, with the threads that read it.
struct Place {
  Place() : runtime({.io_threads = 1, .cpu_threads = 2, .memory_bytes = uint64_t{1} << 30}), stores(runtime) {}

  void Put(const std::string& key, const std::string& bytes) {
    const Location data = *stores.Open("mem://data");
    ASSERT_TRUE(PutBlocking(*data.store, key, AsBytes(bytes)).ok());
  }
  void Fill(uint64_t samples, uint64_t first = 0) {
    for (uint64_t i = first; i < first + samples; ++i) {
      Put(fmt::format("{}/{:04}.jpg", i % 2 == 0 ? "cats" : "dogs", i), Jpeg(i));
    }
    absl::StatusOr<std::unique_ptr<Dataset>> opened = Dataset::Open(runtime, stores, "mem://data");
    ASSERT_TRUE(opened.ok()) << opened.status();
    dataset = *std::move(opened);
  }

  Runtime runtime;
  Stores stores;
  std::unique_ptr<Dataset> dataset;
};

class ServiceSourceTest : public ::testing::Test {
 protected:
  // Starts a worker beside this process, which sees the same data. It has a budget of its own, as another process
  // would: it may learn late that a stream was closed.
  std::string StartWorker() { return StartWorker(place_.stores); }
  std::string StartWorker(Stores& stores) {
    absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Start(worker_runtime_, stores, {.port = 0});
    EXPECT_TRUE(worker.ok()) << worker.status();
    workers_.push_back(*std::move(worker));
    return fmt::format("127.0.0.1:{}", workers_.back()->port());
  }

  static LoaderOptions Options(uint64_t batch) {
    LoaderOptions options;
    options.image.height = options.image.width = kSide;
    options.image.augment = true;
    options.batch = batch;
    options.seed = 5;
    options.extent = 2;
    options.window = 64;
    options.memory_bytes = uint64_t{64} << 20;
    options.digest = DigestOf::kRaw;
    options.epochs = 2;
    return options;
  }
  static std::vector<Received> Drain(BatchSource& source, size_t most = SIZE_MAX) {
    std::vector<Received> all;
    while (all.size() < most) {
      absl::StatusOr<std::optional<Batch>> batch = source.Next();
      EXPECT_TRUE(batch.ok()) << batch.status();
      if (!batch.ok() || !*batch) break;
      Received& received = all.emplace_back();
      const MutableByteSpan slot = (*batch)->slot;
      for (const BatchArray& array : (*batch)->arrays) {
        received.arrays.emplace_back(AsText(array.bytes));
        EXPECT_GE(array.bytes.data(), slot.data());
        EXPECT_LE(array.bytes.data() + array.bytes.size(), slot.data() + slot.size());
      }
      received.keys = (*batch)->keys;
      received.position = (*batch)->position.ToString();
      received.valid = (*batch)->valid;
      received.epoch = (*batch)->epoch;
      received.last_of_epoch = (*batch)->last_of_epoch;
      received.digest = (*batch)->digest.Hex();
    }
    return all;
  }
  std::vector<Received> Local(const LoaderOptions& options) {
    absl::StatusOr<std::unique_ptr<Loader>> loader = Loader::Create(place_.runtime, *place_.dataset, options);
    EXPECT_TRUE(loader.ok()) << loader.status();
    return loader.ok() ? Drain(**loader) : std::vector<Received>();
  }
  std::unique_ptr<BatchSource> Feed(const LoaderOptions& options, const ServiceOptions& service) {
    absl::StatusOr<std::unique_ptr<BatchSource>> source =
        FeedFromWorkers(place_.runtime, *place_.dataset, options, service);
    EXPECT_TRUE(source.ok()) << source.status();
    return *std::move(source);
  }
  // Rows by worker; the last ones are this process's.
  static std::vector<uint64_t> Rows(const BatchSource& source) {
    std::vector<uint64_t> rows;
    for (const WorkerReport& worker : source.report().workers) rows.push_back(worker.rows);
    return rows;
  }
  // Returns whether a worker was given up or overtaken: a busy machine can keep it from its CPU for as long as a
  // trainer waits.
  static bool IsLate(const WorkerReport& worker) {
    const std::string& why = worker.last_failure;
    return why.find("does not answer") != why.npos || why.find("faster") != why.npos;
  }
  static bool AnyLate(const BatchSource& source) {
    const std::vector<WorkerReport> workers = source.report().workers;
    return std::any_of(workers.begin(), workers.end(), IsLate);
  }

  Place place_;
  Runtime worker_runtime_{{.io_threads = 1, .cpu_threads = 2, .memory_bytes = uint64_t{16} << 30}};
  std::vector<std::unique_ptr<Worker>> workers_;
};

TEST_F(ServiceSourceTest, IsByteByByteWhatALoaderDelivers) {
  place_.Fill(61);
  const std::string worker = StartWorker();
  for (const LastBatch last : {LastBatch::kDrop, LastBatch::kPad, LastBatch::kWrap, LastBatch::kShort}) {
    for (uint64_t world = 1; world <= 3; ++world) {
      for (uint64_t streams = 1; streams <= 4; streams *= 2) {
        for (uint64_t rank = 0; rank < world; ++rank) {
          SCOPED_TRACE(
              fmt::format("last {} world {} streams {} rank {}", static_cast<int>(last), world, streams, rank));
          LoaderOptions options = Options(8);
          options.last = last;
          options.world = world;
          options.rank = rank;
          const std::unique_ptr<BatchSource> source = Feed(options, {.workers = {worker}, .streams = streams});
          EXPECT_EQ(Drain(*source), Local(options));
          EXPECT_TRUE(Rows(*source).back() == 0u || AnyLate(*source));
        }
      }
    }
  }
}

TEST_F(ServiceSourceTest, GoesOnAtAnyPosition) {
  place_.Fill(61);
  const std::string worker = StartWorker();
  const LoaderOptions plain = Options(8);
  const Position first = *Position::Parse(Local(plain).front().position);
  for (const LastBatch last : {LastBatch::kPad, LastBatch::kWrap, LastBatch::kShort}) {
    // Also where a step begins at a position that the streams do not divide, as a run of another world leaves it.
    for (const uint64_t consumed : {0, 1, 2, 3, 5, 12, 37, 58, 59, 60}) {
      for (uint64_t world = 1; world <= 3; ++world) {
        SCOPED_TRACE(fmt::format("last {} consumed {} world {}", static_cast<int>(last), consumed, world));
        LoaderOptions options = plain;
        options.last = last;
        options.world = world;
        options.rank = world - 1;
        options.start = Position{1, consumed, first.fingerprint};
        const std::unique_ptr<BatchSource> source = Feed(options, {.workers = {worker}, .streams = 4});
        EXPECT_EQ(source->report().position.ToString(), options.start->ToString());
        EXPECT_EQ(Drain(*source), Local(options));
      }
    }
  }
}

TEST_F(ServiceSourceTest, LocalStreamsShareTheWork) {
  place_.Fill(64);
  const std::unique_ptr<BatchSource> source =
      Feed(Options(8), {.workers = {StartWorker(), StartWorker()}, .local_streams = 1});
  EXPECT_EQ(Drain(*source), Local(Options(8)));
  const std::vector<uint64_t> rows = Rows(*source);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0] + rows[1] + rows[2], 128u);
  EXPECT_TRUE(rows[2] == 32u || (rows[2] > 32u && AnyLate(*source))) << "one stream of four: " << rows[2];
}

TEST_F(ServiceSourceTest, AWorkerThatDiesIsNotNoticed) {
  place_.Fill(61);
  LoaderOptions options = Options(4);
  options.epochs = 12;  // more steps than all streams have in flight
  const std::vector<Received> expected = Local(options);
  const std::unique_ptr<BatchSource> source = Feed(options, {.workers = {StartWorker(), StartWorker()}});
  std::vector<Received> got = Drain(*source, 5);
  workers_.front().reset();
  for (Received& more : Drain(*source)) got.push_back(std::move(more));
  EXPECT_EQ(got, expected);
  const std::vector<WorkerReport> workers = source->report().workers;
  EXPECT_NE(workers[0].last_failure, "");
  EXPECT_TRUE(workers[1].failures == 0u || IsLate(workers[1])) << workers[1].last_failure;
  EXPECT_TRUE(workers[2].rows == 0u || IsLate(workers[1])) << workers[2].rows;
}

TEST_F(ServiceSourceTest, WithoutAnyWorkerThisProcessGoesOn) {
  place_.Fill(61);
  LoaderOptions options = Options(4);
  options.epochs = 12;  // more steps than all streams have in flight
  const std::vector<Received> expected = Local(options);
  const std::unique_ptr<BatchSource> source = Feed(options, {.workers = {StartWorker(), StartWorker()}});
  std::vector<Received> got = Drain(*source, 7);
  workers_.clear();
  for (Received& more : Drain(*source)) got.push_back(std::move(more));
  EXPECT_EQ(got, expected);
  EXPECT_GT(Rows(*source).back(), 0u);
}

TEST_F(ServiceSourceTest, AWorkerOfAnotherDataSetIsRefused) {
  place_.Fill(61);
  Place other;
  other.Fill(61, 1);
  const std::unique_ptr<BatchSource> source = Feed(Options(8), {.workers = {StartWorker(other.stores)}});
  EXPECT_EQ(Drain(*source), Local(Options(8)));
  const std::vector<WorkerReport> workers = source->report().workers;
  EXPECT_EQ(workers[0].rows, 0u);
  EXPECT_TRUE(workers[0].last_failure.find("another data set") != std::string::npos || IsLate(workers[0]))
      << workers[0].last_failure;
  EXPECT_EQ(workers[1].rows, 128u);
  workers_.clear();
}

TEST_F(ServiceSourceTest, SubsetsAndMixes) {
  place_.Fill(61);
  Filter filter;
  filter.classes = {"dogs"};
  const Subset dogs = *Where(place_.runtime, *place_.dataset, filter);
  const Source source({dogs, *place_.dataset});
  LoaderOptions options = Options(8);
  options.mix = MixOptions{.length = 50, .stages = {{0, {2, 1}}}};
  const std::unique_ptr<Loader> local = *Loader::Create(place_.runtime, source, options);
  absl::StatusOr<std::unique_ptr<BatchSource>> fed =
      FeedFromWorkers(place_.runtime, source, options, {.workers = {StartWorker(), StartWorker()}});
  ASSERT_TRUE(fed.ok()) << fed.status();
  EXPECT_EQ(Drain(**fed), Drain(*local));
  EXPECT_EQ((*fed)->report().part_samples, local->report().part_samples);
  EXPECT_TRUE(Rows(**fed).back() == 0u || AnyLate(**fed));
}

TEST_F(ServiceSourceTest, DamagedSamplesAreThoseOfALoader) {
  place_.Put("dogs/0099.jpg", std::string(Jpeg(7).size(), 'x'));
  place_.Fill(20);
  LoaderOptions options = Options(4);
  options.epochs = 1;
  options.bad_samples = BadSamples::kReplace;
  const std::string worker = StartWorker();
  const std::unique_ptr<BatchSource> replaced = Feed(options, {.workers = {worker}, .streams = 2});
  EXPECT_EQ(Drain(*replaced), Local(options));
  EXPECT_EQ(replaced->report().quarantined, 1u);
  options.bad_samples = BadSamples::kFail;
  const std::unique_ptr<BatchSource> failing = Feed(options, {.workers = {worker}, .streams = 2});
  absl::StatusOr<std::optional<Batch>> batch = failing->Next();
  while (batch.ok() && *batch) batch = failing->Next();
  EXPECT_TRUE(absl::IsDataLoss(batch.status())) << batch.status();
  EXPECT_THAT(batch.status().message(), HasSubstr("dogs/0099.jpg"));
}

TEST_F(ServiceSourceTest, AProgramThatHoldsAllBatchesIsTold) {
  place_.Fill(61);
  LoaderOptions options = Options(8);
  options.epochs = 0;
  options.memory_bytes = uint64_t{32} << 20;
  const std::unique_ptr<BatchSource> source = Feed(options, {.workers = {StartWorker()}, .streams = 2});
  std::vector<Batch> held;
  absl::Status status;
  while (held.size() < 1000) {
    absl::StatusOr<std::optional<Batch>> batch = source->Next();
    status = batch.status();
    if (!status.ok()) break;
    held.push_back(**std::move(batch));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  held.clear();
  EXPECT_TRUE(source->Next().ok());
}

// Returns the budget in bytes that a message names after `words`, in MiB.
uint64_t NamedBudget(const absl::Status& status, const std::string& words) {
  const std::string message(status.message());
  const size_t at = message.find(words);
  EXPECT_NE(at, std::string::npos) << status;
  if (at == std::string::npos) return 0;
  size_t digits = 0;
  const uint64_t mebibytes = std::stoull(message.substr(at + words.size()), &digits);
  EXPECT_EQ(message.substr(at + words.size() + digits, 4), " MiB") << status;
  return mebibytes << 20;
}

TEST_F(ServiceSourceTest, ABudgetThatIsTooSmallNamesOneThatWouldDo) {
  place_.Fill(20);
  const ServiceOptions service{.workers = {StartWorker()}};
  int refused = 0;
  for (uint64_t kibibytes = 1024; kibibytes < 2048; kibibytes += 128) {
    LoaderOptions options = Options(8);
    options.memory_bytes = kibibytes << 10;
    const absl::Status refusal = FeedFromWorkers(place_.runtime, *place_.dataset, options, service).status();
    if (refusal.message().find("is too small for batches from workers") == std::string::npos) continue;
    ++refused;
    EXPECT_TRUE(absl::IsResourceExhausted(refusal)) << refusal;
    options.memory_bytes = NamedBudget(refusal, "to continue without them; ");
    EXPECT_EQ(Drain(*Feed(options, service)), Local(Options(8)));
  }
  EXPECT_GT(refused, 0);
}

TEST_F(ServiceSourceTest, AStepWithTooManyValuesNamesABudgetThatWouldDo) {
  constexpr uint64_t kBatch = 16;  // a row for each stream, which any loader of it can hold
  // Large ones first; by the mean, there would be room.
  for (uint64_t i = 0; i < 30 * kBatch; ++i) {
    place_.Put(fmt::format("a/{:03}.txt", i), std::string(i < kBatch ? uint64_t{2} << 20 : 10, 'x'));
  }
  place_.dataset = *Dataset::Open(place_.runtime, place_.stores, "mem://data");
  LoaderOptions options;
  options.fields = {{.name = "text", .field = "txt", .kind = BatchField::Kind::kText}};
  options.batch = kBatch;
  options.shuffle = Shuffle::kNone;
  options.epochs = 1;
  options.memory_bytes = uint64_t{192} << 20;
  const ServiceOptions service{.workers = {StartWorker()}, .streams = kBatch};
  const absl::Status refusal = Feed(options, service)->Next().status();
  ASSERT_TRUE(absl::IsResourceExhausted(refusal)) << refusal;
  options.memory_bytes = NamedBudget(refusal, "choose a smaller batch, or a budget of ");
  EXPECT_EQ(Drain(*Feed(options, service)).size(), 30u);
}

TEST_F(ServiceSourceTest, RefusesWhatMakesNoSense) {
  place_.Fill(61);
  const auto refusal = [this](const LoaderOptions& options, const ServiceOptions& service) {
    return FeedFromWorkers(place_.runtime, *place_.dataset, options, service).status();
  };
  const auto check = [this](const LoaderOptions& options, const ServiceOptions& service) {
    return CheckFeedFromWorkers(*place_.dataset, options, service);
  };
  EXPECT_TRUE(absl::IsInvalidArgument(refusal(Options(8), {})));
  EXPECT_THAT(check(Options(8), {.workers = {"h:1", "h:1"}}).message(), HasSubstr("named twice"));
  EXPECT_THAT(check(Options(7), {.workers = {"h:1"}, .local_streams = 2}).message(), HasSubstr("divides into 1"));
  EXPECT_TRUE(check(Options(8), {.workers = {"h:1"}, .local_streams = 8}).ok());
  EXPECT_THAT(refusal(Options(8), {.workers = {"nowhere"}}).message(), HasSubstr("HOST:PORT"));
  EXPECT_THAT(refusal(Options(8), {.workers = {"h:1", "h:1"}}).message(), HasSubstr("named twice"));
  EXPECT_THAT(refusal(Options(7), {.workers = {"h:1"}, .local_streams = 2}).message(), HasSubstr("divides into 1"));
  LoaderOptions small = Options(8);
  small.memory_bytes = 1150 << 10;
  EXPECT_TRUE(absl::IsResourceExhausted(refusal(small, {.workers = {"h:1"}})));
}

}  // namespace
}  // namespace millrace
