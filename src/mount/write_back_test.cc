#include "mount/write_back.h"

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

class WriteBackTest : public ::testing::Test {
 protected:
  std::shared_ptr<WrittenFile> New(const std::string& key) { return std::make_shared<WrittenFile>(services_, key); }

  // Notes the keys of files as they come. The first `refused` commits have to be tried again.
  WriteBack::Commit Note(int refused = 0) {
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

TEST_F(WriteBackTest, AFileIsCommittedAfterTheDelay) {
  WriteBack back(std::chrono::milliseconds(1), Note());
  back.Add(New("a"));
  back.Add(New("b"));
  EXPECT_THAT(WaitFor(2), UnorderedElementsAre("a", "b"));
}

TEST_F(WriteBackTest, ACommitThatFailedIsTriedAgain) {
  WriteBack back(std::chrono::milliseconds(1), Note(3));
  back.Add(New("a"));
  EXPECT_THAT(WaitFor(4), ElementsAre("a", "a", "a", "a"));
}

TEST_F(WriteBackTest, NoneBeginsAfterTheStop) {
  WriteBack back(std::chrono::hours(1), Note());
  const auto file = New("a");
  back.Add(file);
  back.Stop();
  EXPECT_THAT(WaitFor(0), ElementsAre());
}

}  // namespace
}  // namespace millrace
