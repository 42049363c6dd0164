#include "shard/tar_samples.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/crypto.h"
#include "base/rng.h"
#include "shard/tar_format.h"
#include "shard/tar_writer.h"
#include "shard/testing/tar_builder.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing;  // NOLINT: tar_builder.h

absl::StatusOr<std::vector<ShardSample>> ScanTar(std::string_view archive, size_t chunk = 0) {
  if (chunk == 0) chunk = archive.size() + 1;
  std::vector<ShardSample> samples;
  const auto sink = [&](const ShardSample& sample) {
    samples.push_back(sample);
    return absl::OkStatus();
  };
  TarSampleScanner scanner;
  for (size_t at = 0; at < archive.size(); at += chunk)
    RETURN_IF_ERROR(scanner.Feed(AsBytes(archive.substr(at, chunk)), sink));
  RETURN_IF_ERROR(scanner.Finish(sink));
  return samples;
}

// Returns "key[label]: field=contents ...", after checking span and CRC against the archive.
std::vector<std::string> DescribeTar(std::string_view archive, size_t chunk = 0) {
  const auto samples = ScanTar(archive, chunk);
  if (!samples.ok()) return {samples.status().ToString()};
  std::vector<std::string> out;
  for (const ShardSample& sample : *samples) {
    std::string text = fmt::format("{}[{}]:", sample.key, sample.label);
    for (const ShardField& field : sample.fields) {
      text += fmt::format(" {}={}", field.name, archive.substr(field.offset, field.length));
    }
    out.push_back(text);
    EXPECT_EQ(sample.span.offset, sample.fields.front().offset);
    EXPECT_EQ(sample.span.end(), sample.fields.back().offset + sample.fields.back().length);
    EXPECT_EQ(sample.crc32c, Crc32c(AsBytes(archive.substr(sample.span.offset, sample.span.length)))) << sample.key;
  }
  return out;
}

TEST(TarSamples, ConsecutiveMembersWithOneKey) {
  const std::string archive =
      Member("a.jpg", "A") + Member("a.cls", "3") + Member("b.cls", "12\n") + Member("a.txt", "again") + End();
  EXPECT_THAT(DescribeTar(archive), ElementsAre("a[3]: jpg=A cls=3", "b[12]: cls=12\n", "a[]: txt=again"));
}

// A global PAX header says from where on.
TEST(TarSamples, OnlyEscapedKeysAreUnescaped) {
  const std::string records = fmt::format("{}={}", kTarCommentKeyword, kTarEscapedKeys);
  const std::string marked = Pax({records}, 'g');
  const std::string first = Member("a%2Eb.jpg", "A") + Member("a%2Eb.cls", "1"), second = Member("c%2Ed.jpg", "B");
  EXPECT_THAT(DescribeTar(first + second + End()), ElementsAre("a%2Eb[1]: jpg=A cls=1", "c%2Ed[]: jpg=B"));
  EXPECT_THAT(DescribeTar(marked + first + second + End()), ElementsAre("a.b[1]: jpg=A cls=1", "c.d[]: jpg=B"));
  EXPECT_THAT(DescribeTar(first + marked + second + End()), ElementsAre("a%2Eb[1]: jpg=A cls=1", "c.d[]: jpg=B"));
  EXPECT_THAT(DescribeTar(marked + first + Pax({"comment="}, 'g') + second + End()),
              ElementsAre("a.b[1]: jpg=A cls=1", "c%2Ed[]: jpg=B"));
  EXPECT_THAT(DescribeTar(Pax({records}) + first + End()), ElementsAre("a%2Eb[1]: jpg=A cls=1")) << "of one member";
  EXPECT_THAT(DescribeTar(Pax({"comment=by hand"}, 'g') + first + End()), ElementsAre("a%2Eb[1]: jpg=A cls=1"));
}

TEST(TarSamples, SkippedMembersDoNotSeparate) {
  const std::string archive = Header({.name = "d.d/", .type = '5'}) + Member("README", "x") + Member("./d/a.jpg", "A") +
                              Member("__meta__/x.y", "m") + Header({.name = "d/b.jpg", .type = '1'}) +
                              Member(".x.jpg", "h") + Member("d/a.JSON", "{}") + End();
  EXPECT_THAT(DescribeTar(archive), ElementsAre("d/a[]: jpg=A json={}"));
}

TEST(TarSamples, EmptyFields) {
  const std::string archive = Member("a.x", "") + Member("a.y", "") + Member("b.x", "") + End();
  EXPECT_THAT(DescribeTar(archive), ElementsAre("a[]: x= y=", "b[]: x="));
  EXPECT_EQ(ScanTar(archive)->at(0).span, (ByteRange{512, 512}));
  EXPECT_THAT(DescribeTar(End()), ElementsAre());
}

