#include "channel/checkpoint_mirror.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "net/runtime.h"
#include "store/blocking.h"
#include "store/testing/forwarding_store.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class CheckpointMirrorTest : public ::testing::Test {
 protected:
  CheckpointMirrorTest() {
    folder_ = *stores_.Open(temp_.path());
    place_ = *stores_.Open("mem://place/ckpt/");
  }
  /// The mirror, which looks all the time, never meets half a file.
  void Write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(temp_ / name).parent_path());
    std::ofstream(aside_ / "written") << text;
    std::filesystem::rename(aside_ / "written", temp_ / name);
  }
  /// Returns the objects at the place, by name.
  std::map<std::string, std::string> There() {
    std::map<std::string, std::string> there;
    const absl::StatusOr<std::vector<ObjectInfo>> objects = ListAll(*place_.store, place_.prefix);
    EXPECT_TRUE(objects.ok()) << objects.status();
    if (!objects.ok()) return there;
    for (const ObjectInfo& object : *objects) {
      // The mirror may remove it meanwhile.
      const absl::StatusOr<std::string> text = ReadAll(*place_.store, object.key, 1000);
      if (text.ok()) there[object.key.substr(place_.prefix.size())] = *text;
    }
    return there;
  }
  std::map<std::string, std::string> WaitForCount(size_t count) {
    for (int i = 0; i < 6000 && There().size() < count; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return There();
  }

  TempFolder temp_;
  TempFolder aside_;
  Runtime runtime_{{.cpu_threads = 1}};
  Stores stores_{runtime_};
  Location folder_;
  Location place_;
};

TEST_F(CheckpointMirrorTest, SendsWhatIsNewAndRemovesNothing) {
  Write("step-1/a", "1");
  CheckpointMirror mirror(folder_, place_, {.interval = std::chrono::milliseconds(5), .settled = {}, .say = {}});
  EXPECT_THAT(WaitForCount(1), ElementsAre(Pair("step-1/a", "1")));
  Write("step-2/b", "22");
  EXPECT_THAT(WaitForCount(2), ElementsAre(Pair("step-1/a", "1"), Pair("step-2/b", "22")));
  std::filesystem::remove_all(temp_ / "step-1");
  Write("step-3/c", "333");
  EXPECT_TRUE(mirror.Finish({}).ok());
  EXPECT_THAT(There(), ElementsAre(Pair("step-1/a", "1"), Pair("step-2/b", "22"), Pair("step-3/c", "333")));
}

