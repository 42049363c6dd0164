#include "checkpoint/records.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::HasSubstr;

CheckpointCatalog SomeCatalog() {
  CheckpointCatalog catalog;
  catalog.writer = {7, "a1b2"};
  catalog.entries = {{.step = 0, .attempt = "e1-0123456789abcdef", .bytes = 5, .saved_ms = 6, .manifest_bytes = 7},
                     {.step = kMaxCheckpointStep,
                      .attempt = "e18446744073709551615-0123456789abcdef",
                      .bytes = UINT64_MAX,
                      .saved_ms = 1,
                      .manifest_bytes = 2,
                      .manifest_crc32c = 0xffffffff}};
  return catalog;
}

CheckpointManifest SomeManifest() {
  CheckpointManifest manifest;
  manifest.step = 12;
  manifest.attempt = NewAttempt(3);
  manifest.epoch = 3;
  manifest.host = "node \"7\"";
  manifest.shards = {{"model.safetensors", 20, 0x01020304, 8, {1, 2, 0xfffffffe}}, {"state.json", 0, 0, 8, {}}};
  return manifest;
}

TEST(Records, CatalogSurvivesJson) {
  const CheckpointCatalog before = SomeCatalog();
  const absl::StatusOr<CheckpointCatalog> after = CheckpointCatalog::FromJson(before.ToJson());
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->writer.epoch, 7u);
  EXPECT_EQ(after->writer.id, "a1b2");
  EXPECT_TRUE(after->conditional_writes);
  EXPECT_EQ(after->entries, before.entries);
  EXPECT_EQ(*after->Newest(), before.entries[1]);
  EXPECT_EQ(*after->Find(0), before.entries[0]);
  EXPECT_EQ(after->Find(1), nullptr);
}

TEST(Records, ManifestSurvivesJson) {
  const CheckpointManifest before = SomeManifest();
  const absl::StatusOr<CheckpointManifest> after = CheckpointManifest::FromJson(before.ToJson());
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->ToJson(), before.ToJson());
  EXPECT_EQ(after->Bytes(), 20u);
  EXPECT_EQ(after->shards[0].piece_crc32c, before.shards[0].piece_crc32c);
}

// In a job of a thousand ranks the checksums of the pieces make up nearly all of the manifest.
TEST(Records, AManifestIsHardlyLargerThanItsChecksums) {
  constexpr size_t kPieces = 16'384;
  CheckpointManifest manifest = SomeManifest();
  for (CheckpointShard& shard : manifest.shards) {
    shard.piece_crc32c.assign(kPieces, 0xfffffffe);
    shard.bytes = kPieces * shard.piece_bytes;
  }
  const std::string text = manifest.ToJson();
  EXPECT_LE(text.size(), 2 * 8 * kPieces + 1000);
  EXPECT_EQ(CheckpointManifest::FromJson(text)->ToJson(), text);
}

TEST(Records, AManifestOfTheEarlierVersionIsRead) {
  const CheckpointManifest manifest = SomeManifest();
  std::string text = manifest.ToJson();
  const std::string together = "\"0000000100000002fffffffe\"";
  ASSERT_NE(text.find(together), std::string::npos);
  text.replace(text.find(together), together.size(), R"(["00000001", "00000002", "fffffffe"])");
  ASSERT_NE(text.find("\"version\": 2"), std::string::npos);
  text.replace(text.find("\"version\": 2"), 12, "\"version\": 1");
  const absl::StatusOr<CheckpointManifest> read = CheckpointManifest::FromJson(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToJson(), manifest.ToJson());
}

// A truncated text is never taken for a whole one, and never crashes.
TEST(Records, DamagedTextIsRefused) {
  for (const std::string& whole : {SomeCatalog().ToJson(), SomeManifest().ToJson()}) {
    for (size_t length = 0; length + 2 < whole.size(); ++length) {
      const std::string cut = whole.substr(0, length);
      EXPECT_FALSE(CheckpointCatalog::FromJson(cut).ok());
      EXPECT_FALSE(CheckpointManifest::FromJson(cut).ok());
    }
  }
  EXPECT_FALSE(CheckpointCatalog::FromJson(SomeManifest().ToJson()).ok());
}

TEST(Records, ManifestThatContradictsItselfIsRefused) {
  CheckpointManifest manifest = SomeManifest();
  manifest.shards[0].piece_crc32c.pop_back();  // 20 bytes in pieces of 8 are three
  EXPECT_FALSE(CheckpointManifest::FromJson(manifest.ToJson()).ok());
  for (const std::string_view bad : {"0000000", "0000000g", "00000001000000020000000"}) {
    std::string text = SomeManifest().ToJson();
    const std::string good = "0000000100000002fffffffe";
    ASSERT_NE(text.find(good), std::string::npos);
    text.replace(text.find(good), good.size(), bad);
    EXPECT_FALSE(CheckpointManifest::FromJson(text).ok()) << bad;
  }
  manifest = SomeManifest();
  manifest.shards[0].name = "../../etc/passwd";
  EXPECT_FALSE(CheckpointManifest::FromJson(manifest.ToJson()).ok());
}

TEST(Records, AnotherVersionIsNamed) {
  std::string text = SomeCatalog().ToJson();
  text.replace(text.find("\"version\": 1"), 12, "\"version\": 2");
  EXPECT_THAT(std::string(CheckpointCatalog::FromJson(text).status().message()), HasSubstr("version 2"));
  for (const std::string_view other : {"0", "3"}) {
    text = SomeManifest().ToJson();
    text.replace(text.find("\"version\": 2"), 12, fmt::format("\"version\": {}", other));
    const absl::Status status = CheckpointManifest::FromJson(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(fmt::format("version {},", other)));
  }
}

TEST(Records, AttemptsTellTheirEpoch) {
  EXPECT_EQ(EpochOfAttempt(NewAttempt(1)), 1u);
  EXPECT_EQ(EpochOfAttempt(NewAttempt(UINT64_MAX)), UINT64_MAX);
  EXPECT_NE(NewAttempt(1), NewAttempt(1));
  for (const char* text :
       {"", "e", "e1", "e1-", "e1-0123", "1-0123456789abcdef", "e1-0123456789abcdeF", "e-0123456789abcdef"})
    EXPECT_EQ(EpochOfAttempt(text), 0u) << text;
  EXPECT_EQ(AttemptFolder(100, "e1-0123456789abcdef"), "000000000100/e1-0123456789abcdef/");
}

TEST(Records, NamesOfShards) {
  EXPECT_TRUE(CheckShardName("model.safetensors").ok());
  for (const char* name : {"", ".", "..", ".hidden", "a/b", "a b", "MANIFEST.json", "a\\b"})
    EXPECT_FALSE(CheckShardName(name).ok()) << name;
}

}  // namespace
}  // namespace millrace
