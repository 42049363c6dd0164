#include "plan/row_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/rng.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Rows = std::vector<std::vector<Segment>>;

struct Built {
  Rows rows;
  RowCounts counts;
};

Built Build(const RowSpec& spec, const std::vector<uint64_t>& lengths) {
  EXPECT_TRUE(spec.Check().ok()) << spec.Check();
  Built built;
  RowBuilder builder(spec, [&](std::span<const Segment> row) {
    built.rows.emplace_back(row.begin(), row.end());
    return absl::OkStatus();
  });
  for (uint64_t sample = 0; sample < lengths.size(); ++sample) EXPECT_TRUE(builder.Add(sample, lengths[sample]).ok());
  EXPECT_TRUE(builder.Finish().ok());
  built.counts = builder.counts();
  return built;
}

// Returns lengths as of text: many short ones, few that are very long.
std::vector<uint64_t> TextLengths(uint64_t count, double mean_log, double sigma, uint64_t seed) {
  std::vector<uint64_t> lengths;
  Rng rng(seed);
  for (uint64_t i = 0; i < count; ++i) {
    const double normal = std::sqrt(-2 * std::log(1 - rng.Unit())) * std::cos(2 * 3.141592653589793 * rng.Unit());
    lengths.push_back(static_cast<uint64_t>(std::exp(mean_log + sigma * normal)) + 1);
  }
  return lengths;
}

std::vector<uint64_t> AnyLengths(uint64_t count, uint64_t most, uint64_t seed) {
  std::vector<uint64_t> lengths;
  Rng rng(seed);
  for (uint64_t i = 0; i < count; ++i) lengths.push_back(rng.Below(rng.Below(most) + 1));
  return lengths;
}

// Checks what must hold of any rows: none is empty or too long, segments lie within their samples and none overlap, and
// the counts are those of the rows. Returns the tokens of each sample that are in rows.
std::vector<uint64_t> CheckRows(const RowSpec& spec, const std::vector<uint64_t>& lengths, const Built& built) {
  RowCounts seen;
  std::vector<uint64_t> taken(lengths.size());
  std::map<uint64_t, std::map<uint64_t, uint64_t>> segments;  // of each sample: end by offset
  for (const std::vector<Segment>& row : built.rows) {
    EXPECT_FALSE(row.empty());
    uint64_t tokens = 0;
    for (const Segment& segment : row) {
      EXPECT_GT(segment.length, 0u);
      EXPECT_LT(segment.sample, lengths.size());
      EXPECT_LE(segment.offset + segment.length, lengths[segment.sample]);
      EXPECT_TRUE(segments[segment.sample].emplace(segment.offset, segment.offset + segment.length).second);
      taken[segment.sample] += segment.length;
      tokens += segment.length;
      ++seen.segments;
    }
    EXPECT_LE(tokens, spec.length);
    seen.tokens += tokens;
    ++seen.rows;
  }
  for (const auto& [sample, ends] : segments) {
    uint64_t before = 0;
    for (const auto& [offset, end] : ends) {
      EXPECT_GE(offset, before);
      before = end;
    }
  }
  seen.samples = segments.size();
  seen.empty = static_cast<uint64_t>(std::count(lengths.begin(), lengths.end(), 0u));
  seen.truncated = built.counts.truncated;
  EXPECT_EQ(seen, built.counts);
  return taken;
}

TEST(RowBuilder, PadsOneSampleARow) {
  const Built built = Build({.layout = RowLayout::kPad, .length = 4}, {3, 4, 0, 9, 1});
  EXPECT_THAT(built.rows,
              ElementsAre(ElementsAre(Segment{0, 0, 3}), ElementsAre(Segment{1, 0, 4}), ElementsAre(Segment{3, 0, 4}),
                          ElementsAre(Segment{3, 4, 4}), ElementsAre(Segment{3, 8, 1}), ElementsAre(Segment{4, 0, 1})));
  EXPECT_EQ(built.counts, (RowCounts{.rows = 6, .tokens = 17, .segments = 6, .samples = 4, .empty = 1}));
}

TEST(RowBuilder, TruncatesWhatIsTooLong) {
  for (const RowLayout layout : {RowLayout::kPad, RowLayout::kPack}) {
    const RowSpec spec{.layout = layout, .length = 4, .longer = LongSamples::kTruncate};
    const Built built = Build(spec, {3, 4, 0, 9, 1});
    EXPECT_EQ(built.counts.truncated, 5u);
    EXPECT_THAT(CheckRows(spec, {3, 4, 0, 9, 1}, built), ElementsAre(3, 4, 0, 4, 1));
  }
}

