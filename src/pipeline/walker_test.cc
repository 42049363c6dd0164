#include "pipeline/walker.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "decode/jpeg_encoder.h"
#include "pipeline/testing/token_pair.h"
#include "s3/error.h"
#include "shard/testing/tar_builder.h"
#include "store/blocking.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr int kWalkedSide = 8;

// A received batch: the facts by which runs are compared.
struct Received {
  std::vector<uint64_t> samples;
  Uint128 digest;
  std::vector<std::vector<std::string>> values;
  std::vector<std::string> quarantined;
  friend bool operator==(const Received&, const Received&) = default;
};

// Returns the store's answer to the request of that number. nullopt means that the store answers with its objects. May
// name damaged spans.
using Answer = std::function<std::optional<absl::Status>(Fetcher::Request& request, size_t number)>;

// A walker whose requests, tasks and slots end in an order of the test's choice.
class WalkerRun {
 public:
  // Without a seed everything ends in the order in which it began.
  WalkerRun(const LoaderPlan& plan, std::optional<uint64_t> seed, Answer answer = {})
      : rng_(seed.value_or(0)),
        shuffled_(seed.has_value()),
        answer_(std::move(answer)),
        ring_(plan.slot_bytes, plan.slots, Reservation(), [] {}),
        decoder_(MakeRowDecoder(plan, nullptr)),
        walker_(
            plan, 3, &ring_, [this](auto request) { requests_.push_back(std::move(request)); }, stop_.get_token()) {}

  // Runs to the end; fails the test if it comes to a halt before.
  void Finish() {
    while (!end_ && !::testing::Test::HasFatalFailure()) ASSERT_TRUE(Step()) << "nothing is left to happen";
    while (!walker_.idle()) ASSERT_TRUE(EndOne());
  }
  // Lets one thing happen. Returns false if nothing can.
  bool Step() {
    interrupted_ = shuffled_ && rng_.Below(4) == 0;
    const bool more = walker_.Advance(0, interrupted_);
    Walker::Output output = walker_.Take();
    for (auto& task : output.tasks) tasks_.push_back(std::move(task));
    for (Batch& batch : output.batches) Receive(std::move(batch));
    if (output.end) end_ = output.end;
    return end_ || EndOne() || more;
  }
  // Stops it in the middle: everything in flight ends with `status`, and nothing may begin.
  void Stop(const absl::Status& status) {
    stop_.request_stop();
    answer_ = [status](Fetcher::Request& /*request*/, size_t /*number*/) { return status; };
    while (!requests_.empty() || !tasks_.empty()) EndOne();
    EXPECT_TRUE(walker_.idle());
  }

  const std::vector<Received>& received() const { return received_; }
  const absl::Status& end() const { return *end_; }
  size_t requests() const { return answered_; }

 private:
  bool EndOne() {
    const uint64_t choices = requests_.size() + tasks_.size() + held_.size();
    if (choices == 0) return false;
    uint64_t choice = shuffled_ ? rng_.Below(choices) : 0;
    if (choice < requests_.size()) return EndRequest(choice), true;
    choice -= requests_.size();
    if (choice < tasks_.size()) return EndTask(choice), true;
    walker_.OnTaken(TakeFrom(&held_, choice - tasks_.size()).value_bytes);
    return true;
  }
  template <typename T>
  static T TakeFrom(std::deque<T>* from, uint64_t index) {
    T taken = std::move((*from)[index]);
    from->erase(from->begin() + static_cast<std::ptrdiff_t>(index));
    return taken;
  }
  void EndRequest(uint64_t index) {
    std::unique_ptr<Fetcher::Request> request = TakeFrom(&requests_, index);
    absl::Status status = GetBlocking(*request->store, request->key, request->into, std::move(request->get)).status();
    if (answer_) status = answer_(*request, answered_).value_or(status);
    ++answered_;
    request->DealOut(status);
    walker_.OnFetched(std::move(request), status);
  }
  void EndTask(uint64_t index) {
    std::unique_ptr<Walker::Task> task = TakeFrom(&tasks_, index);
    task->Run(*decoder_, stop_.get_token());
    walker_.OnDecoded(std::move(task));
  }
  void Receive(Batch batch) {
    Received& to = received_.emplace_back();
    const std::span<const uint64_t> samples = batch.Array<uint64_t>("sample");
    to.samples.assign(samples.begin(), samples.end());
    to.digest = batch.digest;
    for (const BatchValues& values : batch.values) to.values.push_back(values.rows);
    for (const QuarantinedSample& sample : batch.quarantined) {
      to.quarantined.push_back(fmt::format("{}: {} -> {}", sample.uri, sample.reason, sample.replacement));
    }
    held_.push_back(std::move(batch));
  }

