#include "mount/delayed_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "store/testing/scripted_store.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class DelayedFilesTest : public ::testing::Test {
 protected:
  std::shared_ptr<WrittenFile> New(const std::string& key) { return std::make_shared<WrittenFile>(services_, key); }

  // Notes the keys of files as they come. The first `refused` tasks have to be tried again.
  DelayedFiles::Task Note(int refused = 0) {
    return [this, refused](const std::shared_ptr<WrittenFile>& file) {
      const std::lock_guard lock(mutex_);
      keys_.push_back(file->key());
      came_.notify_all();
      return keys_.size() > static_cast<size_t>(refused);
    };
  }
  std::vector<std::string> WaitFor(size_t count) {
    std::unique_lock lock(mutex_);
    came_.wait_for(lock, std::chrono::minutes(3), [&] { return keys_.size() >= count; });
    return keys_;
  }

  MemoryBudget memory_{64 << 20};
  ScriptedStore store_;
  const WrittenFile::Services services_{.store = store_, .memory = memory_};
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::string> keys_;
};

TEST_F(DelayedFilesTest, AFileIsCommittedAfterTheDelay) {
  DelayedFiles back(std::chrono::milliseconds(1), 8, Note());
  back.Add(New("a"));
  back.Add(New("b"));
  EXPECT_THAT(WaitFor(2), UnorderedElementsAre("a", "b"));
}

TEST_F(DelayedFilesTest, ACommitThatFailedIsTriedAgain) {
  DelayedFiles back(std::chrono::milliseconds(1), 8, Note(3));
  back.Add(New("a"));
  EXPECT_THAT(WaitFor(4), ElementsAre("a", "a", "a", "a"));
}

TEST_F(DelayedFilesTest, NoneBeginsAfterTheStop) {
  DelayedFiles back(std::chrono::hours(1), 8, Note());
  const auto file = New("a");
  back.Add(file);
  back.Stop();
  EXPECT_THAT(WaitFor(0), ElementsAre());
}

TEST_F(DelayedFilesTest, WhatWasRemovedIsLeftAlone) {
  DelayedFiles back(std::chrono::milliseconds(50), 1, Note());
  const auto file = New("a");
  back.Add(file);
  back.Remove(*file);
  back.Remove(*file);
  EXPECT_EQ(file.use_count(), 1);
  back.Add(New("b"));
  EXPECT_THAT(WaitFor(1), ElementsAre("b"));
}

// Else it would be held, with its disk space, for another delay after its close.
TEST_F(DelayedFilesTest, WhatWasRemovedWhileItsTaskRanIsNotTriedAgain) {
  const auto file = New("a");
  DelayedFiles* list = nullptr;
  DelayedFiles back(std::chrono::milliseconds(1), 1, [&](const std::shared_ptr<WrittenFile>& tried) {
    if (tried == file) list->Remove(*file);  // as another thread may
    return Note()(tried) && tried != file;
  });
  list = &back;
  back.Add(file);
  WaitFor(1);
  back.Add(New("b"));
  EXPECT_THAT(WaitFor(2), ElementsAre("a", "b"));
  back.Stop();
  EXPECT_EQ(file.use_count(), 1);
}

}  // namespace
}  // namespace millrace
