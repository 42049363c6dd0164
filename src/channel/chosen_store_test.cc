#include "channel/chosen_store.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "net/runtime.h"
#include "store/blocking.h"
#include "store/stores.h"

namespace millrace {
namespace {

/// Two stores: one has some objects of the other one, and shows them as the other one would if it had no more.
class ChosenStoreTest : public ::testing::Test {
 protected:
  Runtime runtime_{{.cpu_threads = 1}};
  Stores stores_{runtime_};
  ObjectStore& all_ = *stores_.Open("mem://all")->store;
  ObjectStore& some_ = *stores_.Open("mem://some")->store;
};

std::vector<std::string> PageTexts(ObjectStore& store, ListOptions options) {
  std::vector<std::string> texts;
  do {
    const absl::StatusOr<ListPage> page = ListBlocking(store, options);
    EXPECT_TRUE(page.ok()) << page.status();
    if (!page.ok()) return texts;
    EXPECT_LE(page->objects.size() + page->common_prefixes.size(), static_cast<size_t>(options.max_keys));
    std::multiset<std::string> sorted(page->common_prefixes.begin(), page->common_prefixes.end());
    for (const ObjectInfo& object : page->objects) sorted.insert(object.key + "=" + std::to_string(object.size));
    texts.insert(texts.end(), sorted.begin(), sorted.end());
    options.continuation = page->continuation;
  } while (!options.continuation.empty());
  return texts;
}

TEST_F(ChosenStoreTest, ListsAsAStoreOfTheseObjects) {
  std::mt19937 random(7);
  std::vector<ObjectInfo> chosen;
  std::set<std::string> keys;
  for (int i = 0; i < 300; ++i) {
    std::string key;
    for (int c = 0; c < 1 + static_cast<int>(random() % 6); ++c) key += "ab/-"[random() % 4];
    if (!keys.insert(key).second) continue;
    const std::string body(random() % 9, 'x');
    const absl::StatusOr<ObjectInfo> put = PutBlocking(all_, key, AsBytes(body));
    ASSERT_TRUE(put.ok()) << key;
    if (random() % 2 == 0) continue;
    ASSERT_TRUE(PutBlocking(some_, key, AsBytes(body)).ok());
    chosen.push_back(*put);
    if (random() % 4 == 0) chosen.push_back(*put);
  }
  ChosenStore store(all_, chosen);
  for (const char* prefix : {"", "a", "a/", "a/b", "b//", "-", "zz"}) {
    for (const char* delimiter : {"", "/"}) {
      for (const char* after : {"", "a", "a/", "a/a", "ab"}) {
        for (const int most : {1, 2, 3, 1000}) {
          ListOptions options{
              .prefix = prefix, .delimiter = delimiter, .start_after = after, .continuation = {}, .max_keys = most};
          EXPECT_EQ(PageTexts(store, options), PageTexts(some_, options))
              << prefix << "|" << delimiter << "|" << after << "|" << most;
        }
      }
    }
  }
  for (const std::string& key : keys) {
    EXPECT_EQ(HeadBlocking(store, key).status().code(), HeadBlocking(some_, key).status().code()) << key;
    EXPECT_EQ(ReadAll(store, key, 100).status().code(), ReadAll(some_, key, 100).status().code()) << key;
  }
}

}  // namespace
}  // namespace millrace