  Rng rng_;
  const bool shuffled_;
  Answer answer_;
  std::stop_source stop_;
  BatchRing ring_;
  std::unique_ptr<RowDecoder> decoder_;
  std::atomic<bool> interrupted_{false};
  std::deque<std::unique_ptr<Fetcher::Request>> requests_;
  size_t answered_ = 0;
  std::deque<std::unique_ptr<Walker::Task>> tasks_;
  std::deque<Batch> held_;
  std::vector<Received> received_;
  std::optional<absl::Status> end_;
  Walker walker_;  // first to go
};

// The data are images in two archives, and rows of tokens.
class WalkerTest : public ::testing::Test {
 protected:
  WalkerTest() : runtime_({.io_threads = 1, .cpu_threads = 1}), stores_(runtime_) {}

  void SetUp() override {
    const Location data = *stores_.Open("mem://walked");
    for (int shard = 0; shard < 2; ++shard) {
      std::string tar;
      for (int i = 0; i < 30; ++i) {
        std::vector<uint8_t> rgb(kWalkedSide * kWalkedSide * 3, static_cast<uint8_t>(i * 8 + shard));
        const std::string name = fmt::format("{}{:02}", shard, i);
        tar += ::millrace::testing::Member(name + ".jpg", *EncodeJpeg(rgb, kWalkedSide, kWalkedSide, 90));
        tar += ::millrace::testing::Member(name + ".cls", std::to_string(i));
      }
      ASSERT_TRUE(
          PutBlocking(*data.store, fmt::format("{}.tar", shard), AsBytes(tar + ::millrace::testing::End())).ok());
    }
    images_ = *Dataset::Open(runtime_, stores_, "mem://walked");
    std::vector<uint32_t> lengths;
    for (uint32_t i = 0; i < 200; ++i) lengths.push_back(1 + i * 7 % 23);
    tokens_ = OpenTokenPair(runtime_, stores_, "mem://walked-tokens", lengths);
  }

  // Plans images with `memory` beside the slots and the reserve; small ones are soon used up.
  LoaderPlan Images(BadSamples bad, uint64_t memory = 48 << 10) {
    LoaderOptions options;
    options.image.height = options.image.width = kWalkedSide;
    options.batch = 4;
    options.shuffle = Shuffle::kWindow;
    options.extent = 6;
    options.window = 4;
    options.lanes = 2;
    options.epochs = 2;
    options.last = LastBatch::kWrap;
    options.bad_samples = bad;
    return Plan(*images_, options, memory);
  }
  // Plans the files of the images and their labels, with room for the values of little more than one batch.
  LoaderPlan Values(BadSamples bad) {
    LoaderOptions options;
    options.fields.resize(2);
    options.fields[0] = {
        .name = "file", .field = "jpg", .kind = BatchField::Kind::kBytes, .image = {}, .like = "", .label = {}};
    options.fields[1] = {
        .name = "label", .field = "cls", .kind = BatchField::Kind::kText, .image = {}, .like = "", .label = {}};
    options.batch = 4;
    options.epochs = 2;
    options.shuffle = Shuffle::kGlobal;
    options.bad_samples = bad;
    LoaderPlan plan = Plan(*images_, options, 1 << 20);
    plan.value_bytes = 2 * images_->index().max_span_bytes();
    return plan;
  }
  LoaderPlan Tokens(uint64_t memory = 48 << 10) {
    LoaderOptions options;
    options.batch = 3;
    options.epochs = 2;
    const absl::StatusOr<Source> rows = Source::OfRows(stores_, *tokens_, {.layout = RowLayout::kPack, .length = 32});
    return Plan(*rows, options, memory);
  }
  static LoaderPlan Plan(const Source& source, LoaderOptions options, uint64_t memory) {
    options.digest = DigestOf::kRaw;
    options.memory_bytes = uint64_t{16} << 20;
    LoaderPlan plan = *Settle(source, options);
    plan.fetch_bytes = memory;
    plan.slots = 3;
    return plan;
  }
  static std::vector<Received> Calm(const LoaderPlan& plan, const Answer& answer = {}) {
    WalkerRun run(plan, std::nullopt, answer);
    run.Finish();
    EXPECT_TRUE(run.end().ok()) << run.end();
    return run.received();
  }
  // Makes an answer: requests that read sample `key` of the images find it damaged.
  Answer Damage(const std::string& key) {
    IndexedSample sample;
    for (uint64_t i = 0; i < images_->index().size() && sample.key != key; ++i) {
      EXPECT_TRUE(images_->index().Lookup(i, &sample).ok());
    }
    const std::string object = key.substr(0, 1) + ".tar";
    return [object, span = sample.span](Fetcher::Request& request, size_t /*number*/) {
      const std::vector<FetchRun::Part>& parts = request.run.parts;
      const bool reads = request.key == object &&
                         std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return part.span == span; });
      if (!reads) return std::optional<absl::Status>();
      request.damaged = {span};
      return std::optional<absl::Status>(absl::DataLossError("damaged in the test"));
    };
  }

  Runtime runtime_;
  Stores stores_;
  std::unique_ptr<Dataset> images_;
  std::unique_ptr<Dataset> tokens_;
};

