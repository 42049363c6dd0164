#include "shard/tar_encoder.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "shard/tar_samples.h"
#include "shard/tar_writer.h"

namespace millrace {
namespace {

struct PaddedSample {
  SampleShape shape;
  std::string bytes;
};

std::vector<PaddedSample> SomeSamples(uint64_t seed) {
  Rng rng(seed);
  std::vector<PaddedSample> samples;
  for (int i = 0; i < 20; ++i) {
    PaddedSample& sample = samples.emplace_back();
    sample.shape.key = "s" + std::to_string(i) + (i % 5 == 4 ? "/" + std::string(150, 'n') : "");
    for (const char* name : {"cls", "jpg", "json"}) {
      if (rng.Below(4) == 0 && !sample.shape.fields.empty()) continue;
      const uint64_t lengths[] = {0, 1, 511, 512, 513, rng.Below(5000)};
      sample.shape.fields.push_back({.name = name, .length = lengths[rng.Below(6)]});
      sample.bytes.resize(sample.bytes.size() + sample.shape.fields.back().length);
    }
    for (char& c : sample.bytes) c = static_cast<char>(rng.Next());
  }
  return samples;
}

std::string Expected(const std::vector<PaddedSample>& samples) {
  std::string out;
  AppendTarEscapedKeys(out);
  for (const PaddedSample& sample : samples) {
    size_t at = 0;
    for (const FieldShape& field : sample.shape.fields) {
      EXPECT_TRUE(AppendTarHeader(out, sample.shape.key + "." + field.name, field.length).ok());
      out += sample.bytes.substr(at, field.length);
      AppendTarPadding(out, field.length);
      at += field.length;
    }
  }
  AppendTarEnd(out);
  return out;
}

// However the bytes of samples are cut, and for a second shard as for the first.
TEST(TarEncoder, BytesAndSizes) {
  TarEncoder encoder;
  for (const uint64_t seed : {1, 2, 3}) {
    const std::vector<PaddedSample> samples = SomeSamples(seed);
    std::string out;
    const auto sink = [&out](ByteSpan bytes) {
      out += AsText(bytes);
      return absl::OkStatus();
    };
    std::vector<uint64_t> sizes;
    uint64_t total = kTarEscapedKeysBytes;
    for (const PaddedSample& sample : samples) sizes.push_back(*encoder.SampleBytes(sample.shape));
    Rng rng(seed);
    ASSERT_TRUE(encoder.Begin(sink).ok());
    for (size_t i = 0; i < samples.size(); ++i) {
      ASSERT_TRUE(encoder.BeginSample(samples[i].shape, sink).ok());
      for (size_t at = 0; at < samples[i].bytes.size();) {
        const size_t length = std::min<size_t>(samples[i].bytes.size() - at, 1 + rng.Below(1000));
        ASSERT_TRUE(encoder.Add(AsBytes(samples[i].bytes).subspan(at, length), sink).ok());
        at += length;
      }
      total += sizes[i];
      EXPECT_EQ(out.size(), total);
    }
    ASSERT_TRUE(encoder.End(sink).ok());
    EXPECT_EQ(out.size(), total + kTarEndBytes);
    EXPECT_EQ(encoder.OverheadBytes(samples.size()), kTarEscapedKeysBytes + kTarEndBytes);
    EXPECT_EQ(out, Expected(samples));
  }
}

TEST(TarEncoder, TooFewAndTooManyBytes) {
  TarEncoder encoder;
  const auto sink = [](ByteSpan) { return absl::OkStatus(); };
  const SampleShape shape{.key = "k", .fields = {{.name = "x", .length = 2}}};
  ASSERT_TRUE(encoder.Begin(sink).ok());
  ASSERT_TRUE(encoder.BeginSample(shape, sink).ok());
  EXPECT_EQ(encoder.Add(AsBytes("abc"), sink).code(), absl::StatusCode::kInternal);
  ASSERT_TRUE(encoder.Begin(sink).ok());
  ASSERT_TRUE(encoder.BeginSample(shape, sink).ok());
  ASSERT_TRUE(encoder.Add(AsBytes("a"), sink).ok());
  EXPECT_EQ(encoder.BeginSample(shape, sink).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(encoder.End(sink).code(), absl::StatusCode::kInternal);
}

TEST(TarEncoder, NamesThatTarCannotHold) {
  const SampleShape nul{.key = std::string("a\0b", 3), .fields = {{.name = "x", .length = 1}}};
  EXPECT_EQ(TarEncoder().SampleBytes(nul).status().code(), absl::StatusCode::kInvalidArgument);
}

// Readers split the names of members again.
TEST(TarEncoder, OnlyNamesThatAreReadBack) {
  for (const char* name : {"image/encoded", "JPG", "x/.y"}) {
    const absl::Status refused = TarEncoder().SampleBytes({.key = "a", .fields = {{.name = name}}}).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_NE(refused.message().find(std::string("--field ") + name), std::string::npos) << refused;
  }
  for (const char* key : {"", "a/", "./a"}) {
    const absl::Status refused = TarEncoder().SampleBytes({.key = key, .fields = {{.name = "jpg"}}}).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_NE(refused.message().find("that key"), std::string::npos) << refused;
  }
  for (const char* key : {"a", "a.b/c", "../a", "/a", "a/./b", "__x", "__x__/a", "__x__"})
    EXPECT_TRUE(TarEncoder().SampleBytes({.key = key, .fields = {{.name = "left.png"}}}).ok()) << key;
}

// Readers find any key again, however it looks.
TEST(TarEncoder, KeysAreReadBack) {
  TarEncoder encoder;
  std::string out;
  const auto sink = [&out](ByteSpan bytes) {
    out += AsText(bytes);
    return absl::OkStatus();
  };
  const std::vector<std::string> keys = {"a", "a.b/scan.2024.1", "50%",      "a%2Eb", "a%252Eb", "a/.b.c", "a.", "%.%2",
                                         ".", "__x__/a",         "%5F_x__/a"};
  ASSERT_TRUE(encoder.Begin(sink).ok());
  for (const std::string& key : keys) {
    ASSERT_TRUE(encoder.BeginSample({.key = key, .fields = {{.name = "seg.png", .length = 1}}}, sink).ok());
    ASSERT_TRUE(encoder.Add(AsBytes("x"), sink).ok());
  }
  ASSERT_TRUE(encoder.End(sink).ok());
  std::vector<std::string> found;
  TarSampleScanner scanner;
  const auto note = [&found](const ShardSample& sample) {
    found.push_back(sample.key);
    EXPECT_EQ(sample.fields.at(0).name, "seg.png");
    return absl::OkStatus();
  };
  ASSERT_TRUE(scanner.Feed(AsBytes(out), note).ok());
  ASSERT_TRUE(scanner.Finish(note).ok());
  EXPECT_EQ(found, keys);
}

TEST(TarEncoder, ErrorsOfTheSinkEndIt) {
  TarEncoder encoder;
  const auto sink = [](ByteSpan) { return absl::ResourceExhaustedError("full"); };
  const SampleShape shape{.key = "k", .fields = {{.name = "x", .length = 2}}};
  EXPECT_EQ(encoder.Begin(sink).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(encoder.BeginSample(shape, sink).code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace millrace