TEST(RowBuilder, RefusesWhatIsTooLong) {
  for (const RowLayout layout : {RowLayout::kPad, RowLayout::kPack}) {
    RowBuilder builder({.layout = layout, .length = 4, .longer = LongSamples::kRefuse},
                       [](std::span<const Segment>) { return absl::OkStatus(); });
    EXPECT_TRUE(builder.Add(0, 4).ok());
    const absl::Status refused = builder.Add(1, 5);
    EXPECT_TRUE(absl::IsOutOfRange(refused));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("5 tokens, and the longest row that was declared has 4"));
  }
}

TEST(RowBuilder, CutsAStream) {
  const Built built = Build({.layout = RowLayout::kStream, .length = 4}, {3, 0, 6, 1, 1});
  EXPECT_THAT(built.rows, ElementsAre(ElementsAre(Segment{0, 0, 3}, Segment{2, 0, 1}), ElementsAre(Segment{2, 1, 4}),
                                      ElementsAre(Segment{2, 5, 1}, Segment{3, 0, 1}, Segment{4, 0, 1})));
}

TEST(RowBuilder, BucketsShareOutEachPieceOnce) {
  const std::vector<uint64_t> lengths = AnyLengths(500, 60, 3);
  const std::vector<uint64_t> bounds{4, 9, 20};
  for (const LongSamples longer : {LongSamples::kSplit, LongSamples::kTruncate}) {
    std::vector<uint64_t> taken(lengths.size());
    uint64_t above = 0;
    for (const uint64_t bound : bounds) {
      const RowSpec spec{
          .layout = RowLayout::kPad, .length = bound, .longer = longer, .above = above, .longest = bounds.back()};
      const Built built = Build(spec, lengths);
      const std::vector<uint64_t> here = CheckRows(spec, lengths, built);
      for (size_t i = 0; i < taken.size(); ++i) taken[i] += here[i];
      for (const auto& row : built.rows) EXPECT_GT(row.front().length, above);
      above = bound;
    }
    for (size_t i = 0; i < taken.size(); ++i) {
      EXPECT_EQ(taken[i], longer == LongSamples::kSplit ? lengths[i] : std::min<uint64_t>(lengths[i], 20));
    }
  }
}

// Every token comes once, whatever the layout, the lengths and the groups.
TEST(RowBuilder, HasEachTokenOnce) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    const RowSpec spec{
        .layout = static_cast<RowLayout>(seed % 3), .length = 1 + rng.Below(60), .group = 1 + rng.Below(20)};
    const std::vector<uint64_t> lengths = AnyLengths(rng.Below(400), 1 + rng.Below(200), seed + 1000);
    const Built built = Build(spec, lengths);
    EXPECT_EQ(CheckRows(spec, lengths, built), lengths) << "seed " << seed;
    EXPECT_EQ(built.rows, Build(spec, lengths).rows);
    if (spec.layout != RowLayout::kStream) continue;
    // The rows of a stream are the samples one after another, and all but the last are full.
    uint64_t sample = 0;
    uint64_t offset = 0;
    for (size_t row = 0; row < built.rows.size(); ++row) {
      uint64_t tokens = 0;
      for (const Segment& segment : built.rows[row]) {
        for (; offset == lengths[sample]; offset = 0) ++sample;
        EXPECT_EQ(segment.sample, sample);
        EXPECT_EQ(segment.offset, offset);
        offset += segment.length;
        tokens += segment.length;
      }
      EXPECT_TRUE(tokens == spec.length || row + 1 == built.rows.size());
    }
  }
}

// Packing keeps samples whole where they fit; and where all are packed at once, no two rows could have been one.
TEST(RowBuilder, PacksAsWellAsBestFitCan) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Rng rng(seed);
    const bool at_once = seed % 2 == 0;
    const RowSpec spec{
        .layout = RowLayout::kPack, .length = 10 + rng.Below(200), .group = at_once ? 4096 : 1 + rng.Below(30)};
    const std::vector<uint64_t> lengths = AnyLengths(300, 1 + rng.Below(300), seed);
    const Built built = Build(spec, lengths);
    std::map<uint64_t, uint64_t> segments;
    for (const auto& row : built.rows) {
      for (const Segment& segment : row) ++segments[segment.sample];
    }
    for (uint64_t i = 0; i < lengths.size(); ++i) EXPECT_EQ(segments[i], (lengths[i] + spec.length - 1) / spec.length);
    uint64_t less_than_half = 0;
    for (const auto& row : built.rows) {
      uint64_t tokens = 0;
      for (const Segment& segment : row) tokens += segment.length;
      less_than_half += tokens * 2 <= spec.length ? 1 : 0;
    }
    EXPECT_TRUE(less_than_half <= 1 || !at_once) << "seed " << seed;
  }
}