TEST_F(WalkerTest, TheOrderInWhichThingsEndChangesNothing) {
  for (const LoaderPlan& plan :
       {Images(BadSamples::kFail), Images(BadSamples::kFail, 1 << 20), Tokens(), Tokens(1 << 20)}) {
    const std::vector<Received> calm = Calm(plan);
    for (uint64_t seed = 0; seed < 40; ++seed) {
      WalkerRun run(plan, seed);
      run.Finish();
      EXPECT_TRUE(run.end().ok()) << run.end();
      EXPECT_EQ(run.received(), calm) << seed;
    }
  }
}

TEST_F(WalkerTest, ValuesWaitForRoomInEveryOrder) {
  const LoaderPlan plan = Values(BadSamples::kFail);
  const std::vector<Received> calm = Calm(plan);
  ASSERT_EQ(calm.size(), 30u);
  ASSERT_EQ(calm[0].values.size(), 2u);
  EXPECT_EQ(calm[0].values[0][0].substr(0, 2), "\xff\xd8");
  for (uint64_t seed = 0; seed < 40; ++seed) {
    WalkerRun run(plan, seed);
    run.Finish();
    EXPECT_TRUE(run.end().ok()) << run.end();
    EXPECT_EQ(run.received(), calm) << seed;
  }
}

TEST_F(WalkerTest, ValuesOfABatchThatNeverFitAreRefused) {
  LoaderPlan plan = Values(BadSamples::kFail);
  plan.value_bytes = images_->index().max_span_bytes();
  WalkerRun run(plan, std::nullopt);
  run.Finish();
  EXPECT_TRUE(absl::IsResourceExhausted(run.end())) << run.end();
  EXPECT_THAT(std::string(ToStd(run.end().message())), HasSubstr("the values of a batch"));
}

TEST_F(WalkerTest, WhatFailsAtAnyStepComesAfterTheBatchesBeforeIt) {
  for (const LoaderPlan& plan : {Images(BadSamples::kReplace), Tokens()}) {
    WalkerRun whole(plan, std::nullopt);
    whole.Finish();
    for (size_t step = 0; step < whole.requests(); ++step) {
      bool met = false;
      WalkerRun run(plan, step, [&](Fetcher::Request& /*request*/, size_t number) {
        met = met || number == step;
        return number == step ? std::optional<absl::Status>(absl::UnavailableError("refused")) : std::nullopt;
      });
      run.Finish();
      EXPECT_EQ(absl::IsUnavailable(run.end()), met) << run.end();  // another order may need fewer requests
      ASSERT_LE(run.received().size(), whole.received().size());
      EXPECT_TRUE(std::equal(run.received().begin(), run.received().end(), whole.received().begin())) << step;
    }
  }
}