TEST(TarSamples, ArchivesOneBehindTheOther) {
  const std::string archive = Member("a.jpg", "A") + Member("a.cls", "1") + End();
  const std::string other = Member("a.jpg", "again") + Member("b.jpg", "B") + End();
  for (const size_t chunk : {0, 1, 512, 700}) {
    EXPECT_THAT(DescribeTar(archive + std::string(9000 / 512 * 512, '\0') + other, chunk),
                ElementsAre("a[1]: jpg=A cls=1", "a[]: jpg=again", "b[]: jpg=B"));
  }
}

TEST(TarSamples, SamplesBeforeWhatFollowsTheEndAreWhole) {
  std::vector<std::string> keys;
  const auto keep = [&](const ShardSample& sample) {
    keys.push_back(sample.key);
    return absl::OkStatus();
  };
  TarSampleScanner scanner;
  const std::string archive = Member("a.jpg", "A") + Member("b.jpg", "B") + End() + std::string(600, 'x');
  EXPECT_EQ(scanner.Feed(AsBytes(archive), keep).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(keys, ElementsAre("a", "b"));
}

TEST(TarSamples, LabelsAreShortDecimalNumbers) {
  const std::string archive = Member("a.cls", " 7 ") + Member("b.cls", "cat") + Member("c.cls", "-1") +
                              Member("d.cls", std::string(21, '1')) + Member("e.cls", "") + End();
  const auto samples = ScanTar(archive);
  ASSERT_TRUE(samples.ok());
  std::vector<std::string> labels;
  for (const ShardSample& sample : *samples) labels.push_back(sample.label);
  EXPECT_THAT(labels, ElementsAre("7", "", "", "", ""));
}

TEST(TarSamples, DuplicateFieldIsAnError) {
  const std::string archive = Member("a.jpg", "1") + Member("b.jpg", "1") + Member("b.JPG", "2") + End();
  const auto samples = ScanTar(archive);
  EXPECT_EQ(samples.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(samples.status().ToString(),
              HasSubstr("offset 2560: sample 'b' has the field 'jpg' twice (member 'b.JPG')"));
}

TEST(TarSamples, TooManyFieldsPointAtTheNames) {
  std::string archive;
  for (size_t i = 0; i <= kMaxSampleFields; ++i) archive += Member(fmt::format("img.{}.jpg", i), "");
  const auto samples = ScanTar(archive + End());
  EXPECT_EQ(samples.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(samples.status().ToString(), HasSubstr("first dot"));
}

TEST(TarSamples, ErrorOfTheSinkEndsTheScan) {
  TarSampleScanner scanner;
  const std::string archive = Member("a.jpg", "1") + Member("b.jpg", "1") + End();
  const absl::Status status =
      scanner.Feed(AsBytes(archive), [](const ShardSample&) { return absl::CancelledError("enough"); });
  EXPECT_EQ(status.message(), "enough");
}

TEST(TarSamples, RandomShardsInRandomChunks) {
  Rng rng(HashKey(5, {6}));
  for (int round = 0; round < 100; ++round) {
    std::string archive;
    std::vector<std::string> expected;
    const uint64_t count = rng.Below(20);
    for (uint64_t i = 0; i < count; ++i) {
      const std::string key =
          fmt::format("{}{:04}", rng.Below(2) == 0 ? std::string(rng.Below(200), 'd') + "/" : "", i);
      std::string text = key + "[]:";
      for (const char* field : {"jpg", "json", "seg.png"}) {
        if (text.back() != ':' && rng.Below(2) == 0) continue;
        std::string data(rng.Below(1500), '\0');
        for (char& c : data) c = static_cast<char>('a' + rng.Below(26));
        ASSERT_TRUE(AppendTarHeader(archive, fmt::format("{}.{}", key, field), data.size()).ok());
        archive += data;
        AppendTarPadding(archive, data.size());
        if (rng.Below(4) == 0) archive += Member("__skipped__", data);
        text += fmt::format(" {}={}", field, data);
      }
      expected.push_back(text);
    }
    AppendTarEnd(archive);
    for (const size_t chunk : {size_t{0}, size_t{1}, size_t{511}, 1 + rng.Below(3000)}) {
      ASSERT_EQ(DescribeTar(archive, chunk), expected) << chunk;
    }
  }
}

TEST(TarSamples, TruncationIsNoticedAfterWholeSamples) {
  const std::string archive = Member("a.jpg", "1") + Member("b.jpg", std::string(700, 'x')) + End();
  int seen = 0;
  const auto count = [&](const ShardSample&) {
    ++seen;
    return absl::OkStatus();
  };
  TarSampleScanner scanner;
  ASSERT_TRUE(scanner.Feed(AsBytes(archive).first(2000), count).ok());
  EXPECT_EQ(scanner.Finish(count).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(seen, 1) << "a cut sample must not come out";
}

}  // namespace
}  // namespace millrace
