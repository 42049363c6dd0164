#include "transfer/sync.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "store/blocking.h"
#include "store/memory_store.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SyncTest : public ::testing::Test {
 protected:
  void Put(MemoryStore& store, const std::string& key, const std::string& text) {
    ASSERT_TRUE(PutBlocking(store, key, AsBytes(text)).ok());
  }

  std::vector<std::string> Compare(const SyncOptions& options = {}) {
    std::vector<std::string> steps;
    status_ = CompareFolders({.store = &from_, .prefix = "a/"}, {.store = &to_, .prefix = "b/"}, options,
                             [&](const SyncStep& step) {
                               const char* const kinds[] = {"copy", "remove", "keep"};
                               const bool same = step.key.substr(2) == step.object->key.substr(2);
                               steps.push_back(fmt::format("{} {} {}{}", kinds[static_cast<int>(step.kind)], step.key,
                                                           step.why, same ? "" : " of another"));
                               return each_;
                             });
    return steps;
  }

  MemoryStore from_{"from"};
  MemoryStore to_{"to"};
  absl::Status status_;
  absl::Status each_;
};

TEST_F(SyncTest, TellsWhatMakesOneLikeTheOther) {
  Put(to_, "b/same", "1");
  Put(to_, "b/size", "1");
  Put(to_, "b/surplus", "1");
  Put(to_, "b/zz", "1");
  Put(to_, "outside", "1");
  for (const char* key : {"a/folder/deep", "a/payload/", "a/same", "a/size"}) Put(from_, key, "1");
  Put(from_, "a/marker/", "");
  Put(from_, "a/size", "22");
  Put(to_, "b/same", "1");  // as a copy it is the newer one
  EXPECT_THAT(Compare(), ElementsAre("copy b/folder/deep missing", "copy b/payload/ missing", "keep b/same ",
                                     "copy b/size size differs", "remove b/surplus ", "remove b/zz "));
  EXPECT_TRUE(status_.ok()) << status_;
}

TEST_F(SyncTest, WhatIsNotWantedTakesNoPart) {
  for (const char* name : {"one", "two", "three"}) Put(from_, fmt::format("a/{}", name), "1");
  for (const char* name : {"two", "four", "five"}) Put(to_, fmt::format("b/{}", name), "22");
  SyncOptions options;
  options.wanted = [](std::string_view name) { return name.find('o') != name.npos; };
  EXPECT_THAT(Compare(options), ElementsAre("remove b/four ", "copy b/one missing", "copy b/two size differs"));
}

TEST_F(SyncTest, AnEmptySourceDoesNotEmptyTheTarget) {
  EXPECT_THAT(Compare({.removes = true}), IsEmpty());
  EXPECT_TRUE(status_.ok()) << status_;
  Put(to_, "b/1", "x");
  EXPECT_THAT(Compare({.removes = true}), IsEmpty());
  EXPECT_EQ(status_.code(), absl::StatusCode::kFailedPrecondition) << status_;
  EXPECT_THAT(Compare(), ElementsAre("remove b/1 "));
  // There is a source, although nothing of it takes part.
  Put(from_, "a/2", "x");
  const SyncOptions options{.wanted = [](std::string_view name) { return name == "1"; }, .removes = true};
  EXPECT_THAT(Compare(options), ElementsAre("remove b/1 "));
}

TEST_F(SyncTest, EndsWithTheFirstErrorAndWithAStop) {
  for (int i = 0; i < 3; ++i) Put(from_, fmt::format("a/{}", i), "1");
  each_ = absl::AbortedError("enough");
  EXPECT_EQ(Compare().size(), 1u);
  EXPECT_EQ(status_, each_);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(Compare({.stop = stop.get_token()}), IsEmpty());
  EXPECT_TRUE(absl::IsCancelled(status_)) << status_;
}

// Compares any two folders with sets.
TEST_F(SyncTest, FoldersOfAnyKeys) {
  Rng rng(31);
  std::map<std::string, std::string> expected;
  for (int i = 0; i < 3000; ++i) {
    const std::string name = fmt::format("{}/{}", rng.Next() % 50, rng.Next() % 500);
    const bool source = rng.Next() % 2 == 0;
    Put(source ? from_ : to_, (source ? "a/" : "b/") + name, "1");
    std::string& step = expected["b/" + name];
    const std::string now = source ? "copy" : "remove";
    step = step.empty() || step == now ? now : "keep";
  }
  std::vector<std::string> steps;
  for (const std::string& step : Compare()) steps.push_back(step.substr(0, step.rfind(' ')));
  std::vector<std::string> wanted;
  for (const auto& [key, step] : expected) wanted.push_back(fmt::format("{} {}", step, key));
  // The order in which they were put decides which of two is newer, within milliseconds.
  for (size_t i = 0; i < std::min(steps.size(), wanted.size()); ++i) {
    if (wanted[i].starts_with("keep") && steps[i].starts_with("copy")) steps[i].replace(0, 4, "keep");
  }
  EXPECT_EQ(steps, wanted);
}

}  // namespace
}  // namespace millrace
