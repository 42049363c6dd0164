#include <gtest/gtest.h>

#include <string>

#include "base/crypto.h"
#include "base/rng.h"
#include "fmt/format.h"
#include "plan/row_builder.h"
#include "plan/row_table.h"

namespace millrace {
namespace {

// Freezes rows and their files: a change of one of these raises the version in row_spec.cc, since positions would lead
// to other tokens, or that in row_table.cc.
std::string Golden(const RowSpec& spec) {
  Xxh3Stream file;
  RowTableWriter writer(spec, spec.Key(1), 3000, [&file](ByteSpan bytes) {
    file.Update(bytes);
    return absl::OkStatus();
  });
  RowBuilder builder(spec, [&writer](std::span<const Segment> row) { return writer.Add(row); });
  Rng rng(2);
  for (uint64_t sample = 0; sample < 3000; ++sample) {
    EXPECT_TRUE(builder.Add(sample, rng.Below(rng.Below(rng.Below(600) + 1) + 1)).ok());
  }
  EXPECT_TRUE(builder.Finish().ok());
  EXPECT_TRUE(writer.Finish(builder.counts()).ok());
  return fmt::format("{} {:016x} {}", builder.counts().rows, spec.Key(1), file.Digest().Hex());
}

TEST(RowGolden, RowsStayWhatTheyAre) {
  EXPECT_EQ(Golden({.layout = RowLayout::kPad, .length = 64, .group = 16}),
            "5203 48e4d21160770bd8 61f961c1fd787b3c431841d45423b10e");
  EXPECT_EQ(Golden({.layout = RowLayout::kStream, .length = 64, .group = 16}),
            "3488 1c09246346728fa3 842b96f4508ccb4cb65922d689ee6bc6");
  EXPECT_EQ(Golden({.layout = RowLayout::kPack, .length = 64, .group = 16}),
            "3592 daac3f694a326f33 c3368715b2d4a285c283484be38606de");
  EXPECT_EQ(Golden({.layout = RowLayout::kPack, .length = 256, .longer = LongSamples::kTruncate, .group = 4}),
            "854 2d0618bd34bffbc3 d4815446e5eb52ab9a65e9f4b43f5d19");
  EXPECT_EQ(Golden({.layout = RowLayout::kPad, .length = 32, .group = 16, .above = 8, .longest = 64}),
            "1232 9f718ea0374c364e bfe0cf40706ab0bec63a41af4fbf2ab7");
}

}  // namespace
}  // namespace millrace
