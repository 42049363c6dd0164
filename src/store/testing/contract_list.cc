#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <string>
#include <vector>

#include "store/blocking.h"
#include "store/testing/contract.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

// These names break careless escaping, sorting or paths, and every store takes them.
const std::vector<std::string>& OddKeys() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> all{" leading space",
                                 "!bang",
                                 "#hash?query=1&x;y",
                                 "%2F%00 percent",
                                 "+plus+",
                                 ".hidden",
                                 "...",
                                 "<xml>&amp;\"quotes\"'",
                                 "=:@,$",
                                 "[brackets]{braces}|^`",
                                 "back\\slash",
                                 "case",
                                 "Case",
                                 "dir with space/and/\xc3\xbcml\xc3\xa4ut.jpg",
                                 "tilde~",
                                 "trailing dot.",
                                 "\xe6\x97\xa5\xe6\x9c\xac/\xf0\x9f\x98\x80"};
    std::sort(all.begin(), all.end());
    return all;
  }();
  return keys;
}

TEST_P(StoreContract, ListsInBytewiseOrderOfWholeKeys) {
  // Directory order would put "a/x" before "a-", and a locale would mix cases.
  std::vector<std::string> keys{"B",    "a!",  "a-", "a.tar", "a/b-/c",     "a/b/c",
                                "a/b0", "a/x", "a0", "ab",    "b/\xc3\xa4", "b/z"};
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) PutText(*key, *key);
  std::sort(keys.begin(), keys.end());
  EXPECT_THAT(Keys(), ElementsAreArray(keys));
  const auto all = ListAll(store(), "");
  for (const ObjectInfo& object : *all) {
    EXPECT_EQ(object.size, object.key.size());
    EXPECT_EQ(object.etag, HeadBlocking(store(), object.key)->etag) << object.key;
    EXPECT_GT(object.modified_ms, 1'600'000'000'000);
  }
}

TEST_P(StoreContract, PagesOfAnySizeGiveTheSameKeys) {
  std::vector<std::string> keys{"a", "a-/1", "b/1", "b/2", "b/2-", "b/3/x", "b0", "c"};
  for (const std::string& key : keys) PutText(key, "x");
  for (int size = 1; size <= 9; ++size) {
    std::vector<std::string> seen;
    ListOptions options;
    options.max_keys = size;
    int pages = 0;
    do {
      const auto page = ListBlocking(store(), options);
      ASSERT_TRUE(page.ok()) << page.status();
      EXPECT_LE(page->objects.size(), static_cast<size_t>(size));
      for (const ObjectInfo& object : page->objects) seen.push_back(object.key);
      options.continuation = page->continuation;
    } while (!options.continuation.empty() && ++pages < 20);
    EXPECT_THAT(seen, ElementsAreArray(keys)) << size;
  }
}

TEST_P(StoreContract, PagesWithADelimiterGiveEachPrefixOnce) {
  for (const char* key : {"a", "b-", "b/1", "b/2", "b/3/x", "b0", "c/1", "c/2", "d"}) PutText(key, "x");
  for (int size = 1; size <= 7; ++size) {
    std::vector<std::string> objects;
    std::vector<std::string> prefixes;
    ListOptions options;
    options.max_keys = size;
    options.delimiter = "/";
    int pages = 0;
    do {
      const auto page = ListBlocking(store(), options);
      ASSERT_TRUE(page.ok()) << page.status();
      EXPECT_LE(page->objects.size() + page->common_prefixes.size(), static_cast<size_t>(size));
      for (const ObjectInfo& object : page->objects) objects.push_back(object.key);
      prefixes.insert(prefixes.end(), page->common_prefixes.begin(), page->common_prefixes.end());
      options.continuation = page->continuation;
    } while (!options.continuation.empty() && ++pages < 20);
    EXPECT_THAT(objects, ElementsAre("a", "b-", "b0", "d")) << size;
    EXPECT_THAT(prefixes, ElementsAre("b/", "c/")) << size;
  }
}

