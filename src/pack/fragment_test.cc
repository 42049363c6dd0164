#include "pack/fragment.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace millrace {
namespace {

std::vector<ShardSample> SomeSamples(int count) {
  Rng rng(5);
  std::vector<ShardSample> samples;
  for (int i = 0; i < count; ++i) {
    ShardSample& sample = samples.emplace_back();
    sample.key = "k" + std::to_string(i);
    for (uint64_t f = 0; f <= rng.Below(3); ++f) {
      ShardField& field = sample.fields.emplace_back();
      field.name = "f" + std::to_string(f);
      field.offset = rng.Below(uint64_t{1} << 40);
      field.length = rng.Below(1 << 20);
    }
    sample.crc32c = static_cast<uint32_t>(rng.Next());
    sample.label = i % 3 == 0 ? "" : std::to_string(i);
  }
  return samples;
}

std::string Written(const std::vector<ShardSample>& samples, const std::vector<SkippedSample>& skipped) {
  FragmentWriter writer;
  for (const ShardSample& sample : samples) writer.Add(sample);
  return writer.Finish({.key = "shard-000001.tar", .size = 12345, .etag = "e-2"}, skipped);
}

TEST(Fragment, WhatWasWrittenIsRead) {
  const std::vector<ShardSample> samples = SomeSamples(50);
  const std::string bytes = Written(samples, {{.key = "bad", .why = "it is gone"}});
  size_t next = 0;
  const auto fragment = ReadFragment(AsBytes(bytes), [&](const ShardSample& sample) {
    const ShardSample& expected = samples.at(next++);
    EXPECT_EQ(sample.key, expected.key);
    EXPECT_EQ(sample.crc32c, expected.crc32c);
    EXPECT_EQ(sample.label, expected.label);
    EXPECT_EQ(sample.fields.size(), expected.fields.size());
    for (size_t f = 0; f < sample.fields.size(); ++f) {
      EXPECT_EQ(sample.fields[f].name, expected.fields[f].name);
      EXPECT_EQ(sample.fields[f].offset, expected.fields[f].offset);
      EXPECT_EQ(sample.fields[f].length, expected.fields[f].length);
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(fragment.ok()) << fragment.status();
  EXPECT_EQ(next, samples.size());
  EXPECT_EQ(fragment->samples, samples.size());
  EXPECT_EQ(fragment->shard.key, "shard-000001.tar");
  EXPECT_EQ(fragment->shard.size, 12345u);
  EXPECT_EQ(fragment->shard.etag, "e-2");
  ASSERT_EQ(fragment->skipped.size(), 1u);
  EXPECT_EQ(fragment->skipped[0].why, "it is gone");
}

TEST(Fragment, DamageIsNoticed) {
  const std::string bytes = Written(SomeSamples(5), {});
  const auto read = [](std::string_view text) {
    return ReadFragment(AsBytes(text), [](const ShardSample&) { return absl::OkStatus(); }).status().code();
  };
  ASSERT_EQ(read(bytes), absl::StatusCode::kOk);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    EXPECT_EQ(read(damaged), absl::StatusCode::kDataLoss) << i;
    EXPECT_EQ(read(bytes.substr(0, i)), absl::StatusCode::kDataLoss) << i;
  }
}

TEST(Fragment, ErrorsOfTheSinkEndIt) {
  const std::string bytes = Written(SomeSamples(5), {});
  const auto read = ReadFragment(AsBytes(bytes), [](const ShardSample&) { return absl::CancelledError("enough"); });
  EXPECT_EQ(read.status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace millrace
