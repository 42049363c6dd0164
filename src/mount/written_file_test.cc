#include "mount/written_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/rng.h"
#include "mount/mount_errno.h"
#include "store/blocking.h"
#include "store/testing/scripted_store.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

using ::testing::IsEmpty;

Patience Patient() {
  return {std::chrono::steady_clock::now() + std::chrono::minutes(5), {}};
}

std::string TextOf(Rng& rng, uint64_t bytes) {
  std::string text(bytes, ' ');
  for (char& c : text) c = static_cast<char>('a' + rng.Below(26));
  return text;
}

class WrittenFileTest : public ::testing::Test {
 protected:
  explicit WrittenFileTest(uint64_t staging_bytes = 64 << 20)
      : staging_(*StagingFolder::Open(folder_.path(), staging_bytes)) {}

  void Use(StagingFolder* staging) {
    services_ = std::make_unique<WrittenFile::Services>(WrittenFile::Services{
        .store = store_, .memory = memory_, .staging = staging, .open_base = [this](const Node& node) {
          return std::make_unique<ReadWindow>(ReadWindow::Shared{store_, memory_, tier_, around_, room_}, node);
        }});
  }
  void SetUp() override { Use(staging_.get()); }

  std::unique_ptr<WrittenFile> New() { return std::make_unique<WrittenFile>(*services_, "k"); }
  std::unique_ptr<WrittenFile> Existing() {
    const ObjectInfo info = *HeadBlocking(store_, "k");
    return std::make_unique<WrittenFile>(*services_, Node{.key = "k", .size = info.size, .etag = info.etag});
  }
  void Put(const std::string& text) { ASSERT_TRUE(PutBlocking(store_, "k", AsBytes(text)).ok()); }
  std::string Stored() { return ReadAll(store_, "k", 1 << 30).value_or("(nothing)"); }

