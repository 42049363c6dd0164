#include "compile_cache/cache_record.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace {
namespace {

CacheRecord TwoFiles() {
  CacheRecord record;
  record.about = "torch 2.13.0, x86_64";
  record.publications = 3;
  record.lease = CompileLease{.holder = "h", .host = "node-1", .renewals = 7, .term_ms = 60000};
  record.files = {
      {.path = "inductor/a/b.so", .bytes = 5, .sha256 = std::string(64, 'a'), .crc32c = 0xff, .stored_ms = 9},
      {.path = "triton/K/k.cubin", .bytes = 0, .sha256 = std::string(64, '0'), .crc32c = 0, .stored_ms = 8}};
  return record;
}

TEST(CacheRecord, SurvivesJson) {
  const CacheRecord record = TwoFiles();
  const absl::StatusOr<CacheRecord> read = CacheRecord::FromJson(record.ToJson());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToJson(), record.ToJson());
  EXPECT_EQ(read->files, record.files);
  EXPECT_EQ(*read->lease, *record.lease);
  EXPECT_EQ(read->Bytes(), 5u);
  EXPECT_NE(read->Find("triton/K/k.cubin"), nullptr);
  EXPECT_EQ(read->Find("triton/K"), nullptr);
  CacheRecord idle = record;
  idle.lease.reset();
  EXPECT_FALSE(CacheRecord::FromJson(idle.ToJson())->lease.has_value());
}

// A record that somebody has changed must not place a file outside of the folders, nor be taken for a whole one.
TEST(CacheRecord, RefusesWhatItDidNotWrite) {
  const std::string good = TwoFiles().ToJson();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return CacheRecord::FromJson(text.replace(at, from.size(), to));
  };
  ASSERT_TRUE(with("b.so", "c.so").ok());  // the change itself does no harm
  EXPECT_FALSE(with("inductor/a/b.so", "inductor/../../b").ok());
  EXPECT_FALSE(with("inductor/a/b.so", "/etc/passwd").ok());
  EXPECT_FALSE(with("inductor/a/b.so", "inductor").ok());
  EXPECT_FALSE(with("inductor/a/b.so", "z/last").ok());            // not ascending
  EXPECT_FALSE(with("inductor/a/b.so", "triton/K/k.cubin").ok());  // twice
  EXPECT_FALSE(with("\"000000ff\"", "\"ff\"").ok());
  EXPECT_FALSE(with("aaaa", "a/../").ok());
  EXPECT_FALSE(with("\"bytes\": 5", "\"bytes\": -5").ok());
  EXPECT_FALSE(with("\"publications\"", "\"publication\"").ok());
  EXPECT_FALSE(with("\"holder\"", "\"owner\"").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(with("\"version\": 1", "\"version\": 2").status()));
  for (const size_t length : {size_t{0}, size_t{1}, good.size() / 2, good.size() - 3})
    EXPECT_TRUE(absl::IsDataLoss(CacheRecord::FromJson(good.substr(0, length)).status())) << length;
}

TEST(CacheRecord, GroupsAreWhatBelongsTogether) {
  EXPECT_EQ(CacheGroup("triton/HASH/kernel.cubin"), CacheGroup("triton/HASH/kernel.json"));
  EXPECT_NE(CacheGroup("triton/HASH/kernel.cubin"), CacheGroup("triton/OTHER/kernel.cubin"));
  EXPECT_EQ(CacheGroup("inductor/triton/0/HASH/k.cubin"), CacheGroup("inductor/triton/0/HASH/k.ttir"));
  EXPECT_EQ(CacheGroup("neuron/neuronxcc-2.21/MODULE_1+2/model.neff"), "neuron/neuronxcc-2.21/MODULE_1+2");
  EXPECT_EQ(CacheGroup("neuron/neuronxcc-2.21/MODULE_1+2/sub/x"), "neuron/neuronxcc-2.21/MODULE_1+2");
  EXPECT_EQ(CacheGroup("neuron/readme"), "neuron/readme");
  EXPECT_EQ(CacheGroup("triton/alone"), "triton/alone");
  EXPECT_EQ(CacheGroup("jax/jit_f-0123-cache"), "jax/jit_f-0123-cache");
  EXPECT_EQ(CacheGroup("inductor/ab/cab.so"), "inductor/ab/cab.so");
}

TEST(CacheRecord, PathsStayBelowTheirFolder) {
  for (const char* good : {"a/b", "inductor/x y/\xc3\xa4", "a/..b"}) EXPECT_TRUE(IsCachePath(good)) << good;
  for (const char* bad : {"", "a", "/a/b", "a//b", "a/b/", "a/./b", "a/../b", "a/b\n", "a/\xff"})
    EXPECT_FALSE(IsCachePath(bad)) << bad;
}

}  // namespace
}  // namespace millrace
