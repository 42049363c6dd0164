#include "inspect/shard_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMB = 1'000'000;

std::string Advice(DataKind kind, uint64_t objects, uint64_t bytes) {
  return AdviseShards({.kind = kind, .objects = objects, .bytes = bytes}, "s3://b/d").value_or("");
}

TEST(ShardAdvice, NoneForSensibleShards) {
  for (const uint64_t mean : {64 * kMB, 256 * kMB, 1000 * kMB}) EXPECT_EQ(Advice(DataKind::kTar, 8, 8 * mean), "");
  EXPECT_EQ(Advice(DataKind::kTar, 100, 50 * kMB), "") << "so little that it hardly matters";
  EXPECT_EQ(Advice(DataKind::kMds, 1, 511 * kMB), "") << "the same";
  EXPECT_EQ(Advice(DataKind::kTar, 0, 0), "");
  EXPECT_EQ(Advice(DataKind::kTokens, 1, 100'000 * kMB), "") << "one file is as good as many";
}

TEST(ShardAdvice, ShardsThatAreFewSmallOrLarge) {
  EXPECT_THAT(Advice(DataKind::kTar, 7, 4000 * kMB),
              AllOf(HasSubstr("only 7 shards"), HasSubstr("`millrace pack s3://b/d DESTINATION --shard-size 256MiB`")));
  EXPECT_THAT(Advice(DataKind::kTfRecord, 100, 600 * kMB),
              AllOf(HasSubstr("small, 5.7 MiB on average"), HasSubstr("--shard-size 64MiB")));
  EXPECT_THAT(Advice(DataKind::kMds, 10, 20'000 * kMB), AllOf(HasSubstr("large"), HasSubstr("--shard-size 256MiB")));
}

TEST(ShardAdvice, ManySmallRawObjects) {
  EXPECT_THAT(Advice(DataKind::kRawObjects, 10'000, 10'000 * 1024), HasSubstr("10000 objects of 1.0 KiB"));
  EXPECT_EQ(Advice(DataKind::kRawObjects, 9'999, 9'999 * 1024), "");
  EXPECT_EQ(Advice(DataKind::kRawObjects, 10'000, 10'000 * (uint64_t{1} << 20)), "");
}

// It does not complain of a size that it recommends.
TEST(ShardAdvice, IsContentWithWhatItAdvises) {
  for (uint64_t bytes = 520 * kMB; bytes < 100'000 * kMB; bytes += 777 * kMB) {
    for (const uint64_t objects : {uint64_t{1}, uint64_t{1000}}) {
      const std::string advice = Advice(DataKind::kTar, objects, bytes);
      const size_t size_at = advice.find("--shard-size ");
      if (size_at == std::string::npos) continue;
      const uint64_t size = std::stoull(advice.substr(size_at + 13)) << 20;
      EXPECT_EQ(Advice(DataKind::kTar, (bytes + size - 1) / size, bytes), "") << bytes;
    }
  }
}

}  // namespace
}  // namespace millrace