  static int Write(WrittenFile& file, uint64_t offset, const std::string& text) {
    for (size_t at = 0; at < text.size();) {
      const ByteSpan bytes = AsBytes(text).subspan(at);
      const absl::StatusOr<size_t> taken =
          file.Write(offset + at, bytes.first(std::min<size_t>(bytes.size(), 40'000)), Patient());
      if (!taken.ok()) return ErrnoOf(taken.status());
      at += *taken;
    }
    return 0;
  }
  static std::string Read(WrittenFile& file, uint64_t offset = 0, size_t bytes = 1 << 26) {
    const absl::StatusOr<FileBytes> read = file.Read(offset, bytes, Patient());
    if (!read.ok()) return fmt::format("errno {}", ErrnoOf(read.status()));
    std::string text;
    for (const ByteSpan part : read->parts) text += AsText(part);
    return text;
  }
  static int Commit(WrittenFile& file) {
    const absl::Status committed = file.Commit(Patient());
    return committed.ok() ? 0 : ErrnoOf(committed);
  }
  std::vector<LeftFile> LeftAfterTheMount() {
    staging_.reset();
    return *StagingFolder::ListLeft(folder_.path());
  }

  TempFolder folder_;
  MemoryBudget memory_{64 << 20};  // before the store, as what its requests hold of it is given back until that ends
  ScriptedStore store_;
  BlockTier tier_{store_, memory_, 1 << 20};
  BlockTier around_{store_, memory_, 1 << 20};
  MemoryBudget room_{1 << 20};
  std::unique_ptr<StagingFolder> staging_;
  std::unique_ptr<WrittenFile::Services> services_;
};

// The disk takes no more of a file that is written in one go: it is a stream then, and what is lost is said.
TEST_F(WrittenFileTest, ADiskThatFailsMeanwhileLeavesTheStream) {
  Rng rng(2);
  const std::string text = TextOf(rng, 20 << 20);
  const auto file = New();
  ASSERT_EQ(Write(*file, 0, text.substr(0, 100'000)), 0);
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 9 << 20, before.rlim_max };
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_EQ(Write(*file, 100'000, text.substr(100'000)), 0);
  EXPECT_EQ(Read(*file, 0, 1000), text.substr(0, 1000));
  EXPECT_EQ(Read(*file, 19 << 20, 1000), fmt::format("errno {}", ENOSPC));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_EQ(Commit(*file), 0);
  EXPECT_TRUE(Stored() == text);
}

TEST_F(WrittenFileTest, AnAppendToALargeObjectReadsNothingOfIt) {
  Rng rng(1);
  std::string text = TextOf(rng, 12 << 20);
  Put(text);
  const auto file = Existing();
  ASSERT_EQ(Write(*file, text.size(), "tail"), 0);
  ASSERT_EQ(Commit(*file), 0);
  text += "tail";
  EXPECT_TRUE(Stored() == text);
  EXPECT_EQ(store_.copied().size(), 1u);
  EXPECT_EQ(store_.gets().size(), 1u);  // Stored's own
  // A change in the middle: what lies around it is copied.
  ASSERT_EQ(Write(*file, 6 << 20, "middle"), 0);
  ASSERT_EQ(Commit(*file), 0);
  text.replace(6 << 20, 6, "middle");
  EXPECT_TRUE(Stored() == text);
  EXPECT_EQ(store_.copied().size(), 3u);
  EXPECT_EQ(store_.gets().size(), 2u);
}

TEST_F(WrittenFileTest, AStoreThatCopiesNothingIsSentAll) {
  store_.copies = false;
  Rng rng(1);
  std::string text = TextOf(rng, 6 << 20);
  Put(text);
  const auto file = Existing();
  ASSERT_EQ(Write(*file, text.size(), "tail"), 0);
  ASSERT_EQ(Commit(*file), 0);
  EXPECT_EQ(store_.copied().size(), 1u);  // it was asked to
  EXPECT_TRUE(Stored() == text + "tail");
}

TEST_F(WrittenFileTest, AnAppendToAnObjectThatWasReplacedIsRefused) {
  Rng rng(1);
  Put(TextOf(rng, 6 << 20));
  const auto file = Existing();
  ASSERT_EQ(Write(*file, 6 << 20, "tail"), 0);
  Put("another");
  EXPECT_EQ(Commit(*file), ESTALE);
  EXPECT_EQ(Stored(), "another");
}

TEST_F(WrittenFileTest, AnyOrderOfCallsGivesWhatADiskGives) {
  // The parts of this store are 64 KiB, so all of this goes through streams, parts that are sent again, and commits.
  for (const bool is_new : {true, false}) {
    Rng rng(is_new);
    std::string model;
    if (!is_new) Put(model = TextOf(rng, 300'000));
    const auto file = is_new ? New() : Existing();
    for (int step = 0; step < 500; ++step) {
      const uint64_t at = rng.Below(2) == 0 ? model.size() : rng.Below(500'000);
      switch (rng.Below(12)) {
        case 0: {
          const uint64_t size = rng.Below(4) == 0 ? 0 : rng.Below(500'000);
          ASSERT_TRUE(file->Truncate(size, Patient()).ok());
          model.resize(size);
          break;
        }
        case 1:
          ASSERT_EQ(Commit(*file), 0) << step;
          ASSERT_FALSE(file->changed());
          ASSERT_TRUE(Stored() == model) << step;
          break;
        case 2: {
          const ByteRange range{at, rng.Below(100'000)};
          ASSERT_TRUE(file->Clear(range, Patient()).ok());
          for (uint64_t i = at; i < std::min<uint64_t>(range.end(), model.size()); ++i) model[i] = '\0';
          break;
        }
        case 3:
          ASSERT_TRUE(file->Sync(Patient()).ok());
          break;
        case 4:
        case 5: {
          const size_t bytes = rng.Below(200'000);
          ASSERT_TRUE(Read(*file, at, bytes) == (at < model.size() ? model.substr(at, bytes) : "")) << step;
          break;
        }
        default: {
          const std::string text = TextOf(rng, 1 + rng.Below(100'000));
          if (at > 1'000'000) break;
          ASSERT_EQ(Write(*file, at, text), 0) << step;
          if (model.size() < at) model.resize(at);
          model.replace(at, text.size(), text);
        }
      }
      ASSERT_EQ(file->size(), model.size());
    }
    ASSERT_TRUE(Read(*file) == model);
    ASSERT_EQ(Commit(*file), 0);
    ASSERT_TRUE(Stored() == model);
    ASSERT_TRUE(DeleteBlocking(store_, "k").ok());
  }
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): the analyzer does not see that the file is destroyed

TEST_F(WrittenFileTest, AFileThatIsWrittenFrontToBackIsSentMeanwhile) {
  Rng rng(1);
  const std::string text = TextOf(rng, 1'000'000);
  const auto file = New();
  ASSERT_EQ(Write(*file, 0, text), 0);
  EXPECT_GT(store_.written().size(), 5u);
  EXPECT_EQ(Stored(), "(nothing)");
  EXPECT_TRUE(Read(*file, 500'000, 10) == text.substr(500'000, 10));
  ASSERT_EQ(Write(*file, 0, "head"), 0);
  ASSERT_EQ(Commit(*file), 0);
  EXPECT_TRUE(Stored() == "head" + text.substr(4));
}

TEST_F(WrittenFileTest, NothingIsPublishedBeforeTheCommit) {
  Put("0123456789");
  const auto file = Existing();
  EXPECT_FALSE(file->changed());
  ASSERT_EQ(Write(*file, 3, "abc"), 0);
  EXPECT_TRUE(file->changed());
  EXPECT_EQ(Read(*file), "012abc6789");
  EXPECT_EQ(Stored(), "0123456789");
  ASSERT_EQ(Commit(*file), 0);
  EXPECT_EQ(Stored(), "012abc6789");
  const uint64_t puts = store_.counters().put;
  ASSERT_EQ(Commit(*file), 0);  // there is nothing to commit
  EXPECT_EQ(store_.counters().put, puts);
}

TEST_F(WrittenFileTest, ANewerObjectIsNotReplacedAndTheBytesStay) {
  for (const bool is_new : {true, false}) {
    if (!is_new) Put("old");
    auto file = is_new ? New() : Existing();
    ASSERT_EQ(Write(*file, 0, "mine"), 0);
    Put("theirs");
    EXPECT_EQ(Commit(*file), ESTALE);
    EXPECT_TRUE(file->ended());
    EXPECT_EQ(Commit(*file), ESTALE);
    EXPECT_EQ(Write(*file, 0, "x"), ESTALE);
    EXPECT_EQ(Read(*file), "mine");  // by programs that have it open
    EXPECT_EQ(Stored(), "theirs");
    ASSERT_TRUE(DeleteBlocking(store_, "k").ok());
  }
  const std::vector<LeftFile> left = LeftAfterTheMount();
  ASSERT_EQ(left.size(), 2u);
  for (const LeftFile& file : left) {
    EXPECT_EQ(file.record.uri, store_.Uri("k"));
    EXPECT_EQ(file.record.size, 4u);
    EXPECT_TRUE(file.is_whole);
    EXPECT_NE(file.record.why, "");
  }
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): the analyzer does not see that the file is destroyed

TEST_F(WrittenFileTest, AnObjectThatWentIsNotMadeAgain) {
  Put("old");
  const auto file = Existing();
  ASSERT_EQ(Write(*file, 0, "new"), 0);
  ASSERT_TRUE(DeleteBlocking(store_, "k").ok());
  EXPECT_EQ(Commit(*file), ESTALE);
  EXPECT_EQ(Stored(), "(nothing)");
}

TEST_F(WrittenFileTest, ACommitWhoseAnswerWasLostIsNoOtherPrograms) {
  const auto file = New();
  ASSERT_EQ(Write(*file, 0, "mine"), 0);
  Put("mine");  // as the first request did, to which no answer came
  EXPECT_EQ(Commit(*file), 0);
  ASSERT_EQ(Write(*file, 4, " too"), 0);
  EXPECT_EQ(Commit(*file), 0);
  EXPECT_EQ(Stored(), "mine too");
}

TEST_F(WrittenFileTest, AStoreThatFailsIsAskedAgainByTheNextCommit) {
  int failures = 0;
  store_.on_write = [&](size_t) { return failures-- > 0 ? absl::UnavailableError("away") : absl::OkStatus(); };
  Rng rng(1);
  const std::string text = TextOf(rng, 20'000'000);
  failures = 1;  // of a part that is sent early
  const auto file = New();
  ASSERT_EQ(Write(*file, 0, text), 0);
  EXPECT_TRUE(Read(*file) == text);
  failures = 1;  // of the commit
  EXPECT_EQ(Commit(*file), EIO);
  EXPECT_FALSE(file->ended());
  EXPECT_EQ(Commit(*file), 0);
  EXPECT_TRUE(Stored() == text);
}

TEST_F(WrittenFileTest, FsyncPublishesOnlyWhatIsAppendedTo) {
  const auto file = New();
  EXPECT_EQ(file->node().key, "k");
  ASSERT_EQ(Write(*file, 0, "one"), 0);
  EXPECT_FALSE(file->outlives_writer());
  ASSERT_TRUE(file->Sync(Patient()).ok());
  EXPECT_TRUE(file->outlives_writer());
  EXPECT_EQ(Stored(), "(nothing)");
  file->set_appended();
  ASSERT_TRUE(file->Sync(Patient()).ok());
  EXPECT_EQ(Stored(), "one");
  EXPECT_FALSE(file->changed());
}

TEST_F(WrittenFileTest, WhatHasNoNameIsNotCommittedAndCanBeRead) {
  Put("0123456789");
  auto file = Existing();
  ASSERT_EQ(Write(*file, 2, "ab"), 0);
  ASSERT_TRUE(file->Fetch(Patient()).ok());
  const absl::StatusOr<std::optional<Node>> there = file->Unlink(Patient());
  ASSERT_TRUE(there.ok() && *there);
  EXPECT_EQ((*there)->etag, HeadBlocking(store_, "k")->etag);
  ASSERT_TRUE(DeleteBlocking(store_, "k").ok());
  EXPECT_EQ(Read(*file), "01ab456789");
  ASSERT_EQ(Write(*file, 9, "xyz"), 0);
  EXPECT_EQ(Read(*file), "01ab45678xyz");
  EXPECT_FALSE(file->changed());
  EXPECT_EQ(Commit(*file), 0);
  EXPECT_EQ(Stored(), "(nothing)");
  file.reset();
  EXPECT_THAT(LeftAfterTheMount(), IsEmpty());
}

TEST_F(WrittenFileTest, ARenamedFileIsCommittedUnderItsOtherName) {
  Put("one");
  const auto file = Existing();
  ASSERT_TRUE(PutBlocking(store_, "k2", AsBytes(std::string("one"))).ok());
  const ObjectInfo now = *HeadBlocking(store_, "k2");
  file->Rename({.key = "k2", .size = 3, .etag = now.etag}, Patient());
  ASSERT_EQ(Write(*file, 3, " two"), 0);
  ASSERT_EQ(Commit(*file), 0);
  EXPECT_EQ(ReadAll(store_, "k2", 100).value_or(""), "one two");
  EXPECT_EQ(Stored(), "one");
}

/// Has a store that takes no further part until it is let.
class HangingTest : public WrittenFileTest {
 protected:
  void SetUp() override {
    WrittenFileTest::SetUp();
    store_.on_write = [this](size_t index) {
      std::unique_lock lock(mutex_);
      if (index < hangs_at_) return absl::OkStatus();
      hangs_ = true;
      changed_.notify_all();
      changed_.wait_for(lock, std::chrono::minutes(3), [this] { return let_; });
      return absl::OkStatus();
    };
  }
  void AwaitHanging() {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::minutes(3), [this] { return hangs_; }));
  }
  void Let() {
    const std::lock_guard lock(mutex_);
    let_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t hangs_at_ = 6;
  bool hangs_ = false;
  bool let_ = false;
};

TEST_F(HangingTest, ReadersOfWhatIsThereDoNotWaitForTheWriter) {
  Rng rng(1);
  const std::string text = TextOf(rng, 1'000'000);
  const auto file = New();
  std::jthread writer([&] { EXPECT_EQ(Write(*file, 0, text), 0); });
  AwaitHanging();
  for (const uint64_t offset : {0, 100'000, 200'000}) {
    absl::StatusOr<FileBytes> read = absl::UnknownError("not asked");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (!read.ok() && std::chrono::steady_clock::now() < deadline) {
      read = file->Read(offset, 100'000, {std::chrono::steady_clock::now(), {}});
    }
    ASSERT_TRUE(read.ok()) << offset << ": " << read.status();
    std::string got;
    for (const ByteSpan part : read->parts) got += AsText(part);
    EXPECT_TRUE(got == text.substr(offset, 100'000)) << offset;
  }
  Let();
  writer.join();
  EXPECT_TRUE(Read(*file) == text);
}

TEST_F(HangingTest, ARenameMeanwhileLosesNothing) {
  Rng rng(1);
  const std::string text = TextOf(rng, 1'000'000);
  Put("");
  ASSERT_TRUE(PutBlocking(store_, "k2", {}).ok());
  const auto file = Existing();
  std::jthread writer([&] { EXPECT_EQ(Write(*file, 0, text), 0); });
  AwaitHanging();
  file->Rename({.key = "k2", .size = 0, .etag = HeadBlocking(store_, "k2")->etag},
               {std::chrono::steady_clock::now(), {}});
  EXPECT_EQ(file->key(), "k2");
  EXPECT_EQ(file->node().key, "k2");
  Let();
  writer.join();
  EXPECT_TRUE(Read(*file) == text);
  ASSERT_EQ(Commit(*file), 0);
  EXPECT_TRUE(ReadAll(store_, "k2", 1 << 30).value_or("") == text);
  EXPECT_EQ(Stored(), "");
}

TEST_F(HangingTest, ARenameDuringACommitIsCommittedUnderItsOtherName) {
  Rng rng(1);
  const std::string text = TextOf(rng, 20'000'000);
  hangs_at_ = 0;
  Put("");
  ASSERT_TRUE(PutBlocking(store_, "k2", {}).ok());
  const auto file = Existing();
  ASSERT_EQ(Write(*file, 1, text), 0);  // not as a stream: all of it is sent by the commit
  std::jthread closer([&] { EXPECT_EQ(Commit(*file), 0); });
  AwaitHanging();
  ASSERT_TRUE(DeleteBlocking(store_, "k").ok());
  file->Rename({.key = "k2", .size = 0, .etag = HeadBlocking(store_, "k2")->etag},
               {std::chrono::steady_clock::now(), {}});
  Let();
  closer.join();
  EXPECT_FALSE(file->changed());
  EXPECT_TRUE(ReadAll(store_, "k2", 1 << 30).value_or("") == std::string(1, '\0') + text);
  EXPECT_EQ(Stored(), "(nothing)");
}

TEST_F(WrittenFileTest, WhatAProgramHasWrittenLastComesToTheDiskIfItPauses) {
  Rng rng(1);
  std::string text;
  auto file = New();
  // Pauses of a busy machine may be longer than those of a fast writer.
  while (!file->unflushed() && text.size() < 16 << 20) {
    const std::string more = TextOf(rng, 10'000);
    ASSERT_EQ(Write(*file, text.size(), more), 0);
    text += more;
  }
  ASSERT_TRUE(file->unflushed());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(3);
  while (!file->FlushIdle() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_FALSE(file->unflushed());
  file->Park("the mount ended");
  file.reset();
  const std::vector<LeftFile> left = LeftAfterTheMount();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].record.size, text.size());
}

TEST_F(WrittenFileTest, WhatAMountLeavesOpenIsKept) {
  const auto file = New();
  ASSERT_EQ(Write(*file, 0, "half"), 0);
  file->Park("the mount ended");
  file->DropStaged();
  EXPECT_EQ(Write(*file, 4, "x"), EIO);
  EXPECT_FALSE(file->changed());
  const std::vector<LeftFile> left = LeftAfterTheMount();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].record.why, "the mount ended");
}

TEST_F(WrittenFileTest, WhatWasAbandonedIsGone) {
  const auto file = New();
  ASSERT_EQ(Write(*file, 0, "half"), 0);
  file->Abandon();
  EXPECT_EQ(Commit(*file), EIO);
  EXPECT_EQ(Write(*file, 4, "x"), EIO);
  EXPECT_EQ(Stored(), "(nothing)");
}

/// Has room for two parts and a half.
class FullStagingTest : public WrittenFileTest {
 protected:
  FullStagingTest() : WrittenFileTest(160 << 10) {}
};

TEST_F(FullStagingTest, AFileThatIsLargerThanTheStagingIsAStream) {
  Rng rng(1);
  std::string text = TextOf(rng, 2'000'000);
  const auto file = New();
  ASSERT_EQ(Write(*file, 0, text), 0);
  EXPECT_LE(staging_->used_bytes(), uint64_t{160} << 10);
  EXPECT_EQ(Read(*file, 1'000'000, 10), fmt::format("errno {}", ENOSPC));
  EXPECT_EQ(Write(*file, 1'000'000, "x"), ENOSPC);
  // The beginning is kept: a header is written again at the end.
  ASSERT_EQ(Write(*file, 0, "header"), 0);
  text.replace(0, 6, "header");
  EXPECT_EQ(Read(*file, 0, 6), "header");
  ASSERT_EQ(Write(*file, text.size(), "tail"), 0);
  ASSERT_EQ(Commit(*file), 0);
  EXPECT_TRUE(Stored() == text + "tail");
  EXPECT_TRUE(Read(*file, 1'000'000, 10) == text.substr(1'000'000, 10));  // of the version that the store has now
  ASSERT_EQ(Write(*file, 1'000'000, "y"), 0);
  ASSERT_EQ(Commit(*file), 0);
  text[1'000'000] = 'y';
  EXPECT_TRUE(Stored() == text + "tail");
}

TEST_F(FullStagingTest, FsyncPublishesWhatIsNotOnTheDisk) {
  Rng rng(1);
  const std::string text = TextOf(rng, 2'000'000);
  const auto file = New();
  ASSERT_EQ(Write(*file, 0, text), 0);
  ASSERT_TRUE(file->Sync(Patient()).ok());
  EXPECT_TRUE(Stored() == text);
}

TEST_F(FullStagingTest, ChangesThatHaveNoRoomAreRefusedAndTheObjectStays) {
  Rng rng(1);
  const std::string text = TextOf(rng, 1'000'000);
  Put(text);
  const auto file = Existing();
  ASSERT_EQ(Write(*file, 10, "x"), 0);
  EXPECT_EQ(Write(*file, 0, TextOf(rng, 500'000)), ENOSPC);
  EXPECT_TRUE(Stored() == text);
  ASSERT_TRUE(file->Truncate(0, Patient()).ok());  // gives its room back
  ASSERT_EQ(Write(*file, 0, text + text), 0);
  ASSERT_EQ(Commit(*file), 0);
  EXPECT_TRUE(Stored() == text + text);
}

/// With --no-staging.
class StreamTest : public WrittenFileTest {
 protected:
  void SetUp() override { Use(nullptr); }
};

TEST_F(StreamTest, AFileIsWrittenToItsEndAndThatIsAll) {
  const auto file = New();
  ASSERT_EQ(Write(*file, 0, "text"), 0);
  EXPECT_EQ(Read(*file), fmt::format("errno {}", EBADF));
  EXPECT_EQ(ErrnoOf(file->Truncate(10, Patient())), EOPNOTSUPP);
  ASSERT_EQ(Commit(*file), 0);
  EXPECT_TRUE(file->ended());
  EXPECT_EQ(Commit(*file), 0);
  EXPECT_EQ(Write(*file, 4, "x"), EIO);
  EXPECT_EQ(Stored(), "text");
}

TEST_F(StreamTest, AWriteElsewhereEndsTheFile) {
  const auto file = New();
  ASSERT_EQ(Write(*file, 0, "text"), 0);
  EXPECT_EQ(Write(*file, 2, "x"), EINVAL);
  EXPECT_EQ(Commit(*file), EINVAL);
  EXPECT_EQ(Stored(), "(nothing)");
}

TEST_F(StreamTest, AnObjectIsReplacedAsAWhole) {
  Put("");
  const auto file = Existing();
  ASSERT_TRUE(file->Truncate(0, Patient()).ok());
  EXPECT_TRUE(file->changed());
  ASSERT_EQ(Write(*file, 0, "new"), 0);
  ASSERT_EQ(Commit(*file), 0);
  EXPECT_EQ(Stored(), "new");
  Put("theirs");
  EXPECT_TRUE(file->ended());
}

}  // namespace
}  // namespace millrace