TEST_F(CheckpointMirrorTest, SendsWhatWasWrittenAnewWhateverItsTime) {
  Write("last.ckpt", "1");
  CheckpointMirror mirror(folder_, place_, {.interval = std::chrono::milliseconds(5), .settled = {}, .say = {}});
  EXPECT_THAT(WaitForCount(1), ElementsAre(Pair("last.ckpt", "1")));
  Write("last.ckpt", "2");
  std::filesystem::last_write_time(temp_ / "last.ckpt",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  EXPECT_TRUE(mirror.Finish({}).ok());
  EXPECT_THAT(There(), ElementsAre(Pair("last.ckpt", "2")));
}

TEST_F(CheckpointMirrorTest, WhatMayBeWrittenToWaitsForTheEnd) {
  Write("a", "half");
  CheckpointMirror mirror(folder_, place_,
                          {.interval = std::chrono::milliseconds(1), .settled = std::chrono::hours(1), .say = {}});
  Write("old", "whole");
  std::filesystem::last_write_time(temp_ / "old",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  EXPECT_THAT(WaitForCount(1), ElementsAre(Pair("old", "whole")));
  EXPECT_TRUE(mirror.Finish({}).ok());
  EXPECT_THAT(There(), ElementsAre(Pair("a", "half"), Pair("old", "whole")));
}

/// Takes no object whose key has this in it.
class ChoosyStore final : public ForwardingStore {
 public:
  ~ChoosyStore() override { Close(); }
  std::string refused;
  absl::StatusCode code = absl::StatusCode::kUnavailable;

  void Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) override {
    if (!refused.empty() && key.find(refused) != std::string::npos) {
      return std::move(done)(absl::Status(code, key + " is refused"));
    }
    ForwardingStore::Put(std::move(key), body, std::move(options), std::move(done));
  }
};

TEST_F(CheckpointMirrorTest, TheFileThatNamesOthersIsNotThereBeforeThem) {
  ChoosyStore store;
  place_ = {&store, "ckpt/"};
  store.refused = "shard-1";
  // The tracker would come first in the order of keys.
  for (const char* name : {"step-1/shard-0", "step-1/shard-1", "config", "a-latest"}) Write(name, name);
  const auto now = std::filesystem::file_time_type::clock::now();
  for (const char* name : {"config", "step-1/shard-0", "step-1/shard-1"}) {
    std::filesystem::last_write_time(temp_ / name, now - std::chrono::minutes(1));
  }
  const auto names = [&] {
    std::vector<std::string> keys;
    for (const auto& [name, text] : There()) keys.push_back(name);
    return keys;
  };
  const CheckpointMirrorOptions never{.interval = std::chrono::hours(1), .settled = {}, .say = {}};
  EXPECT_FALSE(CheckpointMirror(folder_, place_, never).Finish({}).ok());
  EXPECT_THAT(names(), ElementsAre("step-1/shard-0"));
  store.refused = "config";
  EXPECT_FALSE(CheckpointMirror(folder_, place_, never).Finish({}).ok());
  EXPECT_THAT(names(), ElementsAre("step-1/shard-0", "step-1/shard-1"));
  store.refused = "";
  EXPECT_TRUE(CheckpointMirror(folder_, place_, never).Finish({}).ok());
  EXPECT_THAT(names(), ElementsAre("a-latest", "config", "step-1/shard-0", "step-1/shard-1"));
}

TEST_F(CheckpointMirrorTest, AFileThatCannotBeCopiedHoldsBackOnlyTheLast) {
  ChoosyStore store;
  place_ = {&store, "ckpt/"};
  for (const char* name : {"a-latest", "config", "logs/private", "step-1/shard-0"}) Write(name, name);
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(temp_ / "config", now - std::chrono::minutes(1));
  store.refused = "private";
  const CheckpointMirrorOptions never{.interval = std::chrono::hours(1), .settled = {}, .say = {}};
  for (const absl::StatusCode code : {absl::StatusCode::kPermissionDenied, absl::StatusCode::kInvalidArgument}) {
    store.code = code;
    EXPECT_EQ(CheckpointMirror(folder_, place_, never).Finish({}).code(), code);
    EXPECT_THAT(There(), ElementsAre(Pair("config", "config"), Pair("step-1/shard-0", "step-1/shard-0")));
  }
  std::filesystem::remove(temp_ / "logs/private");
  EXPECT_TRUE(CheckpointMirror(folder_, place_, never).Finish({}).ok());
  EXPECT_THAT(There(), ElementsAre(Pair("a-latest", "a-latest"), Pair("config", "config"),
                                   Pair("step-1/shard-0", "step-1/shard-0")));
}

using Milliseconds = std::chrono::milliseconds;
const CheckpointMirrorOptions kQuick{.interval = Milliseconds(5), .settled = {}, .say = {}};

TEST_F(CheckpointMirrorTest, ALinkStaysALinkToTheNewestStep) {
  namespace fs = std::filesystem;
  Write("step-1/a", "1");
  fs::create_symlink("step-1", temp_ / "latest");
  CheckpointMirror mirror(folder_, place_, kQuick);
  EXPECT_THAT(WaitForCount(2), ElementsAre(Pair("latest.millrace-link", "step-1"), Pair("step-1/a", "1")));
  Write("step-2/b", "2");
  fs::create_symlink("step-2", temp_ / "latest.tmp");
  fs::rename(temp_ / "latest.tmp", temp_ / "latest");
  EXPECT_TRUE(mirror.Finish({}).ok());
  EXPECT_THAT(There(),
              ElementsAre(Pair("latest.millrace-link", "step-2"), Pair("step-1/a", "1"), Pair("step-2/b", "2")));
  // An older version has sent this in its place; the next job starts.
  ASSERT_TRUE(PutBlocking(*place_.store, place_.Key("latest/a"), AsBytes("1")).ok());
  TempFolder other;
  const Location next = *stores_.Open(other.path());
  EXPECT_EQ(RestoreCheckpoints(place_, next, {})->objects, 3u);
  EXPECT_EQ(fs::read_symlink(other / "latest"), "step-2");
  EXPECT_EQ(*ReadAll(*next.store, next.Key("latest/b"), 10), "2");
  EXPECT_FALSE(fs::exists(other / "latest/a"));
  EXPECT_EQ(RestoreCheckpoints(place_, next, {})->objects, 0u);
}

TEST_F(CheckpointMirrorTest, ALinkThatIsNoneAnyMoreIsNoneThere) {
  namespace fs = std::filesystem;
  Write("step-1/a", "1");
  fs::create_symlink("step-1", temp_ / "latest");
  fs::create_symlink("step-1", temp_ / "best");
  CheckpointMirror mirror(folder_, place_, kQuick);
  EXPECT_EQ(WaitForCount(3).size(), 3u);
  fs::remove(temp_ / "best");
  fs::remove(temp_ / "latest");
  Write("latest/a", "2");
  for (int i = 0; i < 6000 && There().contains("best.millrace-link"); ++i)
    std::this_thread::sleep_for(Milliseconds(10));
  EXPECT_TRUE(mirror.Finish({}).ok());
  EXPECT_THAT(There(), ElementsAre(Pair("latest/a", "2"), Pair("step-1/a", "1")));
}

TEST_F(CheckpointMirrorTest, ALinkIsNotThereBeforeWhatItNames) {
  ChoosyStore store;
  place_ = {&store, "ckpt/"};
  store.refused = "step-1/shard-1";
  store.code = absl::StatusCode::kPermissionDenied;
  for (const char* name : {"step-0/shard-0", "step-1/shard-0", "step-1/shard-1"}) Write(name, name);
  std::filesystem::create_symlink("step-0", temp_ / "best");
  std::filesystem::create_symlink("step-1", temp_ / "latest");
  const CheckpointMirrorOptions never{.interval = std::chrono::hours(1), .settled = {}, .say = {}};
  EXPECT_FALSE(CheckpointMirror(folder_, place_, never).Finish({}).ok());
  EXPECT_TRUE(There().contains("best.millrace-link"));
  EXPECT_FALSE(There().contains("latest.millrace-link"));
  store.refused = "";
  EXPECT_TRUE(CheckpointMirror(folder_, place_, never).Finish({}).ok());
  EXPECT_TRUE(There().contains("latest.millrace-link"));
}

TEST_F(CheckpointMirrorTest, AStepArrivesWhole) {
  const auto age = [&](const std::string& name) {
    std::filesystem::last_write_time(temp_ / name,
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  };
  Write("step-1/a", "1");
  Write("step-1/deep/b", "half");
  Write("step-0/a", "0");
  Write("tracker", "step-1");
  for (const char* name : {"step-0/a", "step-1/a", "tracker"}) age(name);
  std::filesystem::create_symlink("step-1", temp_ / "latest");
  CheckpointMirror mirror(
      folder_, place_,
      {.interval = Milliseconds(1), .settled = std::chrono::hours(1), .most_held = std::chrono::hours(1), .say = {}});
  EXPECT_THAT(WaitForCount(1), ElementsAre(Pair("step-0/a", "0")));
  Write("step-2/a", "2");
  age("step-2/a");
  EXPECT_THAT(WaitForCount(2), ElementsAre(Pair("step-0/a", "0"), Pair("step-2/a", "2")));
  Write("step-1/deep/b", "whole");
  age("step-1/deep/b");
  EXPECT_THAT(WaitForCount(5), ElementsAre(Pair("step-0/a", "0"), Pair("step-1/a", "1"), Pair("step-1/deep/b", "whole"),
                                           Pair("step-2/a", "2"), Pair("tracker", "step-1")));
  EXPECT_TRUE(mirror.Finish({}).ok());
  EXPECT_EQ(There()["latest.millrace-link"], "step-1");
}

TEST_F(CheckpointMirrorTest, WhatIsWrittenAllTheTimeIsSentAllTheSame) {
  // Each was changed within `settled` whenever the mirror looks.
  CheckpointMirror mirror(folder_, place_,
                          {.interval = Milliseconds(1),
                           .settled = std::chrono::hours(1),
                           .most_held = Milliseconds(20),
                           .say = [](const std::string& text) { ADD_FAILURE() << text; }});
  std::ofstream log(temp_ / "train.log");
  const std::string large(9 << 20, 'x');  // more than is read at once
  const auto sent = [&](const std::string& name) {
    const absl::StatusOr<ObjectInfo> info = HeadBlocking(*place_.store, place_.Key(name));
    return info.ok() ? info->size : 0;
  };
  uint64_t last = 0;
  int newer = 0;
  for (int i = 0; i < 60'000 && (newer < 3 || sent("last.ckpt") == 0 || sent("latest.millrace-link") == 0); ++i) {
    log << "another line\n" << std::flush;
    Write("step/metrics", std::to_string(i));
    if (i % 50 == 0) Write("last.ckpt", large);
    std::filesystem::create_symlink(i % 2 == 0 ? "step" : "step/.", temp_ / "new");
    std::filesystem::rename(temp_ / "new", temp_ / "latest");
    if (const uint64_t now = sent("train.log"); now > last) {
      last = now;
      ++newer;
    }
    std::this_thread::sleep_for(Milliseconds(1));
  }
  EXPECT_EQ(newer, 3);
  EXPECT_EQ(sent("last.ckpt"), large.size());
  EXPECT_GT(sent("step/metrics"), 0u);
  EXPECT_TRUE(mirror.Finish({}).ok());
}

TEST_F(CheckpointMirrorTest, AHalfWrittenFileDoesNotReplaceAWholeOne) {
  const std::map<std::string, std::string> whole = {{"last.ckpt", std::string(2 << 20, 'x')},
                                                    {"step/last.ckpt", std::string(9 << 20, 'x')}};
  for (const auto& [name, bytes] : whole)
    ASSERT_TRUE(PutBlocking(*place_.store, place_.Key(name), AsBytes(bytes)).ok());
  for (const auto& [name, bytes] : whole) Write(name, "the first bytes of the next one");
  // Each was changed within `settled` whenever the mirror looks.
  CheckpointMirror mirror(folder_, place_,
                          {.interval = Milliseconds(1),
                           .settled = std::chrono::hours(1),
                           .most_held = Milliseconds(5),
                           .say = [](const std::string& text) { ADD_FAILURE() << text; }});
  const auto size = [&](const std::string& name) {
    const absl::StatusOr<ObjectInfo> info = HeadBlocking(*place_.store, place_.Key(name));
    return info.ok() ? info->size : 0;
  };
  const auto wait_for_rounds = [&] {  // in which all is sent as it is
    for (const std::string text : {"a", "ab", "abc", "abcd"}) {
      Write("metrics", text);
      Write("step/metrics", text);
      for (int i = 0; i < 60'000 && (size("metrics") != text.size() || size("step/metrics") != text.size()); ++i)
        std::this_thread::sleep_for(Milliseconds(1));
    }
  };
  wait_for_rounds();
  for (const auto& [name, bytes] : whole) EXPECT_EQ(size(name), bytes.size()) << name;
  // The next one is larger.
  for (const auto& [name, bytes] : whole) std::filesystem::resize_file(temp_ / name, 65 << 20);
  wait_for_rounds();
  for (const auto& [name, bytes] : whole) EXPECT_EQ(size(name), bytes.size()) << name;
  EXPECT_TRUE(mirror.Finish({}).ok());
  for (const auto& [name, bytes] : whole) EXPECT_EQ(size(name), 65u << 20) << name;
}

TEST_F(CheckpointMirrorTest, SmallFilesThatBecomeSmallerAreSent) {
  ASSERT_TRUE(PutBlocking(*place_.store, place_.Key("list"), AsBytes("a, b, c")).ok());
  Write("list", "a");
  CheckpointMirror mirror(
      folder_, place_,
      {.interval = Milliseconds(1), .settled = std::chrono::hours(1), .most_held = Milliseconds(5), .say = {}});
  for (int i = 0; i < 60'000 && There()["list"] != "a"; ++i) std::this_thread::sleep_for(Milliseconds(1));
  EXPECT_EQ(There()["list"], "a");
}

TEST_F(CheckpointMirrorTest, BringsWhatIsMissingAndKeepsWhatIsNewer) {
  for (const char* name : {"a", "b/c"})
    ASSERT_TRUE(PutBlocking(*place_.store, place_.Key(name), AsBytes("there")).ok());
  EXPECT_EQ(RestoreCheckpoints(place_, folder_, {})->objects, 2u);
  Write("a", "written here after it was sent");
  std::filesystem::last_write_time(temp_ / "a", std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  std::filesystem::remove(temp_ / "b/c");
  Write("same-size", "here");
  std::filesystem::last_write_time(temp_ / "same-size",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  ASSERT_TRUE(PutBlocking(*place_.store, place_.Key("same-size"), AsBytes("sent")).ok());
  EXPECT_EQ(RestoreCheckpoints(place_, folder_, {})->objects, 1u);
  std::string text;
  std::getline(std::ifstream(temp_ / "a"), text);
  EXPECT_EQ(text, "written here after it was sent");
  std::getline(std::ifstream(temp_ / "same-size"), text);
  EXPECT_EQ(text, "here");
  const absl::StatusOr<Location> empty = stores_.Open("mem://place/none/");
  EXPECT_EQ(RestoreCheckpoints(*empty, folder_, {})->objects, 0u);
}

}  // namespace
}  // namespace millrace