// S3 also refuses an archived object, for example; indexing again would not help.
TEST_F(WalkerTest, OnlyWhatChangedIsSaidToHaveChanged) {
  const LoaderPlan plan = Images(BadSamples::kFail);
  using Code = absl::StatusCode;
  for (const auto& [kind, code, changed] : {std::tuple(Code::kFailedPrecondition, "", true),
                                            {Code::kFailedPrecondition, "PreconditionFailed", true},
                                            {Code::kFailedPrecondition, "InvalidObjectState", false},
                                            {Code::kNotFound, "", true},
                                            {Code::kNotFound, "NoSuchKey", true},
                                            {Code::kNotFound, "NoSuchBucket", false},
                                            {Code::kUnavailable, "", false}}) {
    WalkerRun run(plan, std::nullopt, [kind = kind, code = code](Fetcher::Request& /*request*/, size_t /*number*/) {
      absl::Status status(kind, "refused");
      if (*code != 0) SetS3Code(&status, code);
      return status;
    });
    run.Finish();
    EXPECT_EQ(run.end().message().find("changed since it was indexed") != std::string::npos, changed) << run.end();
  }
}

// The walker does not wait for requests and tasks that could not be started.
TEST_F(WalkerTest, NothingIsInFlightThatCouldNotBeSent) {
  const LoaderPlan plan = Images(BadSamples::kFail);
  BatchRing ring(plan.slot_bytes, plan.slots, Reservation(), [] {});
  Walker walker(plan, 3, &ring, [](auto /*request*/) { throw std::bad_alloc(); }, {});
  EXPECT_THROW(walker.Advance(0, std::atomic<bool>(false)), std::bad_alloc);
  EXPECT_TRUE(walker.idle());
}

// The store says which samples of a run are damaged. In the past, its neighbours were fetched again, each by itself.
TEST_F(WalkerTest, ADamagedSampleCostsItsNeighboursNoRequest) {
  const LoaderPlan plan = Images(BadSamples::kReplace, 1 << 20);
  WalkerRun whole(plan, std::nullopt);
  whole.Finish();
  size_t in_company = 0;
  WalkerRun damaged(plan, std::nullopt, [&, damage = Damage("105")](Fetcher::Request& request, size_t number) {
    std::optional<absl::Status> status = damage(request, number);
    in_company += status && request.run.parts.size() > 1;
    return status;
  });
  damaged.Finish();
  EXPECT_GT(in_company, 0u);
  EXPECT_LE(damaged.requests(), whole.requests() + 2);  // for the sample that takes its place, each epoch
}

TEST_F(WalkerTest, ADamagedSampleIsReplacedInEveryOrder) {
  const LoaderPlan plan = Images(BadSamples::kReplace);
  const std::vector<Received> calm = Calm(plan, Damage("105"));
  size_t quarantined = 0;
  for (const Received& batch : calm) quarantined += batch.quarantined.size();
  EXPECT_EQ(quarantined, 2u);  // one an epoch
  for (uint64_t seed = 0; seed < 40; ++seed) {
    WalkerRun run(plan, seed, Damage("105"));
    run.Finish();
    EXPECT_EQ(run.received(), calm) << seed;
  }
}

TEST_F(WalkerTest, WhereAllIsDamagedReplacingEnds) {
  const LoaderPlan plan = Images(BadSamples::kReplace);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    WalkerRun run(plan, seed, [](Fetcher::Request& /*request*/, size_t /*number*/) {
      return absl::DataLossError("damaged in the test");
    });
    run.Finish();
    EXPECT_TRUE(absl::IsDataLoss(run.end())) << run.end();
    EXPECT_THAT(std::string(run.end().message()), HasSubstr("9 samples in a row were damaged"));
    EXPECT_TRUE(run.received().empty());
  }
}

TEST_F(WalkerTest, StopsAtAnyMomentWhateverTheStoreAnswers) {
  for (const LoaderPlan& plan : {Images(BadSamples::kReplace, 1 << 20), Tokens()}) {
    for (int steps = 0; steps < 60; ++steps) {
      for (const auto code : {absl::StatusCode::kCancelled, absl::StatusCode::kDataLoss, absl::StatusCode::kOk}) {
        WalkerRun run(plan, steps);
        for (int i = 0; i < steps && run.Step(); ++i) {
        }
        run.Stop(absl::Status(code, "at the end"));
      }
    }
  }
}

}  // namespace
}  // namespace millrace
