#include "dataset/sample_groups.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/testing/test_all.h"
#include "shard/sample_name.h"
#include "store/joined_objects.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

std::vector<ObjectInfo> Grouped(const std::set<std::string>& keys) {
  SampleGroups groups;
  std::vector<ObjectInfo> samples;
  const auto take = [&] {
    while (std::optional<ObjectInfo> sample = groups.Next()) samples.push_back(*std::move(sample));
  };
  for (const std::string& key : keys) {
    groups.Add({.key = key, .size = key.size(), .etag = "e" + key});
    take();
  }
  groups.End();
  take();
  return samples;
}

// Returns "key: field field".
std::string Text(const ObjectInfo& object) {
  const absl::StatusOr<RawSample> sample = RawSampleOf({.key = object.key, .size = object.size});
  if (!sample.ok()) return sample.status().ToString();
  std::string text = sample->key + ":";
  for (const RawSample::Field& field : sample->fields) text += " " + field.name;
  if (sample->class_of) text += " class " + sample->class_of->name;
  return text;
}

std::vector<std::string> Texts(const std::set<std::string>& keys) {
  std::vector<std::string> texts;
  for (const ObjectInfo& sample : Grouped(keys)) texts.push_back(Text(sample));
  return texts;
}

TEST(SampleGroups, ObjectsThatDifferInTheirLastExtensionAreOneSample) {
  EXPECT_THAT(Texts({"001.jpg", "001.txt", "001.json", "001.mask.png", "002.jpg"}),
              ElementsAre("001: jpg json mask.png txt", "002: jpg"));
  EXPECT_THAT(Texts({"a/x.jpg", "a/x.txt", "b/x.jpg", "x.png"}), ElementsAre("a/x: jpg txt", "b/x: jpg", "x: png"));
  EXPECT_THAT(Texts({"x.JPG", "x.Mask.PNG"}), ElementsAre("x: jpg mask.png"));
}

TEST(SampleGroups, DotsInNamesAreNoExtensions) {
  EXPECT_THAT(Texts({"scan.2023.1.jpg", "scan.2024.1.jpg", "scan.2024.2.jpg"}),
              ElementsAre("scan.2023.1: jpg", "scan.2024.1: jpg", "scan.2024.2: jpg"));
  // The same is true if a sample of the shorter key exists.
  EXPECT_THAT(Texts({"scan.2024.jpg", "scan.jpg", "scan.jpg.1.txt", "scan.mask.png"}),
              ElementsAre("scan.2024: jpg", "scan: jpg mask.png", "scan.jpg.1: txt"));
  EXPECT_THAT(Texts({"john.smith.jpg", "john.smith.txt", "john.doe.jpg"}),
              ElementsAre("john.doe: jpg", "john.smith: jpg txt"));
}

TEST(SampleGroups, AnImageWhoseNameHasAnExtensionTwiceIsASampleOfItsOwn) {
  EXPECT_THAT(Texts({"1.jpg", "1.jpg.jpg", "1.txt", "2.JPG", "2.JPG.webp", "3.png", "3.png.txt"}),
              ElementsAre("1: jpg txt", "1.jpg: jpg", "2: jpg jpg.webp", "3: png png.txt"));
  EXPECT_THAT(Texts({"1.jpg", "1.jpg.png", "2.png", "2.PNG.png"}),
              ElementsAre("1: jpg jpg.png", "2.PNG: png", "2: png"));
}

TEST(SampleGroups, AMaskJoinsWhetherItComesBeforeOrBehindItsImage) {
  EXPECT_THAT(Texts({"7.aaa.png", "7.jpg", "7.zzz.png"}), ElementsAre("7: aaa.png jpg zzz.png"));
  EXPECT_THAT(Texts({"7.left.jpg", "7.left.mask.png", "7.png"}), ElementsAre("7: left.jpg left.mask.png png"));
  EXPECT_THAT(Texts({"7.left.mask.png", "7.png"}), ElementsAre("7.left.mask: png", "7: png"));
}

