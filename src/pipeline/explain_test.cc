#include "pipeline/explain.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "decode/jpeg_encoder.h"
#include "pipeline/testing/token_pair.h"
#include "store/blocking.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr int kExplainSide = 16;
constexpr uint64_t kSamples = 400;

/// Raw objects in memory: each is a request of its own. tests/e2e/test_explain.py has shards.
class ExplainTest : public ::testing::Test {
 protected:
  ExplainTest() : runtime_({.io_threads = 1, .cpu_threads = 2}), stores_(runtime_) {
    const std::string jpeg =
        *EncodeJpeg(std::vector<uint8_t>(kExplainSide * kExplainSide * 3, 99), kExplainSide, kExplainSide, 90);
    const Location data = *stores_.Open("mem://data");
    for (uint64_t i = 0; i < kSamples; ++i) {
      EXPECT_TRUE(PutBlocking(*data.store, fmt::format("a/{:04}.jpg", i), AsBytes(jpeg)).ok());
    }
    dataset_ = *Dataset::Open(runtime_, stores_, "mem://data");
    options_.image.height = options_.image.width = kExplainSide;
    options_.batch = 7;
    options_.world = 3;
    options_.rank = 1;
    options_.memory_bytes = uint64_t{8} << 20;
  }

  Runtime runtime_;
  Stores stores_;
  std::unique_ptr<Dataset> dataset_;
  LoaderOptions options_;
};

TEST_F(ExplainTest, ForetellsTheSamplesOfALoader) {
  for (const Shuffle shuffle : {Shuffle::kNone, Shuffle::kGlobal, Shuffle::kWindow}) {
    options_.shuffle = shuffle;
    const absl::StatusOr<LoaderExplanation> found = Explain(*dataset_, options_, {.first_samples = 7});
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(found->first.size(), 7u);
    const std::unique_ptr<Loader> loader = *Loader::Create(runtime_, *dataset_, options_);
    const std::optional<Batch> batch = *loader->Next();
    for (size_t i = 0; i < 7; ++i) {
      EXPECT_EQ(found->first[i].position, 1 + 3 * i);
      EXPECT_EQ(found->first[i].sample, batch->Array<uint64_t>("sample")[i]);
      EXPECT_EQ(found->first[i].key, batch->keys[i]);
    }
    EXPECT_EQ(found->steps, loader->steps_per_epoch());
    EXPECT_EQ(found->rank_samples, 133u);
    EXPECT_EQ(found->fetches.requests, 133u);
    EXPECT_EQ(found->fetches.bytes, found->fetches.sample_bytes);
    EXPECT_EQ(found->fetches.amplification(), 1);
  }
}

TEST_F(ExplainTest, EstimatesFromAPart) {
  const LoaderExplanation whole = *Explain(*dataset_, options_);
  const LoaderExplanation part = *Explain(*dataset_, options_, {.walked_samples = 40});
  EXPECT_FALSE(whole.fetches.estimated);
  EXPECT_TRUE(part.fetches.estimated);
  EXPECT_NEAR(static_cast<double>(part.fetches.requests), 133, 1);
  EXPECT_NEAR(static_cast<double>(part.fetches.bytes), static_cast<double>(whole.fetches.bytes), 200);
}

// The samples are in one object, so that neighbours are fetched together, in windows of extents. One rank is alone, or
// ranks share extents. The walked part ends within a window.
TEST_F(ExplainTest, EstimatesWindowsFromAPart) {
  const auto shard = OpenTokenPair(runtime_, stores_, "mem://tokens", std::vector<uint32_t>(60'000, 32));
  options_.allow_arrays = true;
  options_.extent = 100;
  options_.window = 64;
  options_.lanes = 16;
  options_.memory_bytes *= 4;  // holds a window of samples, with what is kept of each
  for (const uint64_t world : {1u, 3u, 4u}) {
    options_.world = world;
    options_.rank = world - 1;
    const LoaderExplanation whole = *Explain(*shard, options_);
    ASSERT_FALSE(whole.fetches.estimated);
    const LoaderExplanation part = *Explain(*shard, options_, {.walked_samples = 25'000 / world});
    ASSERT_TRUE(part.fetches.estimated);
    const auto near = [](auto value, auto expected) {
      EXPECT_NEAR(static_cast<double>(value), static_cast<double>(expected), 0.02 * static_cast<double>(expected));
    };
    near(part.fetches.requests, whole.fetches.requests);
    near(part.fetches.bytes, whole.fetches.bytes);
    near(part.fetches.sample_bytes, whole.fetches.sample_bytes);
    near(part.fetches.readers, whole.fetches.readers);
    EXPECT_GE(whole.fetches.requests, 600 / world);
    EXPECT_EQ(whole.fetches.sample_bytes, whole.rank_samples * 128);
  }
}

TEST_F(ExplainTest, BeginsWhereALoaderWould) {
  options_.last = LastBatch::kDrop;
  const uint64_t fingerprint = Explain(*dataset_, options_)->start.fingerprint;
  options_.start = Position{0, 21, fingerprint};
  EXPECT_EQ(Explain(*dataset_, options_)->first[0].position, 22u);
  EXPECT_EQ(Explain(*dataset_, options_)->steps, 18u);  // 379 samples in steps of 21
  // No full step is left: the next epoch begins.
  options_.start = Position{0, kSamples - 20, fingerprint};
  const LoaderExplanation next = *Explain(*dataset_, options_);
  EXPECT_EQ(next.start.ToString(), (Position{1, 0, fingerprint}).ToString());
  EXPECT_EQ(next.rank_samples, 133u);  // 19 steps of 7
}

TEST_F(ExplainTest, RefusesWhatALoaderRefuses) {
  options_.start = Position{0, 0, 12345};
  EXPECT_EQ(Explain(*dataset_, options_).status().code(), absl::StatusCode::kFailedPrecondition);
  options_.start.reset();
  options_.memory_bytes = 1000;
  const absl::Status status = Explain(*dataset_, options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("mem://data"));
}

}  // namespace
}  // namespace millrace
