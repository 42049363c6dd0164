#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "decode/jpeg_encoder.h"
#include "pipeline/explain.h"
#include "pipeline/loader.h"
#include "store/blocking.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kMixSide = 8;

/// Two data sets of raw objects in memory, the first of two uneven classes.
class MixLoaderTest : public ::testing::Test {
 protected:
  MixLoaderTest() : runtime_({.io_threads = 1, .cpu_threads = 2}), stores_(runtime_) {
    one_ = Make("one", {{"cat", 40}, {"dog", 8}});
    two_ = Make("two", {{"a", 30}});
    options_.image.height = options_.image.width = kMixSide;
    options_.batch = 7;
    options_.seed = 3;
    options_.epochs = 2;
    options_.memory_bytes = uint64_t{4} << 20;
    options_.digest = DigestOf::kDecoded;
  }

  std::unique_ptr<Dataset> Make(const std::string& name, const std::vector<std::pair<std::string, int>>& classes) {
    const Location data = *stores_.Open("mem://" + name);
    for (const auto& [folder, count] : classes) {
      for (int i = 0; i < count; ++i) {
        const std::vector<uint8_t> rgb(kMixSide * kMixSide * 3, static_cast<uint8_t>(i * 5));
        const std::string jpeg = *EncodeJpeg(rgb, kMixSide, kMixSide, 90);
        EXPECT_TRUE(PutBlocking(*data.store, fmt::format("{}/{:03}.jpg", folder, i), AsBytes(jpeg)).ok());
      }
    }
    return *Dataset::Open(runtime_, stores_, "mem://" + name);
  }

  /// These are the labels that the samples of each folder get.
  using LabelsOfFolders = std::map<std::string, std::set<int64_t>>;
  LabelsOfFolders LabelsOf(const Source& source) {
    LabelsOfFolders labels;
    const auto loader = *Loader::Create(runtime_, source, options_);
    while (std::optional<Batch> batch = *loader->Next()) {
      for (size_t row = 0; row < batch->size; ++row) {
        const std::string key = batch->keys[row];
        if (batch->Array<uint8_t>("valid")[row] != 0) {
          labels[key.substr(0, key.find("/"))].insert(batch->Array<int64_t>("label")[row]);
        }
      }
    }
    return labels;
  }

  struct Row {
    uint64_t part;
    uint64_t sample;
    std::string key;
    friend bool operator==(const Row&, const Row&) = default;
  };
  /// Returns the rows that one rank receives in up to `steps` steps, and the position after them in `*after`.
  std::vector<std::vector<Row>> Run(const Source& source, LoaderOptions options, uint64_t steps, Position* after,
                                    LoaderReport* report = nullptr) {
    absl::StatusOr<std::unique_ptr<Loader>> loader = Loader::Create(runtime_, source, options);
    EXPECT_TRUE(loader.ok()) << loader.status();
    std::vector<std::vector<Row>> batches;
    for (; steps > 0; --steps) {
      absl::StatusOr<std::optional<Batch>> batch = (*loader)->Next();
      EXPECT_TRUE(batch.ok()) << batch.status();
      if (!batch.ok() || !*batch) break;
      batches.emplace_back();
      for (uint64_t row = 0; row < (*batch)->valid; ++row) {
        const std::span<const uint64_t> parts = (*batch)->Array<uint64_t>("part");
        const uint64_t part = parts.empty() ? 0 : parts[row];
        batches.back().push_back({part, (*batch)->Array<uint64_t>("sample")[row], (*batch)->keys[row]});
      }
      *after = (*batch)->position;
    }
    if (report != nullptr) *report = (*loader)->report();
    return batches;
  }

  Runtime runtime_;
  Stores stores_;
  std::unique_ptr<Dataset> one_;
  std::unique_ptr<Dataset> two_;
  LoaderOptions options_;
};

TEST_F(MixLoaderTest, DeliversThePlanOfTheMix) {
  const Source source({*one_, *two_});
  options_.mix = MixOptions{.length = 100, .stages = {{0, {3, 1}}}, .draws = Draws::kExact, .fresh_passes = false};
  Position after;
  LoaderReport report;
  const auto batches = Run(source, options_, 1000, &after, &report);
  Mix mix;
  for (const Subset& part : source.parts()) {
    mix.parts.push_back({part.size(), OrderPolicy::ForSamples(Shuffle::kWindow, part.index().mean_span_bytes(), true)});
  }
  mix.length = 100;
  mix.stages = {{0, {3, 1}}};
  uint64_t count = 0;
  for (const auto& batch : batches) {
    for (const Row& row : batch) {
      const Source::Place place = source.Find(Plan(mix, 3, count / 100).At(count % 100));
      EXPECT_EQ(row.part, place.part);
      EXPECT_EQ(row.sample, place.rank);
      IndexedSample entry;
      EXPECT_TRUE(source.parts()[row.part].index().Lookup(row.sample, &entry).ok());
      EXPECT_EQ(row.key, entry.key);
      ++count;
    }
  }
  EXPECT_EQ(count, 200u);
  EXPECT_THAT(report.part_samples, ElementsAre(150, 50));
  EXPECT_EQ(after.epoch, 2u);
}