TEST_P(StoreContract, APrefixSelectsAndNeedNotBeAFolder) {
  for (const char* key : {"ab", "abc/1", "abc/2", "abd", "b"}) PutText(key, "x");
  EXPECT_THAT(Keys("ab"), ElementsAre("ab", "abc/1", "abc/2", "abd"));
  EXPECT_THAT(Keys("abc/"), ElementsAre("abc/1", "abc/2"));
  EXPECT_THAT(Keys("abc/2"), ElementsAre("abc/2"));
  ListOptions options;
  options.prefix = "ab";
  options.delimiter = "/";
  const auto page = ListBlocking(store(), options);
  ASSERT_TRUE(page.ok());
  EXPECT_THAT(page->common_prefixes, ElementsAre("abc/"));
  ASSERT_EQ(page->objects.size(), 2u);
  EXPECT_EQ(page->objects[0].key, "ab");
  EXPECT_EQ(page->objects[1].key, "abd");
}

TEST_P(StoreContract, APrefixThatMatchesNothingGivesAnEmptyPage) {
  PutText("a/b", "x");
  for (const char* prefix : {"b", "a/b/", "a/c", "nothing/at/all", "a/b/c/d"}) {
    const auto page = ListBlocking(store(), {.prefix = prefix});
    ASSERT_TRUE(page.ok()) << prefix << " " << page.status();
    EXPECT_THAT(page->objects, IsEmpty()) << prefix;
    EXPECT_EQ(page->continuation, "");
  }
}

TEST_P(StoreContract, StartAfterSkipsKeysUpToIt) {
  for (const char* key : {"a", "b-", "b/1", "b/2", "b0", "c"}) PutText(key, "x");
  const auto after = [&](const std::string& start) {
    const auto page = ListBlocking(store(), {.start_after = start});
    EXPECT_TRUE(page.ok()) << page.status();
    std::vector<std::string> keys;
    if (page.ok()) {
      for (const ObjectInfo& object : page->objects) keys.push_back(object.key);
    }
    return keys;
  };
  EXPECT_THAT(after("a"), ElementsAre("b-", "b/1", "b/2", "b0", "c"));
  EXPECT_THAT(after("b/1"), ElementsAre("b/2", "b0", "c"));
  EXPECT_THAT(after("b/10"), ElementsAre("b/2", "b0", "c"));
  EXPECT_THAT(after("b/"), ElementsAre("b/1", "b/2", "b0", "c"));
  EXPECT_THAT(after("c"), IsEmpty());
}

TEST_P(StoreContract, ListsMoreThanOneFullPage) {
  constexpr int kObjects = 1100;
  std::vector<std::string> keys;
  for (int i = 0; i < kObjects; ++i) keys.push_back(fmt::format("n/{:05}", i));
  std::latch finished(kObjects);
  std::atomic<int> failed{0};
  for (const std::string& key : keys) {
    store().Put(key, AsBytes(key), {}, [&](absl::StatusOr<ObjectInfo> result) {
      if (!result.ok()) ++failed;
      finished.count_down();
    });
  }
  finished.wait();
  ASSERT_EQ(failed, 0);
  EXPECT_THAT(Keys("n/"), ElementsAreArray(keys));
}

