#include "plan/row_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "base/crypto.h"
#include "base/rng.h"
#include "plan/row_builder.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using Rows = std::vector<std::vector<Segment>>;

struct Made {
  std::string bytes;
  Rows rows;
  RowCounts counts;
  uint64_t key = 0;
};

Made MakeTable(const RowSpec& spec, const std::vector<uint64_t>& lengths) {
  Made made;
  made.key = spec.Key(7);
  RowTableWriter writer(spec, made.key, lengths.size(), [&made](ByteSpan bytes) {
    made.bytes.append(AsText(bytes));
    return absl::OkStatus();
  });
  RowBuilder builder(spec, [&](std::span<const Segment> row) {
    made.rows.emplace_back(row.begin(), row.end());
    return writer.Add(row);
  });
  for (uint64_t sample = 0; sample < lengths.size(); ++sample) EXPECT_TRUE(builder.Add(sample, lengths[sample]).ok());
  EXPECT_TRUE(builder.Finish().ok());
  EXPECT_TRUE(writer.Finish(builder.counts()).ok());
  made.counts = builder.counts();
  return made;
}

std::vector<uint64_t> Lengths(uint64_t count, uint64_t most, uint64_t seed) {
  std::vector<uint64_t> lengths;
  Rng rng(seed);
  for (uint64_t i = 0; i < count; ++i) lengths.push_back(rng.Below(most + 1));
  return lengths;
}

void CheckStoredOrder(const RowGroup& group) {
  ASSERT_EQ(group.stored.size(), group.segments.size());
  for (uint32_t place = 0; place < group.stored.size(); ++place) {
    const auto [segment, row] = group.stored[place];
    EXPECT_EQ(group.places[segment], place);
    EXPECT_LE(group.begins[row], segment);
    EXPECT_LT(segment, group.begins[row + 1]);
    if (place == 0) continue;
    const Segment& before = group.segments[group.stored[place - 1].segment];
    const Segment& here = group.segments[segment];
    EXPECT_LT(std::tie(before.sample, before.offset), std::tie(here.sample, here.offset));
  }
}

TEST(RowTable, ReadsWhatWasWritten) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    const RowSpec spec{
        .layout = static_cast<RowLayout>(seed % 3), .length = 1 + rng.Below(50), .group = 1 + rng.Below(9)};
    const Made made = MakeTable(spec, Lengths(rng.Below(200), 120, seed));
    const absl::StatusOr<RowTable> table = RowTable::Open(AsBytes(made.bytes), made.key);
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_TRUE(table->Verify().ok());
    EXPECT_EQ(table->counts(), made.counts);
    EXPECT_EQ(table->length(), spec.length);
    Rows rows;
    for (uint64_t number = 0; number * spec.group < table->size(); ++number) {
      const absl::StatusOr<RowGroup> group = table->ReadGroup(number);
      ASSERT_TRUE(group.ok()) << group.status();
      EXPECT_EQ(group->first_row, number * spec.group);
      for (uint64_t row = 0; row < group->rows(); ++row)
        rows.emplace_back(group->Row(row).begin(), group->Row(row).end());
      CheckStoredOrder(*group);
    }
    EXPECT_EQ(rows, made.rows);
  }
}

TEST(RowTable, OfNothing) {
  const Made made = MakeTable({.layout = RowLayout::kPack, .length = 8}, {0, 0});
  const absl::StatusOr<RowTable> table = RowTable::Open(AsBytes(made.bytes), made.key);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->size(), 0u);
  EXPECT_TRUE(table->Verify().ok());
}

TEST(RowTable, NoticesEveryFlippedByteAndEveryCut) {
  const Made made = MakeTable({.layout = RowLayout::kPack, .length = 8, .group = 3}, Lengths(40, 12, 5));
  const auto sound = [&](const std::string& bytes) {
    const absl::StatusOr<RowTable> table = RowTable::Open(AsBytes(bytes), made.key);
    return table.ok() && table->Verify().ok();
  };
  ASSERT_TRUE(sound(made.bytes));
  for (size_t at = 0; at < made.bytes.size(); ++at) {
    for (const char mask : {'\x01', '\x80'}) {
      std::string bytes = made.bytes;
      bytes[at] = static_cast<char>(bytes[at] ^ mask);
      EXPECT_FALSE(sound(bytes)) << at;
    }
    EXPECT_FALSE(sound(made.bytes.substr(0, at))) << at;
    EXPECT_FALSE(sound(made.bytes.substr(at + 1))) << at;
  }
}

// A reader that reads them in stored order counts on it.
TEST(RowTable, PiecesThatOverlapAreDamage) {
  const RowSpec spec{.layout = RowLayout::kPad, .length = 100, .group = 2};
  const uint64_t key = spec.Key(1);
  for (const uint64_t second : {99, 100}) {
    std::string bytes;
    RowTableWriter writer(spec, key, 1, [&bytes](ByteSpan segment) {
      bytes.append(AsText(segment));
      return absl::OkStatus();
    });
    const std::vector<Segment> first{{.sample = 0, .offset = 0, .length = 100}};
    const std::vector<Segment> other{{.sample = 0, .offset = second, .length = 10}};
    ASSERT_TRUE(writer.Add(first).ok() && writer.Add(other).ok());
    ASSERT_TRUE(writer.Finish({.rows = 2, .tokens = 110, .segments = 2, .samples = 1}).ok());
    const absl::StatusOr<RowTable> table = RowTable::Open(AsBytes(bytes), key);
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_EQ(table->ReadGroup(0).status().code(), second == 100 ? absl::StatusCode::kOk : absl::StatusCode::kDataLoss);
  }
}

TEST(RowTable, IsOfOneKey) {
  const Made made = MakeTable({.layout = RowLayout::kPack, .length = 8}, {3});
  const absl::Status other = RowTable::Open(AsBytes(made.bytes), made.key + 1).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  std::string newer = made.bytes;
  newer[8] = 2;
  StoreLe(newer.data() + 12, Crc32c(AsBytes(newer).first(12)));
  const absl::Status refused = RowTable::Open(AsBytes(newer), made.key).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("version 2"));
}

}  // namespace
}  // namespace millrace
