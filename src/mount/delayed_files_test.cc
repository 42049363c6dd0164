#include "mount/delayed_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
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

TEST_F(DelayedFilesTest, AFileThatIsAddedAfterItsRemovalIsTriedAgainWhileTheOldTaskStillRuns) {
  const auto file = New("a");
  std::mutex mutex;
  std::condition_variable changed;
  int begun = 0;
  bool first_may_end = false;
  bool second_may_end = false;
  const auto wait = [&](std::unique_lock<std::mutex>& lock, auto is_true) {
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::minutes(3), is_true));
  };
  DelayedFiles back(std::chrono::milliseconds(1), 2, [&](const std::shared_ptr<WrittenFile>& /*tried*/) {
    std::unique_lock lock(mutex);
    const int number = ++begun;
    changed.notify_all();
    if (number == 1) wait(lock, [&] { return first_may_end; });
    if (number == 2) wait(lock, [&] { return second_may_end; });
    return number > 2;
  });
  std::unique_lock lock(mutex);
  back.Add(file);
  wait(lock, [&] { return begun == 1; });
  back.Remove(*file);
  back.Add(file);
  wait(lock, [&] { return begun == 2; });
  first_may_end = true;
  changed.notify_all();
  // The first run has ended when its reference is gone: the test and the second run hold the other two.
  while (file.use_count() > 2) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  second_may_end = true;
  changed.notify_all();
  wait(lock, [&] { return begun == 3; });
}

}  // namespace
}  // namespace millrace
