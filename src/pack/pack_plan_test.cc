#include "pack/pack_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "dataset/index_writer.h"
#include "dataset/testing/index_model.h"
#include "shard/tar_encoder.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

struct Raw {
  std::string object;  // "cat/1.jpg"
  std::string key;
  std::string field;
  uint64_t length = 0;
  std::string folder;
};

std::unique_ptr<Index> IndexOf(const std::vector<Raw>& samples) {
  std::string bytes;
  IndexWriter writer(DataKind::kRawObjects, std::make_unique<StringWriter>(&bytes));
  for (const Raw& raw : samples) {
    const NewSampleField field{.name = raw.field, .offset = 0, .length = raw.length};
    EXPECT_TRUE(writer.AddSample({.key = raw.key, .fields = {&field, 1}, .crc32c = 0, .label = raw.folder}).ok());
    EXPECT_TRUE(writer.AddObject({.key = raw.object, .size = raw.length, .etag = "e"}).ok());
  }
  EXPECT_TRUE(writer.Finish().ok());
  return *Index::FromBytes(std::move(bytes));
}

std::unique_ptr<Index> Numbered(uint64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<Raw> samples;
  for (uint64_t i = 0; i < count; ++i) {
    const std::string key = fmt::format("a/{:05}", i);
    samples.push_back({key + ".jpg", key, "jpg", rng.Below(3000), "a"});
  }
  return IndexOf(samples);
}

uint64_t BytesOf(const Index& index, uint64_t sample) {
  IndexedSample found;
  PackedSample packed;
  EXPECT_TRUE(index.Lookup(sample, &found).ok());
  EXPECT_TRUE(ShapeOf(found, {}, &packed).ok());
  return *TarEncoder().SampleBytes(packed.shape);
}

// A naive model: sample by sample, the shard ends before it would get too large.
TEST(PackPlan, ShardsAreFilledInOrder) {
  const std::unique_ptr<Index> index = Numbered(300, 1);
  for (const uint64_t limit : {1, 5'000, 20'000, 1 << 20}) {
    for (const bool shuffled : {false, true}) {
      const SampleOrder order = shuffled ? SampleOrder::Shuffled(300, 7) : SampleOrder(300);
      const auto plan = MakePackPlan(*index, order, {}, TarEncoder(), limit);
      ASSERT_TRUE(plan.ok()) << plan.status();
      std::vector<uint64_t> starts, bytes;
      uint64_t open = 0;
      for (uint64_t p = 0; p < 300; ++p) {
        const uint64_t one = BytesOf(*index, order.At(p));
        if (p == 0 || open + one + 2048 > limit) {
          if (p > 0) bytes.push_back(open + 2048);
          starts.push_back(p);
          open = 0;
        }
        open += one;
      }
      bytes.push_back(open + 2048);
      starts.push_back(300);
      EXPECT_EQ(plan->starts, starts) << limit;
      EXPECT_EQ(plan->bytes, bytes) << limit;
      EXPECT_EQ(plan->shards(), bytes.size());
    }
  }
}

TEST(PackPlan, ClassesByTheirPlaceOrTheirMap) {
  const auto index = IndexOf(
      {{"cat/1.jpg", "cat/1", "jpg", 5, "cat"}, {"dog/1.jpg", "dog/1", "jpg", 6, "dog"}, {"x.jpg", "x", "jpg", 7, ""}});
  const SampleView by_map{.fields = {}, .classes = ClassMap{{"cat", 281}, {"dog", 5}}};
  const std::string texts[2][2] = {{"0", "1"}, {"281", "5"}};
  for (const bool mapped : {false, true}) {
    for (uint64_t i = 0; i < 3; ++i) {
      IndexedSample sample;
      PackedSample packed;
      ASSERT_TRUE(index->Lookup(i, &sample).ok());
      ASSERT_TRUE(ShapeOf(sample, mapped ? by_map : SampleView(), &packed).ok());
      ASSERT_EQ(packed.shape.fields[0].value.has_value(), i < 2);
      if (i == 2) continue;
      EXPECT_EQ(*packed.shape.fields[0].value, texts[mapped ? 1 : 0][i]);
      EXPECT_EQ(packed.shape.fields[0].name, "cls");
      EXPECT_EQ(packed.shape.fields[0].length, packed.shape.fields[0].value->size());
      EXPECT_EQ(packed.shape.fields[1].name, "jpg");
    }
  }
  const SampleView less{.fields = {}, .classes = ClassMap{{"cat", 281}}};
  const auto plan = MakePackPlan(*index, SampleOrder(3), less, TarEncoder(), 1 << 20);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(plan.status().ToString(), HasSubstr("no class 'dog'"));
}

TEST(PackPlan, SamplesWithoutAnImageAreCounted) {
  const auto index =
      IndexOf({{"1.jpg", "1", "jpg", 5, ""}, {"2.txt", "2", "txt", 6, ""}, {"3.txt", "3", "txt", 7, ""}});
  const auto plan = MakePackPlan(*index, SampleOrder(3), {}, TarEncoder(), 1 << 20);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->without_image, 2u);
  EXPECT_EQ(plan->first_without_image, "2");
}

TEST(PackPlan, SamplesThatAShardWouldMakeOne) {
  const auto index = IndexOf({{"1.jpg", "1", "jpg", 5, ""}, {"1.json", "1", "json", 6, ""}});
  // Also where a shard ends between them: their place must not depend on the size of shards.
  for (const uint64_t limit : {1, 1 << 20}) {
    const auto plan = MakePackPlan(*index, SampleOrder(2), {}, TarEncoder(), limit);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(plan.status().ToString(), HasSubstr("'1'"));
  }
}

}  // namespace
}  // namespace millrace
