#include "store/testing/contract.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <latch>
#include <set>
#include <thread>

#include "base/crypto.h"
#include "base/rng.h"
#include "store/blocking.h"

namespace millrace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreContract);

namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;
using testing::StartsWith;

MutableByteSpan Writable(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()), text.size()};
}

std::string RandomText(size_t size, uint64_t seed) {
  Rng rng(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(rng.Next());
  return text;
}

// Names that break careless escaping, sorting or paths, and that every store takes.
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

}  // namespace

void StoreContract::SetUp() {
  place_ = GetParam().make();
  ASSERT_NE(place_, nullptr);
  store_ = place_->Open();
  ASSERT_NE(store_, nullptr);
}

void StoreContract::TearDown() {
  store_.reset();
  place_.reset();
}

void StoreContract::PutText(const std::string& key, std::string_view text) {
  const auto put = PutBlocking(store(), key, AsBytes(text));
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_EQ(put->size, text.size());
  EXPECT_NE(put->etag, "");
}

std::string StoreContract::Contents(const std::string& key) {
  auto all = ReadAll(store(), key, uint64_t{1} << 30);
  return all.ok() ? *std::move(all) : "error: " + all.status().ToString();
}

absl::StatusOr<std::string> StoreContract::GetText(const std::string& key, ByteRange range, GetOptions options) {
  std::string text(range.length, '?');
  options.range = range;
  RETURN_IF_ERROR(GetBlocking(store(), key, Writable(text), std::move(options)).status());
  return text;
}

std::vector<std::string> StoreContract::Keys(const std::string& prefix) {
  const auto all = ListAll(store(), prefix);
  EXPECT_TRUE(all.ok()) << all.status();
  std::vector<std::string> keys;
  if (all.ok()) {
    for (const ObjectInfo& object : *all) keys.push_back(object.key);
  }
  return keys;
}

TEST_P(StoreContract, ReadsBackWhatWasPut) {
  const std::string text = RandomText(100'000, 1);
  const auto put = PutBlocking(store(), "a/b.bin", AsBytes(text));
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_EQ(put->size, text.size());

  std::string read(text.size(), '?');
  GetOptions options;
  options.range = {0, text.size()};
  const auto got = GetBlocking(store(), "a/b.bin", Writable(read), options);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(read == text);
  EXPECT_EQ(got->etag, put->etag);
  EXPECT_EQ(got->object_size, text.size());

  const auto head = HeadBlocking(store(), "a/b.bin");
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->size, text.size());
  EXPECT_EQ(head->etag, put->etag);
  EXPECT_GT(head->modified_ms, 1'600'000'000'000);
}

TEST_P(StoreContract, ReadsExactlyTheRange) {
  PutText("k", "0123456789");
  EXPECT_EQ(*GetText("k", {0, 1}), "0");
  EXPECT_EQ(*GetText("k", {3, 4}), "3456");
  EXPECT_EQ(*GetText("k", {9, 1}), "9");
  EXPECT_EQ(*GetText("k", {0, 10}), "0123456789");
}

TEST_P(StoreContract, RefusesRangesBeyondTheEnd) {
  PutText("k", "0123456789");
  for (const ByteRange range :
       {ByteRange{0, 11}, ByteRange{9, 2}, ByteRange{10, 1}, ByteRange{100, 5}, ByteRange{UINT64_MAX - 5, 5}}) {
    const auto got = GetText("k", range);
    EXPECT_EQ(got.status().code(), absl::StatusCode::kOutOfRange)
        << range.offset << "+" << range.length << " " << got.status();
    EXPECT_THAT(ToStd(got.status().message()), StartsWith(store().Uri("k")));
  }
}

