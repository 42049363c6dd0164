#include "dataset/duplicate_keys.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "dataset/testing/index_model.h"

namespace millrace {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using namespace millrace::testing;  // NOLINT: index_model.h

// Tar shards of samples with these keys.
std::unique_ptr<Index> IndexOf(const std::vector<std::vector<std::string>>& shards) {
  Model model;
  for (const std::vector<std::string>& keys : shards) {
    ModelObject& object = model.objects.emplace_back();
    object.info.key = fmt::format("{:04}.tar", model.objects.size());
    uint64_t offset = 512;
    for (const std::string& key : keys) {
      object.samples.push_back({.key = key, .fields = {{"jpg", offset, 100, ""}}, .crc32c = 0, .label = ""});
      offset += 1024;
    }
    object.info.size = offset + 1024;
  }
  absl::StatusOr<std::string> bytes = WriteIndex(model);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  auto index = Index::FromBytes(*std::move(bytes));
  EXPECT_TRUE(index.ok()) << index.status();
  return *std::move(index);
}

TEST(DuplicateKeys, WithinAShardAndAcrossThem) {
  const auto index = IndexOf({{"b", "a", "b"}, {"c", "a"}, {"d"}});
  MemoryBudget memory(1 << 20);
  const auto found = FindDuplicateKeys(*index, memory, {});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->count, 2u);
  EXPECT_EQ(found->compared, 6u);
  ASSERT_THAT(found->examples, SizeIs(2));
  EXPECT_EQ(found->examples[0].again.key, "b");
  EXPECT_EQ(found->examples[0].first.number, 0u);
  EXPECT_EQ(found->examples[0].again.number, 2u);
  EXPECT_EQ(found->examples[1].first.key, "a");
  EXPECT_EQ(found->examples[1].first.object, 0u);
  EXPECT_EQ(found->examples[1].again.object, 1u);
  EXPECT_EQ(found->examples[1].again.number, 4u);
  EXPECT_EQ(memory.used(), 0u);
}

// The hashes may collide all the time, since only the keys decide.
TEST(DuplicateKeys, AgreesWithANaiveModel) {
  Rng rng(HashKey(4, {1}));
  for (const uint64_t different : {3, 50, 1000, 100'000}) {
    std::vector<std::vector<std::string>> shards(5);
    std::map<std::string, uint64_t> times;
    uint64_t expected = 0;
    for (std::vector<std::string>& keys : shards) {
      for (int i = 0; i < 300; ++i) {
        const std::string key = fmt::format("k{}", rng.Below(different));
        expected += times[key]++ > 0 ? 1 : 0;
        keys.push_back(key);
      }
    }
    const auto index = IndexOf(shards);
    for (const uint64_t hashes : {uint64_t{1}, uint64_t{7}, UINT64_MAX}) {
      MemoryBudget memory(1 << 20);
      const auto found =
          FindDuplicateKeys(*index, memory, {}, [hashes](std::string_view key) { return Xxh3(AsBytes(key)) % hashes; });
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(found->count, expected) << different << " keys, " << hashes << " hashes";
      for (const DuplicateKey& pair : found->examples) {
        EXPECT_EQ(pair.first.key, pair.again.key);
        EXPECT_LT(pair.first.number, pair.again.number);
      }
    }
  }
}

TEST(DuplicateKeys, ComparesFewerWithLittleMemory) {
  std::vector<std::string> keys;
  for (int i = 0; i < 1000; ++i) keys.push_back(fmt::format("{}", i));
  keys[900] = keys[1];
  const auto index = IndexOf({keys});
  MemoryBudget memory(4000);
  const auto found = FindDuplicateKeys(*index, memory, {});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->compared, 500u);
  EXPECT_EQ(found->count, 0u);
  EXPECT_THAT(found->examples, IsEmpty());
}

}  // namespace
}  // namespace millrace