TEST(SampleGroups, WhatCannotBeOneSampleStaysApart) {
  EXPECT_THAT(Texts({"x.JPG", "x.jpg", "x.txt"}), ElementsAre("x: jpg txt", "x: jpg"));
  std::set<std::string> many = {"x.jpg"};
  for (int i = 0; i < 40; ++i) many.insert(fmt::format("x.w{:02}.jpg", i));
  const std::vector<ObjectInfo> samples = Grouped(many);
  EXPECT_EQ(samples.size(), 41u - 31u) << "31 of them join";
  EXPECT_EQ(Texts({"./x.jpg", "./x.txt"}).size(), 2u);
}

TEST(SampleGroups, AFileMayHoldTheClass) {
  EXPECT_THAT(Texts({"7.cls", "7.jpg"}), ElementsAre("7: jpg class cls"));
  EXPECT_THAT(Texts({"7.cls"}), ElementsAre("7: cls"));
}

TEST(SampleGroups, AMillionFramesAreNotHeld) {
  constexpr int kFrames = kSanitized ? 100'000 : 1'000'000;
  SampleGroups groups;
  uint64_t samples = 0;
  uint64_t most = 0;
  for (int i = 0; i < kFrames; ++i) {
    groups.Add({.key = fmt::format("frame.{:07}.jpg", i), .size = 1});
    uint64_t now = 0;
    while (groups.Next()) ++now;
    most = std::max(most, now);
    samples += now;
  }
  groups.End();
  while (groups.Next()) ++samples;
  EXPECT_EQ(samples, static_cast<uint64_t>(kFrames));
  EXPECT_LE(most, 4096u);
}

// Returns the groups by the rule alone, without streams and bounds.
std::set<std::set<std::string>> Expected(const std::set<std::string>& keys) {
  std::map<std::string, std::set<std::string>> groups;
  for (const std::string& key : keys) groups[std::string(SplitObjectName(key)->key)].insert(key);
  std::vector<std::string> longest_first;
  for (const auto& [key, members] : groups) longest_first.push_back(key);
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  for (const std::string& key : longest_first) {
    const auto owner = groups.find(std::string(OwnerOfKey(key)));
    if (owner == groups.end()) continue;
    const bool has_image = std::any_of(groups[key].begin(), groups[key].end(), [](const std::string& member) {
      return IsImageField(SplitObjectName(member)->field);
    });
    if (has_image && IsImageField(key.substr(owner->first.size() + 1))) continue;
    owner->second.merge(groups[key]);
    groups.erase(key);
  }
  std::set<std::set<std::string>> all;
  for (auto& [key, members] : groups) all.insert(std::move(members));
  return all;
}

TEST(SampleGroups, RandomNamesFollowTheRule) {
  const std::vector<std::string> words = {"a", "b", "jpg", "7", "12", "mask", "x y"};
  Rng rng(5);
  for (int round = 0; round < 3000; ++round) {
    std::set<std::string> keys;
    for (uint64_t n = 1 + rng.Below(14); n > 0; --n) {
      std::string key = rng.Below(4) == 0 ? "f/" : "";
      for (uint64_t parts = 2 + rng.Below(3); parts > 0; --parts)
        key += words[rng.Below(words.size())] + (parts > 1 ? "." : "");
      keys.insert(key);
    }
    std::set<std::set<std::string>> found;
    std::string before;
    for (const ObjectInfo& sample : Grouped(keys)) {
      EXPECT_LT(before, sample.key);
      before = sample.key;
      const auto objects = SplitJoined(sample.key, sample.etag);
      ASSERT_TRUE(objects.ok());
      std::set<std::string> members;
      for (const ObjectInfo& object : *objects) {
        members.insert(object.key);
        EXPECT_EQ(object.etag, "e" + object.key);
      }
      found.insert(std::move(members));
    }
    ASSERT_EQ(found, Expected(keys)) << fmt::format("{}", round);
  }
}

}  // namespace
}  // namespace millrace
