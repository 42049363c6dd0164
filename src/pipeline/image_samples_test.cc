#include "pipeline/image_samples.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "pipeline/loader_facts.h"
#include "pipeline/loader_plan.h"
#include "shard/tar_writer.h"
#include "store/blocking.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ImageSamplesTest : public ::testing::Test {
 protected:
  ImageSamplesTest() : runtime_({.io_threads = 1, .cpu_threads = 2}), stores_(runtime_) {}

  /// Returns objects with bytes as long as their names.
  const Dataset& Open(const std::string& uri, const std::vector<std::string>& names) {
    const Location data = *stores_.Open(uri);
    for (const std::string& name : names) EXPECT_TRUE(PutBlocking(*data.store, name, AsBytes(name)).ok());
    return *datasets_.emplace_back(*Dataset::Open(runtime_, stores_, uri));
  }
  static std::vector<std::string> Keys(const Source& source) {
    std::vector<std::string> keys;
    IndexedSample entry;
    for (uint64_t item = 0; item < source.size(); ++item) {
      EXPECT_TRUE(source.Lookup(item, &entry).ok());
      keys.push_back(entry.key);
    }
    return keys;
  }

  Runtime runtime_;
  Stores stores_;
  std::vector<std::unique_ptr<Dataset>> datasets_;
};

TEST_F(ImageSamplesTest, EachPartLosesItsOwn) {
  const Dataset& data = Open("mem://set", {"a/1.jpg", "a/2.json", "b/3.jpg", "b/4.txt", "b/5.txt", "c.csv"});
  const Source source(*ByClass(runtime_, data));
  const ImageSamples found = *OnlyImageSamples(source, {});
  EXPECT_TRUE(found.refusal().ok()) << found.refusal();
  EXPECT_THAT(Keys(found.source), ElementsAre("a/1", "b/3"));
  EXPECT_EQ(found.source.total_bytes(), 14u);
  EXPECT_EQ(found.source.parts()[1].class_name, "b");
  ASSERT_EQ(found.left_out.size(), 2u);
  EXPECT_EQ(found.left_out[1].samples, 2u);
  EXPECT_THAT(found.left_out[1].sentence, HasSubstr("2 of 3 samples without an image are left out: 2 txt"));
  // The fields that are asked for decide, even if the same source was asked for other fields before.
  const Source copy = source;  // NOLINT(performance-unnecessary-copy-initialization): copies share what they know
  EXPECT_THAT(Keys(OnlyImageSamples(copy, {.names = {"txt"}})->source), ElementsAre("a/1", "b/3", "b/4", "b/5"));
  EXPECT_THAT(Keys(OnlyImageSamples(source, {})->source), ElementsAre("a/1", "b/3"));
  EXPECT_EQ(OnlyImageSamples(source, {.images = false})->source.size(), 5u);
}

TEST_F(ImageSamplesTest, TooManyOthersAreNotLeftOut) {
  std::vector<std::string> names = {"1.jpg"};
  for (int i = 0; i < 20; ++i) names.push_back(fmt::format("x{}.json", i));
  EXPECT_EQ(OnlyImageSamples(Open("mem://twenty", names), {})->source.size(), 1u);
  names.emplace_back("y.JPG.json");
  const ImageSamples found = *OnlyImageSamples(Open("mem://more", names), {});
  EXPECT_THAT(std::string(found.refusal().message()), HasSubstr("21 of 22 samples have no image"));
  EXPECT_EQ(found.source.size(), 22u);
  EXPECT_THAT(found.left_out, IsEmpty());
}

TEST_F(ImageSamplesTest, AFolderWithoutAnImageIsNoClass) {
  const Dataset& data = Open("mem://set", {"a/1.jpg", "notes/2.pdf"});
  EXPECT_THAT(std::string(OnlyImageSamples(data, {})->refusal().message()),
              HasSubstr("the class folder 'notes' of mem://set has no image"));
  EXPECT_TRUE(OnlyImageSamples(data, {.classes = false})->refusal().ok());
}

TEST_F(ImageSamplesTest, TheOrderAloneIsThatOfTheLoader) {
  const Source source(Open("mem://set", {"a/1.jpg", "a/2.jpg", "a/3.jpg", "archive.zip"}));
  LoaderOptions options;
  options.memory_bytes = uint64_t{64} << 20;
  options.batch = 1;
  const LoaderPlan all = *Settle(source, options);
  const LoaderPlan order = *SettleOrder(source, options);
  EXPECT_EQ(order.fingerprint, all.fingerprint);
  EXPECT_EQ(order.source.size(), 3u);
  options.start = Position{0, 1, all.fingerprint};
  EXPECT_TRUE(SettleOrder(source, options).ok());
  options.start = Position{0, 1, all.fingerprint + 1};
  EXPECT_THAT(std::string(Settle(source, options).status().message()), HasSubstr("fields="));
}

TEST_F(ImageSamplesTest, ReadingClassesCanBeStopped) {
  std::string shard;
  for (const std::string name : {"1.jpg", "1.cls"}) {
    EXPECT_TRUE(AppendTarHeader(shard, name, 3).ok());
    shard += "cat";
    AppendTarPadding(shard, 3);
  }
  AppendTarEnd(shard);
  const Location place = *stores_.Open("mem://shards");
  ASSERT_TRUE(PutBlocking(*place.store, "a.tar", AsBytes(shard)).ok());
  const Dataset& data = Open("mem://shards", {});
  LoaderOptions options;
  options.batch = 1;
  std::stop_source stop;
  EXPECT_THAT(std::string(CheckSamples(data, options, stop.get_token()).message()), HasSubstr("field 'cls'"));
  stop.request_stop();
  EXPECT_TRUE(absl::IsCancelled(CheckSamples(data, options, stop.get_token())));
}

}  // namespace
}  // namespace millrace