TEST_P(StoreContract, RefusesListingsThatMakeNoSense) {
  EXPECT_EQ(ListBlocking(store(), {.max_keys = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ListBlocking(store(), {.max_keys = -5}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ListBlocking(store(), {.delimiter = "x"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ListBlocking(store(), {.prefix = std::string("a\0b", 3)}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(StoreContract, AMissingBucketOrFolderIsNotFound) {
  const auto missing = place_->OpenMissing();
  if (missing == nullptr) return;  // memory is never missing
  const auto page = ListBlocking(*missing, {});
  EXPECT_EQ(page.status().code(), absl::StatusCode::kNotFound) << page.status();
  EXPECT_EQ(HeadBlocking(*missing, "k").status().code(), absl::StatusCode::kNotFound);
  std::string one(1, '?');
  GetOptions options;
  options.range = {0, 1};
  EXPECT_EQ(GetBlocking(*missing, "k", AsWritableBytes(one), options).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(StoreContract, RefusesKeysThatNoStoreTakes) {
  for (const std::string& key : {std::string(), std::string(1025, 'k'), std::string("a\0b", 3)}) {
    EXPECT_EQ(GetText(key, {0, 1}).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(HeadBlocking(store(), key).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(PutBlocking(store(), key, AsBytes("x")).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(DeleteBlocking(store(), key).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(store().Write(key, {}).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_P(StoreContract, TakesKeysOf1024Bytes) {
  std::string key;
  while (key.size() < 1024) key += key.size() % 200 == 199 ? '/' : 'k';
  PutText(key, "long");
  EXPECT_EQ(Contents(key), "long");
  EXPECT_THAT(Keys(), ElementsAre(key));
}

TEST_P(StoreContract, TakesOddKeysAsTheyAre) {
  for (const std::string& key : OddKeys()) PutText(key, "is " + key);
  for (const std::string& key : OddKeys()) EXPECT_EQ(Contents(key), "is " + key);
  EXPECT_THAT(Keys(), ElementsAreArray(OddKeys()));
  // Lists page by page, so that each key is a continuation once.
  ListOptions options;
  options.max_keys = 1;
  std::vector<std::string> seen;
  do {
    const auto page = ListBlocking(store(), options);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const ObjectInfo& object : page->objects) seen.push_back(object.key);
    options.continuation = page->continuation;
  } while (!options.continuation.empty() && seen.size() < 100);
  EXPECT_THAT(seen, ElementsAreArray(OddKeys()));
  for (const std::string& key : OddKeys()) {
    EXPECT_TRUE(DeleteBlocking(store(), key).ok());
    EXPECT_EQ(HeadBlocking(store(), key).status().code(), absl::StatusCode::kNotFound) << key;
  }
}

TEST_P(StoreContract, TakesControlCharacters) {
  const std::vector<std::string> keys{"bell\x01", "new\nline", "tab\t"};
  for (const std::string& key : keys) PutText(key, key);
  for (const std::string& key : keys) EXPECT_EQ(Contents(key), key);
  EXPECT_THAT(Keys(), ElementsAreArray(keys));
}

TEST_P(StoreContract, NeverNormalisesKeys) {
  const std::vector<std::string> keys{"../up", "./x", "/absolute", "a/../b", "a/./b", "a//b", "b/", ".", ".."};
  PutText("a/b", "plain");
  for (const std::string& key : keys) {
    const auto put = PutBlocking(store(), key, AsBytes("is " + key));
    if (place_->is_folder()) {
      EXPECT_EQ(put.status().code(), absl::StatusCode::kInvalidArgument) << key << " " << put.status();
      EXPECT_EQ(HeadBlocking(store(), key).status().code(), absl::StatusCode::kInvalidArgument) << key;
      EXPECT_EQ(GetText(key, {0, 1}).status().code(), absl::StatusCode::kInvalidArgument) << key;
      EXPECT_EQ(DeleteBlocking(store(), key).code(), absl::StatusCode::kInvalidArgument) << key;
      EXPECT_EQ(store().Write(key, {}).status().code(), absl::StatusCode::kInvalidArgument) << key;
    } else {
      EXPECT_TRUE(put.ok()) << key << " " << put.status();
    }
  }
  EXPECT_EQ(Contents("a/b"), "plain");
  if (place_->is_folder()) return;
  for (const std::string& key : keys) EXPECT_EQ(Contents(key), "is " + key);
  EXPECT_EQ(Keys().size(), keys.size() + 1);
}

TEST_P(StoreContract, PrefixesThatLeaveTheStoreMatchNothing) {
  PutText("a/b", "x");
  for (const char* prefix : {"../", "a/../", "/", "//", "a//", "./"}) {
    EXPECT_THAT(Keys(prefix), IsEmpty()) << prefix;
  }
}

}  // namespace
}  // namespace millrace