// This figure is promised: 99.8 % of the places hold tokens, on lengths as texts have them.
TEST(RowBuilder, FillsRowsOnTypicalTexts) {
  for (const auto& [length, mean_log, sigma] : std::vector<std::tuple<uint64_t, double, double>>{
           {2048, 6.2, 1.1}, {2048, 5.0, 1.2}, {4096, 6.5, 1.0}, {8192, 6.5, 1.3}, {1024, 6.0, 1.0}}) {
    const RowSpec spec{.layout = RowLayout::kPack, .length = length, .group = 384};
    const RowCounts counts = Build(spec, TextLengths(100'000, mean_log, sigma, length)).counts;
    EXPECT_GE(counts.Fill(length), 0.998) << length << " " << mean_log << " " << sigma;
  }
}

// The samples of one group of rows are close together, so that they are read in long runs.
TEST(RowBuilder, PacksNeighbours) {
  const RowSpec spec{.layout = RowLayout::kPack, .length = 2048, .group = 256};
  const std::vector<uint64_t> lengths = TextLengths(50'000, 6.2, 1.1, 9);
  const Rows rows = Build(spec, lengths).rows;
  uint64_t strayed = 0;
  uint64_t segments = 0;
  for (size_t first = 0; first + 256 <= rows.size(); first += 256) {
    std::vector<uint64_t> samples;
    for (size_t row = first; row < first + 256; ++row) {
      for (const Segment& segment : rows[row]) samples.push_back(segment.sample);
    }
    std::sort(samples.begin(), samples.end());
    const uint64_t middle = samples[samples.size() / 2];
    segments += samples.size();
    for (const uint64_t sample : samples)
      strayed += sample + samples.size() < middle || sample > middle + samples.size();
  }
  EXPECT_LT(static_cast<double>(strayed), 0.01 * static_cast<double>(segments));
}

TEST(RowBuilder, EndsWithTheSinksError) {
  for (const RowLayout layout : {RowLayout::kPad, RowLayout::kStream, RowLayout::kPack}) {
    RowBuilder builder({.layout = layout, .length = 2},
                       [](std::span<const Segment>) { return absl::UnavailableError("disk"); });
    absl::Status status = builder.Add(0, 3);
    if (status.ok()) status = builder.Finish();
    EXPECT_TRUE(absl::IsUnavailable(status)) << RowLayoutName(layout);
  }
}

TEST(RowSpec, RefusesWhatMakesNoSense) {
  const auto check = [](RowSpec spec) { return std::string(spec.Check().message()); };
  EXPECT_THAT(check({.length = 0}), HasSubstr("1 to 16777216 tokens, not 0"));
  EXPECT_THAT(check({.length = RowSpec::kMaxLength + 1}), HasSubstr("not 16777217"));
  EXPECT_THAT(check({.length = 1, .group = 0}), HasSubstr("1 to 65536 rows, not 0"));
  EXPECT_THAT(check({.layout = RowLayout::kPad, .length = 4, .above = 4}), HasSubstr("does not fit"));
  EXPECT_THAT(check({.layout = RowLayout::kPack, .length = 4, .above = 2}), HasSubstr("one document each"));
}

TEST(RowSpec, TheKeyDependsOnAllThatDecides) {
  const RowSpec spec{.layout = RowLayout::kPad, .length = 8, .group = 4};
  std::set<uint64_t> keys{spec.Key(1), spec.Key(2)};
  std::vector<RowSpec> others(6, spec);
  others[0].layout = RowLayout::kPack;
  others[1].length = 9;
  others[2].longer = LongSamples::kTruncate;
  others[3].group = 5;
  others[4].above = 2;
  others[5].longest = 16;
  for (const RowSpec& other : others) keys.insert(other.Key(1));
  EXPECT_EQ(keys.size(), 8u);
}

}  // namespace
}  // namespace millrace
