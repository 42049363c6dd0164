#include "service/kept_batches.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace {
namespace {

using Time = KeptBatches::Time;

constexpr uint64_t kBatchBytes = 10'000;

struct KeptMade {
  std::string pixels = std::string(kBatchBytes, 'p');
  Batch batch;
  explicit KeptMade(uint64_t epoch, uint64_t after, bool ends = false) {
    batch.size = 1;
    batch.keys = {"key"};
    batch.epoch = epoch;
    batch.last_of_epoch = ends;
    batch.position = ends ? Position{epoch + 1, 0, 7} : Position{epoch, after, 7};
    batch.arrays = {{"image", AsWritableBytes(pixels)}};
  }
};

StreamSpec SpecOfEvaluation() {
  StreamSpec spec;
  spec.parts = {{.uri = "/data", .fingerprint = 1, .samples = 10}};
  spec.options.shuffle = Shuffle::kNone;
  return spec;
}

TEST(KeptBatchesTest, NamesStreamsThatAreTheSameInEachEpoch) {
  const KeptBatches kept(1);
  const StreamSpec spec = SpecOfEvaluation();
  const std::string name = kept.NameOf(spec);
  EXPECT_EQ(name.size(), 32u);
  EXPECT_EQ(KeptBatches(0).NameOf(spec), "");
  StreamSpec same = spec;
  same.options.start = Position{3, 4, 5};
  same.options.epochs = 9;
  same.options.memory_bytes = 12345;
  same.compress = true;
  EXPECT_EQ(kept.NameOf(same), name);
  const std::vector<void (*)(StreamSpec&)> others = {
      [](StreamSpec& other) { other.options.rank = 1; },
      [](StreamSpec& other) { other.options.image.width = 7; },
      [](StreamSpec& other) { other.parts[0].fingerprint = 2; },
      [](StreamSpec& other) { other.parts[0].labels_id = 2, other.parts[0].labels.emplace(); },
      [](StreamSpec& other) { other.parts[0].classes = {"cat"}; },
  };
  for (const auto change : others) {
    StreamSpec other = spec;
    change(other);
    EXPECT_NE(kept.NameOf(other), "");
    EXPECT_NE(kept.NameOf(other), name);
  }
  const std::vector<void (*)(StreamSpec&)> random = {
      [](StreamSpec& other) { other.options.shuffle = Shuffle::kWindow; },
      [](StreamSpec& other) { other.options.mix.emplace(); },
      [](StreamSpec& other) { other.options.image.augment = true; },
      [](StreamSpec& other) { other.options.image.transforms.emplace_back(); },
      [](StreamSpec& other) { other.options.digest = DigestOf::kRaw; },
      [](StreamSpec& other) { other.options.bad_samples = BadSamples::kReplace; },
      [](StreamSpec& other) {
        other.options.fields = {{.name = "image", .kind = BatchField::Kind::kImage}};
        other.options.fields[0].image.augment = true;
      },
  };
  for (size_t i = 0; i < random.size(); ++i) {
    StreamSpec other = spec;
    random[i](other);
    EXPECT_EQ(kept.NameOf(other), "") << i;
  }
}

TEST(KeptBatchesTest, GivesThemInAnyEpoch) {
  KeptBatches kept(1 << 20);
  {
    const KeptMade first(0, 5);
    kept.Keep("a", {0, 0, 7}, first.batch, 11, Time());
    const KeptMade last(0, 10, true);
    kept.Keep("a", {0, 5, 7}, last.batch, 12, Time());
  }
  std::optional<KeptBatches::Found> found = kept.Find("a", {4, 0, 7}, Time());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->crc, 11u);
  EXPECT_EQ(found->batch.epoch, 4u);
  EXPECT_EQ(found->batch.position.ToString(), (Position{4, 5, 7}).ToString());
  EXPECT_EQ(found->batch.keys, std::vector<std::string>{"key"});
  EXPECT_EQ(AsText(found->batch.Bytes("image")), std::string(kBatchBytes, 'p'));
  found = kept.Find("a", {4, 5, 7}, Time());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->batch.position.ToString(), (Position{5, 0, 7}).ToString());
  EXPECT_FALSE(kept.Find("a", {4, 1, 7}, Time()));
  EXPECT_FALSE(kept.Find("b", {4, 0, 7}, Time()));
  EXPECT_FALSE(kept.Find("", {4, 0, 7}, Time()));
}

TEST(KeptBatchesTest, StaysWithinItsBytes) {
  KeptBatches kept(3 * kBatchBytes);  // two, with what belongs to them
  const Time begin = Time() + std::chrono::hours(1);
  for (uint64_t at = 0; at < 5; ++at) kept.Keep("a", {0, at, 7}, KeptMade(0, at + 1).batch, 0, begin);
  EXPECT_TRUE(kept.Find("a", {0, 1, 7}, begin));
  EXPECT_FALSE(kept.Find("a", {0, 2, 7}, begin)) << "those that came first stay: they come again first";
  kept.Keep("b", {0, 0, 7}, KeptMade(0, 1).batch, 0, begin);
  EXPECT_FALSE(kept.Find("b", {0, 0, 7}, begin)) << "another stream is in use";
  const Time later = begin + KeptBatches::kIdle;
  kept.Keep("b", {0, 0, 7}, KeptMade(0, 1).batch, 0, later);
  EXPECT_TRUE(kept.Find("b", {0, 0, 7}, later));
  EXPECT_FALSE(kept.Find("a", {0, 0, 7}, later)) << "nobody has asked for it for long";
  KeptMade quarantined(0, 2);
  quarantined.batch.quarantined.emplace_back();
  kept.Keep("b", {0, 1, 7}, quarantined.batch, 0, later);
  EXPECT_FALSE(kept.Find("b", {0, 1, 7}, later));
  kept.Keep("b", {0, 1, 7}, KeptMade(1, 1).batch, 0, later);
  EXPECT_FALSE(kept.Find("b", {0, 1, 7}, later)) << "it is of the next epoch";
}

}  // namespace
}  // namespace millrace
