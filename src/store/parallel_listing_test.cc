#include "store/parallel_listing.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <queue>

#include "base/rng.h"
#include "base/testing/test_all.h"

namespace millrace {
namespace {

using Keys = std::vector<std::string>;

struct Outcome {
  Keys keys;
  double seconds = 0;  // at 50 ms a page, requests side by side
  int requests = 0;
  Keys asked;  // start_after of the requests
  uint64_t most_buffered = 0;
};

/// The answer of a store of `keys` (sorted). Its continuation is the last key of the page, marked. If it `skips`, and
/// start_after is no key, the continuation is the key behind that one.
ListPage Page(const Keys& keys, const std::string& prefix, const ParallelListing::Request& request, uint64_t size,
              bool skips = false) {
  const std::string after = request.continuation.empty() ? request.start_after : request.continuation.substr(1);
  auto from = after < prefix ? std::lower_bound(keys.begin(), keys.end(), prefix)
                             : std::upper_bound(keys.begin(), keys.end(), after);
  ListPage page;
  for (; from != keys.end() && from->starts_with(prefix) && page.objects.size() < size; ++from) {
    page.objects.emplace_back().key = *from;
  }
  if (from == keys.end() || !from->starts_with(prefix)) return page;
  const bool made_up = !request.start_after.empty() && !std::binary_search(keys.begin(), keys.end(), after);
  page.continuation = '>' + (skips && made_up ? *from : page.objects.back().key);
  return page;
}

/// Lists `keys` (sorted) below `prefix` from a simulated store of pages of 1,000.
Outcome List(const Keys& keys, const std::string& prefix = "", ParallelListing::Options options = {},
             bool skips = false) {
  struct Answer {
    double at;
    ParallelListing::Request request;
    bool operator<(const Answer& other) const { return at > other.at; }
  };
  Outcome outcome;
  ParallelListing listing(prefix, options);
  std::priority_queue<Answer> answers;
  while (!listing.Done()) {
    while (const auto request = listing.Next()) {
      EXPECT_LE(listing.requests_in_flight(), options.max_requests);
      outcome.asked.push_back(request->start_after);
      answers.push({outcome.seconds + 0.05 * (1 + 0.2 * Rng(outcome.requests++).Unit()), *request});
    }
    if (answers.empty()) {
      ADD_FAILURE() << "stuck after " << outcome.keys.size();
      break;
    }
    const Answer answer = answers.top();
    answers.pop();
    outcome.seconds = answer.at;
    EXPECT_TRUE(listing.OnPage(answer.request.range, Page(keys, prefix, answer.request, options.page, skips)).ok());
    outcome.most_buffered = std::max(outcome.most_buffered, listing.buffered());
    for (ObjectInfo& object : listing.Take()) outcome.keys.push_back(std::move(object.key));
  }
  return outcome;
}

void ExpectQuick(const char* shape, const Keys& keys, double keys_per_second) {
  SCOPED_TRACE(shape);
  const Outcome outcome = List(keys);
  EXPECT_TRUE(outcome.keys == keys);
  EXPECT_GE(static_cast<double>(keys.size()) / outcome.seconds, keys_per_second);
  EXPECT_LE(outcome.most_buffered, 250'000u);
  EXPECT_LE(outcome.requests, 3 * static_cast<int>(keys.size()) / 1000 + 200);
  std::printf("%-12s %8.0f keys/s, %d requests, %lu buffered\n", shape,
              static_cast<double>(keys.size()) / outcome.seconds, outcome.requests, outcome.most_buffered);
}

Keys Sorted(Keys keys) {
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

constexpr int kMany = kSanitized ? 200'000 : 1'000'000;

TEST(ParallelListing, AMillionFlatKeys) {
  Keys keys;
  for (int i = 0; i < kMany; ++i) keys.push_back(fmt::format("{:08}.jpg", i));
  ExpectQuick("flat", keys, 100'000);
}

TEST(ParallelListing, AMillionHashedKeys) {
  Keys keys;
  for (int i = 0; i < kMany; ++i) keys.push_back(fmt::format("{:016x}", Mix64(static_cast<uint64_t>(i))));
  ExpectQuick("hashed", Sorted(std::move(keys)), 50'000);
}

TEST(ParallelListing, AMillionKeysInDeepFolders) {
  Keys keys;
  for (int i = 0; i < kMany; ++i) {
    keys.push_back(
        fmt::format("data/2026/{:02}/{:02}/host-{}/part-{:05}.bin", i / 100000, i / 5000 % 20, i / 1000 % 5, i % 1000));
  }
  ExpectQuick("deep", Sorted(std::move(keys)), 50'000);
}

TEST(ParallelListing, AMillionKeysOfWhichMostAreInOnePrefix) {
  Keys keys;
  for (int i = 0; i < kMany; ++i) {
    keys.push_back(i % 20 == 0 ? fmt::format("cold/{:03}/{}", i % 777, i) : fmt::format("hot/2026-11-21/{:07}", i));
  }
  ExpectQuick("hot prefix", Sorted(std::move(keys)), 50'000);
}

TEST(ParallelListing, AMillionKeysOfSkewedClasses) {
  Keys keys;
  for (int i = 0; i < kMany; ++i) {
    const auto name = static_cast<int>(1000 * std::pow(Rng(static_cast<uint64_t>(i)).Unit(), 4));
    keys.push_back(fmt::format("train/n{:08}/img_{}.JPEG", 1440764 + 37 * name, i));
  }
  ExpectQuick("classes", Sorted(std::move(keys)), 50'000);
}

// If names begin alike, as folders of classes do, the place where they differ is found at once, not letter by letter.
TEST(ParallelListing, FewKeysInFoldersWithNamesThatBeginAlike) {
  Keys keys;
  for (int i = 0; i < 20'000; ++i) keys.push_back(fmt::format("train/class-{:03}/{:08}.jpg", i % 10, i));
  ExpectQuick("few classes", Sorted(std::move(keys)), 50'000);
}

TEST(ParallelListing, EveryKeyOnceWhateverTheirShape) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    const int alphabet = 1 + static_cast<int>(rng.Below(4));
    Keys keys;
    for (uint64_t i = 0, n = rng.Below(400); i < n; ++i) {
      std::string key = seed % 3 == 0 ? "p/" : "";
      for (uint64_t c = 0, length = 1 + rng.Below(8); c < length; ++c) {
        key.push_back(seed % 5 == 0 ? static_cast<char>(1 + rng.Below(255))
                                    : static_cast<char>('a' + rng.Below(alphabet)));
      }
      keys.push_back(key);
    }
    keys = Sorted(std::move(keys));
    const ParallelListing::Options options{.max_requests = 1 + static_cast<int>(rng.Below(8)),
                                           .max_buffered = 1 + rng.Below(100),
                                           .page = 1 + rng.Below(7)};
    ASSERT_TRUE(List(keys, seed % 3 == 0 ? "p/" : "", options).keys == keys) << seed;
  }
}

TEST(ParallelListing, EveryKeyOfAStoreThatSkipsOneAfterAStartThatIsNoKey) {
  Keys keys;
  for (int i = 0; i < 20'000; ++i)
    keys.push_back(fmt::format("train/{:08x}.jpg", Mix64(static_cast<uint64_t>(i)) >> 32));
  keys = Sorted(std::move(keys));
  for (const uint64_t page : {10, 100, 1000}) {
    const ParallelListing::Options options{.max_requests = 8, .page = page};
    const Outcome outcome = List(keys, "train/", options, /*skips=*/true);
    EXPECT_GT(std::count_if(outcome.asked.begin(), outcome.asked.end(), [](const auto& key) { return !key.empty(); }),
              5);
    EXPECT_TRUE(outcome.keys == keys) << outcome.keys.size() << " of " << keys.size();
  }
}

// Checks a prefix such as "größe/" or "中文/". A store refuses one that is cut within a character, or takes it for
// something else.
bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if ((lead & 0xC0) == 0x80 || i + length > text.size()) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return false;
    }
    i += length;
  }
  return true;
}

TEST(ParallelListing, AsksOnlyForWholeCharacters) {
  Keys keys;
  for (int i = 0; i < 50'000; ++i) {
    keys.push_back(fmt::format("{}/{}{:06}",
                               i % 3 == 0   ? "größe"
                               : i % 3 == 1 ? "中文"
                                            : "plain",
                               i % 2 ? "é" : "ü", i));
  }
  keys = Sorted(std::move(keys));
  const Outcome outcome = List(keys);
  EXPECT_TRUE(outcome.keys == keys);
  for (const std::string& asked : outcome.asked) EXPECT_TRUE(IsUtf8(asked)) << asked;
}

ListPage PageOf(Keys keys, std::string continuation) {
  ListPage page;
  for (std::string& key : keys) page.objects.emplace_back().key = std::move(key);
  page.continuation = std::move(continuation);
  return page;
}

TEST(ParallelListing, WhatIsNotTakenIsBounded) {
  Keys keys;
  for (int i = 0; i < 100'000; ++i) keys.push_back(fmt::format("{:08}", i));
  for (const int max_requests : {1, 8}) {
    ParallelListing listing("", {.max_requests = max_requests, .max_buffered = 5'000, .page = 1'000});
    while (const auto request = listing.Next()) {
      ASSERT_TRUE(listing.OnPage(request->range, Page(keys, "", *request, 1'000)).ok());
      ASSERT_LE(listing.buffered(), 5'000u);
    }
    EXPECT_GE(listing.buffered(), 4'000u);
    EXPECT_FALSE(listing.Take().empty());
    EXPECT_TRUE(listing.Next().has_value());
  }
}

TEST(ParallelListing, AStoreWithAnOrderOfItsOwnIsListedPageByPage) {
  ParallelListing listing("", {.max_requests = 8});
  for (int i = 0; i < 50; ++i) {
    const auto request = listing.Next();
    ASSERT_TRUE(request);
    EXPECT_EQ(request->start_after, "");
    EXPECT_EQ(request->continuation, i == 0 ? "" : std::to_string(i));
    EXPECT_FALSE(listing.Next()) << "one request at a time";
    ASSERT_TRUE(listing.OnPage(request->range, PageOf({"c", "a", "b"}, std::to_string(i + 1))).ok());
    EXPECT_EQ(listing.Take().size(), 3u);
  }
}

/// Is a listing that was in order for three pages, "00".."29" with "29" last taken or not, and is split.
struct SplitListing {
  explicit SplitListing(bool take) {
    for (int i = 0; i < 3; ++i) {
      const auto request = listing.Next();
      EXPECT_TRUE(
          listing.OnPage(request->range, PageOf({fmt::format("{}0", i), fmt::format("{}9", i)}, std::to_string(i)))
              .ok());
      if (take) {
        EXPECT_EQ(listing.Take().size(), 2u);
      }
    }
    front = *listing.Next();
    split = *listing.Next();
    EXPECT_NE(split.start_after, "") << "a range of three pages is split";
  }
  Keys Taken() {
    Keys keys;
    for (ObjectInfo& object : listing.Take()) keys.push_back(std::move(object.key));
    return keys;
  }

  ParallelListing listing{"", {.max_requests = 8}};
  ParallelListing::Request front;
  ParallelListing::Request split;
};

TEST(ParallelListing, DisorderAfterASplitLeavesTheFirstRange) {
  SplitListing disordered(/*take=*/true);
  ASSERT_TRUE(disordered.listing.OnPage(disordered.front.range, PageOf({"1"}, "4")).ok());
  ASSERT_TRUE(disordered.listing.OnPage(disordered.split.range, PageOf({"8"}, "x")).ok()) << "given up";
  EXPECT_EQ(disordered.Taken(), Keys({"1"}));
  const auto next = disordered.listing.Next();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->continuation, "4");
  EXPECT_FALSE(disordered.listing.Next()) << "one by one";
  ASSERT_TRUE(disordered.listing.OnPage(next->range, PageOf({"9", "99"}, "")).ok());
  EXPECT_EQ(disordered.Taken(), Keys({"9", "99"})) << "beyond where it was split";
  EXPECT_TRUE(disordered.listing.Done());
}

TEST(ParallelListing, DisorderAfterTheFirstRangeWasCutOffBeginsAnew) {
  for (const bool take : {false, true}) {
    SplitListing disordered(take);
    ASSERT_TRUE(disordered.listing.OnPage(disordered.front.range, PageOf({"2:", "99"}, "4")).ok());
    const absl::Status status = disordered.listing.OnPage(disordered.split.range, PageOf({"00"}, "x"));
    EXPECT_EQ(status.code(), take ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk) << status;
    if (take) {
      EXPECT_NE(status.message().find("folder by folder"), std::string::npos) << status;
      continue;
    }
    const auto next = disordered.listing.Next();
    ASSERT_TRUE(next);
    EXPECT_EQ(next->start_after + next->continuation, "");
    ASSERT_TRUE(disordered.listing.OnPage(next->range, PageOf({"b", "a"}, "")).ok());
    EXPECT_EQ(disordered.Taken(), Keys({"b", "a"}));
    EXPECT_TRUE(disordered.listing.Done());
  }
}

TEST(ParallelListing, AStoreThatIgnoresWhereToStartIsListedAllTheSame) {
  Keys keys;
  for (int i = 0; i < 20'000; ++i) keys.push_back(fmt::format("{:05}", i));
  int gave_up = 0;
  for (uint64_t seed = 0; seed < (kSanitized ? 50 : 200); ++seed) {
    Rng rng(seed);
    ParallelListing listing("", {.max_requests = 2 + static_cast<int>(rng.Below(8)), .page = 1 + rng.Below(1000)});
    const uint64_t page_size = 1 + rng.Below(2000);
    std::vector<ParallelListing::Request> asked;
    Keys listed;
    absl::Status status;
    while (!listing.Done() && status.ok()) {
      while (auto request = listing.Next()) asked.push_back(*std::move(request));
      if (asked.empty()) {
        const size_t before = listed.size();
        for (ObjectInfo& object : listing.Take()) listed.push_back(std::move(object.key));
        ASSERT_TRUE(listed.size() > before || listing.Done()) << "stuck";
        continue;
      }
      std::swap(asked[rng.Below(asked.size())], asked.back());
      ParallelListing::Request request = std::move(asked.back());
      asked.pop_back();
      request.start_after.clear();
      status = listing.OnPage(request.range, Page(keys, "", request, page_size));
      if (rng.Below(3) > 0) continue;
      for (ObjectInfo& object : listing.Take()) listed.push_back(std::move(object.key));
    }
    for (ObjectInfo& object : listing.Take()) listed.push_back(std::move(object.key));
    gave_up += !status.ok();
    ASSERT_TRUE(status.ok() || absl::IsDataLoss(status)) << status;
    ASSERT_TRUE(!status.ok() || listed == keys) << seed;
  }
  EXPECT_LT(gave_up, 20) << "the first range is rarely cut off before the others tell";
}

TEST(ParallelListing, APageThatComesAgainIsAnError) {
  ParallelListing listing("", {});
  ASSERT_TRUE(listing.OnPage(listing.Next()->range, PageOf({"a"}, "x")).ok());
  const absl::Status status = listing.OnPage(listing.Next()->range, PageOf({"b"}, "x"));
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

TEST(ParallelListing, AnEmptyPageIsNotTheEnd) {
  ParallelListing listing("", {});
  ASSERT_TRUE(listing.OnPage(listing.Next()->range, PageOf({}, "1")).ok());
  ASSERT_TRUE(listing.OnPage(listing.Next()->range, PageOf({"b"}, "")).ok());
  EXPECT_EQ(listing.Take().size(), 1u);
  EXPECT_TRUE(listing.Done());
}

TEST(ParallelListing, FewKeysCostOneRequest) {
  EXPECT_EQ(List({}).requests, 1);
  EXPECT_EQ(List({"a", "b"}).requests, 1);
}

}  // namespace
}  // namespace millrace
