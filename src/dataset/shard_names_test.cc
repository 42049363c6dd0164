#include "dataset/shard_names.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns the warnings. `pattern` is the user's selection; "" selects all.
std::vector<std::string> Warned(const std::vector<std::string>& keys, const std::string& pattern = "") {
  std::optional<ObjectSelection> selection;
  if (!pattern.empty()) selection = *ObjectSelection::Parse("mem://s/" + pattern);
  ShardNames names(selection ? &*selection : nullptr);
  for (const std::string& key : keys) names.Add(key);
  return names.Warnings();
}

// Returns `pattern` with each of the numbers.
std::vector<std::string> Series(const std::string& pattern, const std::vector<int>& numbers) {
  std::vector<std::string> keys;
  for (const int number : numbers) keys.push_back(fmt::format(fmt::runtime(pattern), number));
  return keys;
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(ShardNames, UsualSetsAreFine) {
  const std::vector<std::string> sets[] = {
      {},
      {"a.tar"},
      {"a.tar", "b.tar", "cat.tar"},
      Series("train-{:06}.tar", {0, 1, 2, 3}),
      Series("{}.tar", {1, 2, 3}),
      Series("shard.{:05}.mds", {0, 1}),
      Series("x-train.tfrecord-{:05}-of-00003", {0, 1, 2}),
      Series("x-{:05}-of-00003.tar", {1, 2, 3}),
      Series("part-{:05}-5f3c-c000.snappy.tfrecord", {0, 1}) + Series("part-{:05}-77ab-c000.snappy.tfrecord", {2}),
      Series("worker0-{:03}.tar", {0, 1}) + Series("worker1-{:03}.tar", {0, 1}),
      Series("en/{:03}.tar", {0, 1}) + Series("de/{:03}.tar", {0, 1}),
      {"20200101093011.tar", "20210101093011.tar"},
      {"a3f9.tar", "77de1.tar", "0b2c.tar", "e91.tar", "f0aa7.tar", "b5.tar"},
      {"1000.tar", "3000.tar", "9000.tar"},  // these count something else
  };
  for (const auto& keys : sets) EXPECT_THAT(Warned(keys), IsEmpty()) << (keys.empty() ? "none" : keys.front());
}

TEST(ShardNames, MissingNumbers) {
  EXPECT_THAT(
      Warned(Series("x-train.tfrecord-{:05}-of-00008", {0, 1, 2, 3, 4, 6, 7})),
      ElementsAre("1 shard of the series x-train.tfrecord-*-of-00008 is missing: x-train.tfrecord-00005-of-00008"));
  EXPECT_THAT(Warned(Series("d/x-{:05}-of-00004.tar", {0, 1})),
              ElementsAre(HasSubstr("2 shards of the series d/x-*-of-00004.tar are missing: d/x-00002-of-00004.tar, "
                                    "d/x-00003-of-00004.tar")));
  EXPECT_THAT(Warned(Series("x-{:05}-of-00004.tar", {1, 2, 4})),
              ElementsAre(HasSubstr("missing: x-00003-of-00004.tar")))
      << "counted from 1";
  EXPECT_THAT(Warned(Series("x_{}_of_4.tar", {0, 1, 3})), ElementsAre(HasSubstr("missing: x_2_of_4.tar")));
  EXPECT_THAT(Warned({"x-00000-of-02000.tar"}), ElementsAre(HasSubstr("1999 shards of")));
  EXPECT_THAT(Warned(Series("train-{:06}.tar", {0, 1, 2, 4, 7})),
              ElementsAre(HasSubstr("missing: train-000003.tar, train-000005.tar, train-000006.tar")));
  EXPECT_THAT(Warned(Series("shard.{:05}.mds", {0, 1, 3})), ElementsAre(HasSubstr("shard.00002.mds")));
  EXPECT_THAT(Warned(Series("{}.tar", {8, 9, 11, 12})), ElementsAre(HasSubstr("missing: 10.tar")));
  EXPECT_THAT(Warned(Series("part-{:05}-u-c000.tfrecord", {0, 1, 3})), ElementsAre(HasSubstr("part-00002.tfrecord")));
}

TEST(ShardNames, OfASelectionOnlyGapsAreMissed) {
  EXPECT_THAT(Warned(Series("x-{:05}-of-00008.tar", {2, 3, 4}), "x-0000{2..4}-of-00008.tar"), IsEmpty());
  EXPECT_THAT(Warned(Series("x-{:05}-of-00008.tar", {2, 4, 5}), "x-0000[2-5]-of-00008.tar"),
              ElementsAre(HasSubstr("is missing: x-00003-of-00008.tar")));
  // The first and the last shard are named, too, if the pattern leaves the number open.
  EXPECT_THAT(Warned(Series("x-{:05}-of-00004.tar", {1, 2}), "x-*-of-00004.tar"),
              ElementsAre(HasSubstr("missing: x-00000-of-00004.tar, x-00003-of-00004.tar")));
  EXPECT_THAT(Warned(Series("x-{:05}-of-00004.tar", {1, 2, 3}), "x-0000{1..3}-of-00004.tar"), IsEmpty());
}

TEST(ShardNames, SeveralWritings) {
  EXPECT_THAT(Warned(Series("x-{:05}-of-00002.tar", {0, 1}) + Series("x-{:05}-of-00003.tar", {0, 1, 2})),
              ElementsAre(HasSubstr("several writings (x-*-of-00002.tar, x-*-of-00003.tar)")));
}

TEST(ShardNames, MixedStems) {
  EXPECT_THAT(Warned(Series("train-{:03}.tar", {0, 1, 2}) + Series("test-{:03}.tar", {0, 1})),
              ElementsAre(HasSubstr("different stems become one data set: test-*.tar (2), train-*.tar (3)")));
  EXPECT_THAT(Warned({"train.tar", "val.tar"}), ElementsAre(HasSubstr("train.tar (1), val.tar (1)")));
  EXPECT_THAT(Warned(Series("s/{:03}.tar", {0, 1}) + std::vector<std::string>{"s/extra.tar"}),
              ElementsAre(HasSubstr("s/*.tar (2), s/extra.tar (1)")));
  EXPECT_THAT(Warned(Series("train-{:05}-of-00002", {0, 1}) + Series("validation-{:05}-of-00001", {0})),
              ElementsAre(HasSubstr("train-* (2), validation-* (1)")));
}

TEST(ShardNames, FoldersThatAreSeveralSets) {
  EXPECT_THAT(Warned(Series("train/{:03}.tar", {0, 1}) + Series("val/{:03}.tar", {0})),
              ElementsAre(HasSubstr("shards in the folders train, val become one data set")));
  EXPECT_THAT(Warned(Series("en/train/{:03}.tar", {0, 1}) + Series("de/Test/{:03}.tar", {0})),
              ElementsAre(HasSubstr("de/Test, en/train")));
  EXPECT_THAT(Warned({"0.tar", "1.tar", "old/0.tar"}),
              ElementsAre(HasSubstr("shards lie in 'old/', and others above it (*.tar)")));
}

}  // namespace
}  // namespace millrace