TEST_P(StoreContract, RefusesRangesBeyond64Bits) {
  PutText("k", "0123456789");
  EXPECT_EQ(GetText("k", {UINT64_MAX, 2}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(StoreContract, AnEmptyRangeOfAnExistingObjectSucceeds) {
  PutText("k", "0123456789");
  PutText("empty", "");
  EXPECT_TRUE(GetText("k", {0, 0}).ok());
  EXPECT_TRUE(GetText("k", {10, 0}).ok());
  EXPECT_TRUE(GetText("empty", {0, 0}).ok());
  EXPECT_EQ(GetText("missing", {0, 0}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GetText("k", {11, 0}).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(GetText("empty", {0, 1}).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Contents("empty"), "");
}

TEST_P(StoreContract, RefusesABufferOfAnotherLength) {
  PutText("k", "0123456789");
  std::string four(4, '?');
  GetOptions options;
  options.range = {0, 5};
  EXPECT_EQ(GetBlocking(store(), "k", Writable(four), options).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(four, "????");
}

TEST_P(StoreContract, MissingObjectsAreNotFound) {
  PutText("dir/x", "1");
  for (const std::string key : {"missing", "dir", "dir/missing", "dir/x/y"}) {
    const auto get = GetText(key, {0, 1});
    EXPECT_EQ(get.status().code(), absl::StatusCode::kNotFound) << key << " " << get.status();
    EXPECT_THAT(ToStd(get.status().message()), StartsWith(store().Uri(key)));
    const auto head = HeadBlocking(store(), key);
    EXPECT_EQ(head.status().code(), absl::StatusCode::kNotFound) << key << " " << head.status();
    EXPECT_THAT(ToStd(head.status().message()), StartsWith(store().Uri(key)));
  }
}

TEST_P(StoreContract, PinsByEtag) {
  PutText("k", "first");
  const std::string etag = HeadBlocking(store(), "k")->etag;
  GetOptions pinned;
  pinned.if_match = etag;
  EXPECT_EQ(*GetText("k", {0, 5}, pinned), "first");
  PutText("k", "other");
  EXPECT_NE(HeadBlocking(store(), "k")->etag, etag);
  const auto got = GetText("k", {0, 5}, pinned);
  EXPECT_EQ(got.status().code(), absl::StatusCode::kFailedPrecondition) << got.status();
  EXPECT_THAT(ToStd(got.status().message()), StartsWith(store().Uri("k")));
  EXPECT_EQ(*GetText("k", {0, 5}), "other");
}

TEST_P(StoreContract, VerifiesChecksums) {
  PutText("k", "0123456789");
  GetOptions options;
  options.checksums = {{{2, 3}, Crc32c(AsBytes("234"))}, {{5, 4}, Crc32c(AsBytes("5678"))}, {{7, 0}, 0}};
  EXPECT_EQ(*GetText("k", {2, 8}, options), "23456789");
  options.checksums[1].crc32c ^= 1;
  const auto got = GetText("k", {2, 8}, options);
  EXPECT_EQ(got.status().code(), absl::StatusCode::kDataLoss) << got.status();
  EXPECT_THAT(ToStd(got.status().message()), StartsWith(store().Uri("k")));
}

TEST_P(StoreContract, RefusesChecksumsOutsideTheRange) {
  PutText("k", "0123456789");
  for (const ByteRange range : {ByteRange{1, 2}, ByteRange{8, 3}, ByteRange{11, 1}, ByteRange{3, UINT64_MAX}}) {
    GetOptions options;
    options.checksums = {{range, 0}};
    EXPECT_EQ(GetText("k", {2, 8}, options).status().code(), absl::StatusCode::kInvalidArgument) << range.offset;
  }
}

TEST_P(StoreContract, PutReplaces) {
  PutText("k", "a longer first version");
  PutText("k", "short");
  EXPECT_EQ(Contents("k"), "short");
  EXPECT_THAT(Keys(), ElementsAre("k"));
}

TEST_P(StoreContract, OnlyIfAbsentNeverReplaces) {
  PutOptions absent;
  absent.only_if_absent = true;
  EXPECT_TRUE(PutBlocking(store(), "k", AsBytes("first"), absent).ok());
  const auto second = PutBlocking(store(), "k", AsBytes("second"), absent);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists) << second.status();
  EXPECT_THAT(ToStd(second.status().message()), StartsWith(store().Uri("k")));
  EXPECT_EQ(Contents("k"), "first");
}

TEST_P(StoreContract, OnlyIfAbsentHasOneWinner) {
  constexpr int kRacers = 8;
  PutOptions absent;
  absent.only_if_absent = true;
  std::vector<std::string> bodies;
  for (int i = 0; i < kRacers; ++i) bodies.push_back(fmt::format("racer {}", i));
  std::latch finished(kRacers);
  std::atomic<int> winner{-1};
  std::atomic<int> won{0};
  std::atomic<int> lost{0};
  for (int i = 0; i < kRacers; ++i) {
    store().Put("k", AsBytes(bodies[i]), absent, [&, i](absl::StatusOr<ObjectInfo> result) {
      if (result.ok()) {
        winner = i;
        ++won;
      }
      if (absl::IsAlreadyExists(result.status())) ++lost;
      finished.count_down();
    });
  }
  finished.wait();
  ASSERT_EQ(won, 1);
  EXPECT_EQ(lost, kRacers - 1);
  EXPECT_EQ(Contents("k"), bodies[winner]);
}

TEST_P(StoreContract, DeletesAndDeletingNothingSucceeds) {
  PutText("dir/k", "x");
  EXPECT_TRUE(DeleteBlocking(store(), "dir/k").ok());
  EXPECT_EQ(HeadBlocking(store(), "dir/k").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Keys(), IsEmpty());
  EXPECT_TRUE(DeleteBlocking(store(), "dir/k").ok());
  EXPECT_TRUE(DeleteBlocking(store(), "never/was").ok());
  PutText("dir/k2", "x");
  EXPECT_TRUE(DeleteBlocking(store(), "dir").ok());
  EXPECT_EQ(Contents("dir/k2"), "x");
}

TEST_P(StoreContract, DeletesManyWithAStatusForEach) {
  PutText("a", "x");
  PutText("b/c", "x");
  PutText("keep", "x");
  std::promise<std::vector<absl::Status>> done;
  store().DeleteMany({"a", "", "never/was", "b/c", "a"},
                     [&](std::vector<absl::Status> statuses) { done.set_value(std::move(statuses)); });
  const std::vector<absl::Status> statuses = done.get_future().get();
  ASSERT_EQ(statuses.size(), 5u);
  for (size_t i = 0; i < statuses.size(); ++i) {
    EXPECT_EQ(statuses[i].code(), i == 1 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kOk) << i;
  }
  EXPECT_THAT(Keys(), ElementsAre("keep"));
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
  EXPECT_EQ(GetBlocking(*missing, "k", Writable(one), options).status().code(), absl::StatusCode::kNotFound);
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
  // Page by page, so that each key is a continuation once.
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

TEST_P(StoreContract, CallbacksRunOnceOnAThreadOfTheStore) {
  PutText("k", "0123456789");
  std::string into(10, '?');
  GetOptions options;
  options.range = {0, 10};
  const auto self = std::this_thread::get_id();
  std::atomic<int> calls{0};
  std::atomic<int> foreign{0};
  std::latch finished(10);
  const auto done = [&](auto) {
    ++calls;
    if (std::this_thread::get_id() != self) ++foreign;
    finished.count_down();
  };
  store().Get("k", Writable(into), options, done);
  store().Get("missing", {}, {}, done);
  store().Get("", {}, {}, done);
  store().Head("k", done);
  store().Head("", done);
  store().Put("p", AsBytes("x"), {}, done);
  store().Put("", AsBytes("x"), {}, done);
  store().Delete("", done);
  store().List({}, done);
  store().List({.max_keys = 0}, done);
  finished.wait();
  store_.reset();
  EXPECT_EQ(calls, 10);
  EXPECT_EQ(foreign, 10);
}

TEST_P(StoreContract, TheDestructorWaitsForTheCallbacks) {
  constexpr int kCalls = 64;
  PutText("k", std::string(100'000, 'k'));
  std::vector<std::string> into(kCalls, std::string(100'000, '?'));
  std::atomic<int> gets{0};
  std::atomic<int> others{0};
  for (int i = 0; i < kCalls; ++i) {
    GetOptions options;
    options.range = {0, into[i].size()};
    store().Get("k", Writable(into[i]), options, [&](absl::StatusOr<GetResult> result) {
      if (result.ok() || absl::IsCancelled(result.status())) ++gets;
    });
    store().Put(fmt::format("p{}", i), AsBytes("x"), {}, [&](absl::StatusOr<ObjectInfo>) { ++others; });
    store().Head("k", [&](absl::StatusOr<ObjectInfo>) { ++others; });
    store().List({}, [&](absl::StatusOr<ListPage>) { ++others; });
    store().Delete("missing", [&](absl::Status) { ++others; });
  }
  store_.reset();
  EXPECT_EQ(gets, kCalls);
  EXPECT_EQ(others, 4 * kCalls);
}

TEST_P(StoreContract, AStoppedReadIsCancelled) {
  PutText("k", "0123456789");
  std::stop_source stop;
  GetOptions options;
  options.stop = stop.get_token();
  EXPECT_TRUE(GetText("k", {0, 10}, options).ok());
  stop.request_stop();
  const auto got = GetText("k", {0, 10}, options);
  EXPECT_EQ(got.status().code(), absl::StatusCode::kCancelled) << got.status();
}

TEST_P(StoreContract, ProgressEndsWithDone) {
  PutText("k", "0123456789");
  RequestProgress progress{RequestPhase::kConnect};
  GetOptions options;
  options.progress = &progress;
  EXPECT_TRUE(GetText("k", {0, 10}, options).ok());
  EXPECT_EQ(progress.load(), RequestPhase::kDone);
  progress = RequestPhase::kConnect;
  EXPECT_FALSE(GetText("missing", {0, 10}, options).ok());
  EXPECT_EQ(progress.load(), RequestPhase::kDone);
}

TEST_P(StoreContract, CountsRequestsAndBytes) {
  const RequestCounters& counters = store().counters();
  const uint64_t put = counters.put, get = counters.get, head = counters.head, list = counters.list, del = counters.del;
  const uint64_t bytes = counters.bytes_read;
  PutText("k", "0123456789");
  EXPECT_TRUE(GetText("k", {2, 5}).ok());
  EXPECT_TRUE(HeadBlocking(store(), "k").ok());
  EXPECT_TRUE(ListBlocking(store(), {}).ok());
  EXPECT_TRUE(DeleteBlocking(store(), "k").ok());
  EXPECT_EQ(counters.put, put + 1);
  EXPECT_EQ(counters.get, get + 1);
  EXPECT_EQ(counters.head, head + 1);
  EXPECT_EQ(counters.list, list + 1);
  EXPECT_EQ(counters.del, del + 1);
  EXPECT_EQ(counters.bytes_read, bytes + 5);
}

TEST_P(StoreContract, IsThreadSafe) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 20;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const std::string key = fmt::format("t{}/{}", t, i);
        if (!PutBlocking(store(), key, AsBytes(key)).ok() || Contents(key) != key) ++wrong;
        if (!ListBlocking(store(), {.prefix = "t"}).ok()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(Keys("t").size(), static_cast<size_t>(kThreads * kRounds));
}

// A reader at the same time sees one version or the other, whole.
TEST_P(StoreContract, ReplacingIsAtomicForReaders) {
  const std::string a(200'000, 'a');
  const std::string b(200'000, 'b');
  PutText("k", a);
  std::atomic<bool> done{false};
  std::atomic<int> mixed{0};
  std::thread writer([&] {
    for (int i = 0; i < 10; ++i) (void)PutBlocking(store(), "k", AsBytes(i % 2 == 0 ? b : a));
    done = true;
  });
  do {
    const auto text = GetText("k", {0, a.size()});
    if (!text.ok() || (*text != a && *text != b)) ++mixed;
  } while (!done);
  writer.join();
  EXPECT_EQ(mixed, 0);
}

TEST_P(StoreContract, AWriterShowsNothingBeforeItsCommit) {
  PutText("old", "old contents");
  for (const std::string key : {"new/file", "old"}) {
    auto writer = store().Write(key, {});
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE((*writer)->Append(AsBytes("hello ")).ok());
    EXPECT_TRUE((*writer)->Append({}).ok());
    EXPECT_TRUE((*writer)->Append(AsBytes("world")).ok());
    EXPECT_EQ(Contents("old"), "old contents");
    EXPECT_EQ(HeadBlocking(store(), "new").status().code(), absl::StatusCode::kNotFound);
    if (key == "new/file") {
      EXPECT_THAT(Keys(), ElementsAre("old"));
    }
    const auto info = (*writer)->Commit();
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->key, key);
    EXPECT_EQ(info->size, 11u);
    EXPECT_EQ(info->etag, HeadBlocking(store(), key)->etag);
    EXPECT_EQ(Contents(key), "hello world");
  }
}

TEST_P(StoreContract, AnUncommittedWriterLeavesNothingBehind) {
  {
    auto small = store().Write("small", {});
    ASSERT_TRUE(small.ok());
    EXPECT_TRUE((*small)->Append(AsBytes("x")).ok());
    auto large = store().Write("dir/large", {});
    ASSERT_TRUE(large.ok());
    EXPECT_TRUE((*large)->Append(AsBytes(std::string(20 << 20, 'x'))).ok());
  }
  EXPECT_THAT(Keys(), IsEmpty());
  PutText("dir/other", "x");
  EXPECT_THAT(Keys(), ElementsAre("dir/other"));
}

TEST_P(StoreContract, WritersHandleEverySizeAroundAPart) {
  constexpr size_t kPart = 8 << 20;
  const std::string all = RandomText(3 * kPart + 5, 2);
  for (const size_t size : {size_t{0}, size_t{1}, kPart - 1, kPart, kPart + 1, 2 * kPart, all.size()}) {
    const std::string_view text = std::string_view(all).substr(all.size() - size);
    auto writer = store().Write("big", {});
    ASSERT_TRUE(writer.ok()) << writer.status();
    constexpr size_t kStep = 1'000'003;  // no divisor of a part
    for (size_t at = 0; at < size; at += kStep) ASSERT_TRUE((*writer)->Append(AsBytes(text.substr(at, kStep))).ok());
    const auto info = (*writer)->Commit();
    ASSERT_TRUE(info.ok()) << size << " " << info.status();
    EXPECT_EQ(info->size, size);
    EXPECT_TRUE(Contents("big") == text) << size;
  }
}

TEST_P(StoreContract, AWriterOnlyIfAbsentNeverReplaces) {
  PutOptions absent;
  absent.only_if_absent = true;
  PutText("k", "first");
  // The larger one needs several parts of an upload.
  for (const size_t size : {size_t{6}, size_t{9} << 20}) {
    const std::string text(size, 's');
    const auto write = [&](const std::string& key) -> absl::Status {
      ASSIGN_OR_RETURN(const auto writer, store().Write(key, absent));
      RETURN_IF_ERROR(writer->Append(AsBytes(text)));
      return writer->Commit().status();
    };
    const absl::Status taken = write("k");
    EXPECT_EQ(taken.code(), absl::StatusCode::kAlreadyExists) << taken;
    EXPECT_THAT(ToStd(taken.message()), StartsWith(store().Uri("k")));
    EXPECT_EQ(Contents("k"), "first");
    const absl::Status fresh = write(fmt::format("fresh {}", size));
    EXPECT_TRUE(fresh.ok()) << fresh;
    EXPECT_TRUE(Contents(fmt::format("fresh {}", size)) == text);
  }
}

}  // namespace millrace
