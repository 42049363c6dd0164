#include "transfer/key_pattern.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "store/glob.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(OwnFileTest, LiesBesideTheDataOrBelow) {
  for (const char* name : {".millrace/index", "a/.millrace/index", "a/b.millrace/.millrace/x", ".millrace/"})
    EXPECT_TRUE(IsOwnFile(name)) << name;
  for (const char* name : {"", ".millrace", "a/.millrace", "a.millrace/b", ".millrace-tmp-1", "millrace/index"})
    EXPECT_FALSE(IsOwnFile(name)) << name;
}

class KeyPatternTest : public ::testing::Test {
 protected:
  KeyPatternTest() : runtime_({.io_threads = 1, .cpu_threads = 1}), stores_(runtime_) {}

  void Put(const std::string& key) {
    ASSERT_TRUE(PutBlocking(*stores_.Open("mem://m")->store, key, AsBytes("x")).ok());
  }

  std::vector<std::string> Matches(const std::string& pattern, const ExpandOptions& options = {}) {
    const auto opened = OpenPattern(stores_, "mem://m/" + pattern, Named::kObject);
    EXPECT_TRUE(opened.ok() && *opened) << opened.status();
    std::vector<std::string> found;
    status_ = Expand(**opened, options, [&](const ListPage& page) {
      for (const ObjectInfo& object : page.objects) found.push_back(object.key);
      for (const std::string& prefix : page.common_prefixes) found.push_back(prefix);
      return absl::OkStatus();
    });
    return found;
  }

  Runtime runtime_;
  Stores stores_;
  absl::Status status_;
};

TEST_F(KeyPatternTest, ANameThatIsThereIsNoPattern) {
  Put("a*");
  Put("ab");
  EXPECT_FALSE(*OpenPattern(stores_, "mem://m/a*", Named::kObject));
  EXPECT_FALSE(*OpenPattern(stores_, "mem://m/ab", Named::kObject));
  EXPECT_THAT(Matches("?b"), ElementsAre("ab"));
}

TEST_F(KeyPatternTest, FoldersThatMatchAndWhatIsBelowThem) {
  for (const char* key : {"x/1/a", "x/1/b/c", "x/2", "y/1/a"}) Put(key);
  EXPECT_THAT(Matches("x/*"), ElementsAre("x/2"));
  EXPECT_THAT(Matches("x/*", {.folders = true}), ::testing::UnorderedElementsAre("x/1/", "x/2"));
  EXPECT_THAT(Matches("x/*", {.below = true}), ::testing::UnorderedElementsAre("x/1/a", "x/1/b/c", "x/2"));
  EXPECT_THAT(Matches("*/1/a"), ElementsAre("x/1/a", "y/1/a"));
  EXPECT_THAT(Matches("z*"), IsEmpty());
  const auto none = OpenPattern(stores_, "mem://m/[xz]/?", Named::kObject);
  const auto ignore = [](const ObjectInfo&) { return absl::OkStatus(); };
  EXPECT_TRUE(ExpandObjects(**none, /*recursive=*/false, ignore).ok());
  const auto folders = OpenPattern(stores_, "mem://m/*", Named::kObject);
  const absl::Status only = ExpandObjects(**folders, /*recursive=*/false, ignore);
  EXPECT_THAT(only.ToString(), ::testing::HasSubstr("only folders match"));
}

// The keys are the same as by matching each of them, whatever is listed and passed over.
TEST_F(KeyPatternTest, MatchesAsGlobMatchesDoes) {
  Rng rng(17);
  std::vector<std::string> keys;
  for (int i = 0; i < 400; ++i) {
    std::string key;
    for (uint64_t parts = 1 + rng.Next() % 3; parts > 0; --parts) {
      for (uint64_t letters = 1 + rng.Next() % 2; letters > 0; --letters)
        key += static_cast<char>('a' + rng.Next() % 3);
      if (parts > 1) key += '/';
    }
    keys.push_back(key);
    Put(key);
  }
  for (const char* pattern : {"*", "**", "a*", "?/*", "a/**", "**/b?", "[ab]?/c*", "**/*", "*/*/[!a]*", "a/?/*"}) {
    std::set<std::string> expected;
    for (const std::string& key : keys) {
      if (GlobMatches(pattern, key)) expected.insert(key);
    }
    const std::vector<std::string> found = Matches(pattern);
    EXPECT_EQ(std::set<std::string>(found.begin(), found.end()), expected) << pattern;
    EXPECT_EQ(found.size(), expected.size()) << pattern;
  }
}

TEST_F(KeyPatternTest, AStopEndsIt) {
  Put("a");
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(Matches("*", {.stop = stop.get_token()}), IsEmpty());
  EXPECT_TRUE(absl::IsCancelled(status_)) << status_;
}

}  // namespace
}  // namespace millrace