/// Kills and other worlds do not change delivered batches, whatever the mix.
TEST_F(MixLoaderTest, ResumesExactlyWithAnyWorld) {
  const std::vector<Subset> classes = *ByClass(runtime_, *one_);
  const std::vector<Source> sources = {
      Source({*one_, *two_}), Source(classes),
      Source(*Where(runtime_, *one_, {.keys = SplitKeys(std::vector{0.6}, 1)->front()}))};
  Rng rng(1);
  for (const Source& source : sources) {
    for (int i = 0; i < 6; ++i) {
      options_.mix.reset();
      if (source.parts().size() > 1) {
        options_.mix = MixOptions{.length = 40 + rng.Below(60),
                                  .stages = {{0, {1, 1}}, {50, {1, 3}}},
                                  .draws = static_cast<Draws>(i % 3),
                                  .fresh_passes = i % 2 == 0};
      }
      options_.image.augment = true;
      options_.world = 1;
      options_.rank = 0;
      options_.start.reset();
      Position end;
      LoaderReport whole;
      std::vector<Row> expected;
      for (const auto& batch : Run(source, options_, 1000, &end, &whole)) {
        expected.insert(expected.end(), batch.begin(), batch.end());
      }
      std::vector<Row> got;
      Uint128 digest;
      while (!options_.start || options_.start->epoch < 2) {
        options_.world = 1 + rng.Below(16);
        options_.batch = 1 + rng.Below(6);
        const uint64_t steps = 1 + rng.Below(5);
        std::vector<std::vector<std::vector<Row>>> ranks;
        Position after;
        for (options_.rank = 0; options_.rank < options_.world; ++options_.rank) {
          LoaderReport report;
          ranks.push_back(Run(source, options_, steps, &after, &report));
          digest += report.digest;
        }
        options_.rank = 0;
        // Within a step, ranks take positions in turn, beginning with the one whose turn it is.
        uint64_t consumed = options_.start ? options_.start->consumed : 0;
        for (size_t step = 0; step < ranks[0].size(); ++step) {
          size_t rows = 0;
          for (const auto& rank : ranks) rows += rank[step].size();
          std::vector<size_t> next(options_.world, 0);
          for (size_t row = 0; row < rows; ++row, ++consumed) {
            const uint64_t rank = consumed % options_.world;
            got.push_back(ranks[rank][step].at(next[rank]++));
          }
          if (consumed % (options_.mix ? options_.mix->length : source.size()) == 0) consumed = 0;
        }
        options_.start = after;
      }
      ASSERT_EQ(got, expected);
      EXPECT_EQ(digest, whole.digest) << "augmentation, too, is a function of the plan";
      options_.batch = 7;
    }
  }
}

TEST_F(MixLoaderTest, ExplainReportsTheProportions) {
  const Source source({*one_, *two_});
  options_.mix = MixOptions{.length = 90, .stages = {{0, {2, 1}}}, .draws = Draws::kExact, .fresh_passes = false};
  const LoaderExplanation found = *Explain(source, options_);
  EXPECT_EQ(found.samples, 90u);
  ASSERT_EQ(found.parts.size(), 2u);
  EXPECT_EQ(found.parts[0].uri, "mem://one");
  EXPECT_EQ(found.parts[0].drawn, 60u);
  EXPECT_EQ(found.parts[1].drawn, 30u);
  EXPECT_DOUBLE_EQ(found.parts[0].wanted, 2.0 / 3);
  EXPECT_DOUBLE_EQ(found.parts[1].passes(), 1.0);
  EXPECT_EQ(found.fetches.requests, 90u) << "a raw object is a request";
  Position after;
  const auto batches = Run(source, options_, 1, &after);
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(batches[0][i], (Row{found.first[i].part, found.first[i].sample, found.first[i].key}));
  }
}

TEST_F(MixLoaderTest, APositionOfAnotherSubsetOrMixIsRefused) {
  const Source source({*one_, *two_});
  Position after;
  Run(source, options_, 2, &after);
  options_.start = after;
  const auto refused = [&](const Source& other, const LoaderOptions& options) {
    const absl::Status status = Loader::Check(other, options);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("another order"));
  };
  EXPECT_TRUE(Loader::Check(source, options_).ok());
  refused(Source({*two_, *one_}), options_);
  refused(*one_, options_);
  refused(Source({*Where(runtime_, *one_, {.keys = SplitKeys(std::vector{0.6}, 1)->front()}), *two_}), options_);
  LoaderOptions weighted = options_;
  weighted.mix = MixOptions{.length = 0, .stages = {{0, {1, 1}}}, .draws = Draws::kExact, .fresh_passes = false};
  refused(source, weighted);
}

TEST_F(MixLoaderTest, RefusesWhatIsNoMix) {
  options_.mix = MixOptions{.length = 10, .stages = {{0, {1}}}, .draws = Draws::kExact, .fresh_passes = false};
  const absl::Status status = Loader::Check(Source({*one_, *two_}), options_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("mem://one + mem://two: mix: 1 weights for 2 parts"));
}

// Each data set numbers its folders from 0; in a mix a class has one number, and a number one class.
TEST_F(MixLoaderTest, ClassesAreNumberedByAllNames) {
  const auto other = Make("other", {{"dog", 9}, {"eel", 5}, {"ant", 3}});
  const auto same = Make("same", {{"cat", 3}, {"dog", 4}});
  EXPECT_EQ(LabelsOf(*one_), (LabelsOfFolders{{"cat", {0}}, {"dog", {1}}}));
  EXPECT_EQ(LabelsOf(Source({*one_, *same})), (LabelsOfFolders{{"cat", {0}}, {"dog", {1}}}));
  EXPECT_EQ(LabelsOf(Source({*one_, *other})),
            (LabelsOfFolders{{"ant", {0}}, {"cat", {1}}, {"dog", {2}}, {"eel", {3}}}));
  EXPECT_EQ(LabelsOf(Source({*other, *two_, *same})),
            (LabelsOfFolders{{"a", {0}}, {"ant", {1}}, {"cat", {2}}, {"dog", {3}}, {"eel", {4}}}));
}

}  // namespace
}  // namespace millrace
