#include "mount/file_upload.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "mount/mount_errno.h"
#include "store/blocking.h"
#include "store/stream_writer.h"
#include "store/testing/scripted_store.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

Patience Long() {
  return {std::chrono::steady_clock::now() + std::chrono::minutes(5), {}};
}

std::string RandomText(size_t size) {
  Rng rng(size);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(rng.Below(256));
  return text;
}

class FileUploadTest : public ::testing::Test {
 protected:
  // Writes the text in writes of up to 300,000 bytes.
  static absl::Status WriteAll(FileUpload& upload, const std::string& text) {
    for (size_t at = 0; at < text.size();) {
      const std::string piece = text.substr(at, 1 + at % 300'000);
      ASSIGN_OR_RETURN(const size_t taken, upload.Write(at, AsBytes(piece), Long()));
      at += taken;
    }
    return absl::OkStatus();
  }
  std::string Stored() { return ReadAll(store_, "k", 1 << 30).value_or("(nothing)"); }

  MemoryBudget memory_{64 << 20};  // before the store, as what its requests hold of it is given back until that ends
  ScriptedStore store_;
};

TEST_F(FileUploadTest, FilesOfAnySizeAppearWholeAndAtTheEnd) {
  for (const size_t size : {0, 1, 64 << 10, (64 << 10) + 1, 200'000, 5'000'000}) {
    const std::string text = RandomText(size);
    {
      FileUpload upload(store_, memory_, "k", {});
      ASSERT_TRUE(WriteAll(upload, text).ok());
      EXPECT_EQ(upload.written(), size);
      EXPECT_EQ(Stored(), "(nothing)");
      const absl::StatusOr<ObjectInfo> info = upload.Finish(Long());
      ASSERT_TRUE(info.ok()) << info.status();
      EXPECT_EQ(info->etag, HeadBlocking(store_, "k")->etag);
      EXPECT_EQ(upload.Finish(Long())->etag, info->etag);
    }
    EXPECT_EQ(Stored(), text);
    EXPECT_EQ(memory_.used(), 0u);
    ASSERT_TRUE(DeleteBlocking(store_, "k").ok());
  }
}

// A part's memory stays as long as the one who keeps it needs it, and counts as held.
TEST_F(FileUploadTest, EachByteIsPassedToBeKeptOnceAndInOrder) {
  const std::string text = RandomText(30 << 20);
  FileUpload upload(store_, memory_, "k", {});
  std::mutex mutex;
  std::vector<std::function<void()>> done;
  uint64_t next = 0;
  const FileUpload::Keep keep = [&](FileUpload::Kept kept) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(kept.offset, next);
    EXPECT_TRUE(AsText(kept.bytes) == std::string_view(text).substr(kept.offset, kept.bytes.size()));
    next = kept.offset + kept.bytes.size();
    done.push_back(std::move(kept.done));
  };
  std::jthread disk([&](const std::stop_token& stop) {
    for (bool is_last = false; !is_last;) {
      is_last = stop.stop_requested();
      std::vector<std::function<void()>> now;
      {
        const std::lock_guard lock(mutex);
        now.swap(done);
      }
      for (const auto& call : now) call();
      std::this_thread::yield();
    }
  });
  for (size_t at = 0; at < text.size();) {
    const absl::StatusOr<size_t> taken = upload.Write(at, AsBytes(text.substr(at, 100'000)), Long(), keep);
    ASSERT_TRUE(taken.ok()) << taken.status();
    at += *taken;
    const ByteSpan rest = upload.Unkept();
    EXPECT_TRUE(AsText(rest) == std::string_view(text).substr(next, at - next));
  }
  upload.SetKept();
  EXPECT_TRUE(upload.Unkept().empty());
  ASSERT_TRUE(upload.Finish(Long()).ok());
  EXPECT_TRUE(Stored() == text);
}

// Only a disk that keeps up is written past the page cache: what is awaited goes the quick way.
TEST_F(FileUploadTest, WhatIsKeptIsAwaitedOnceItHoldsTheMemoryThatTheProgramNeeds) {
  FileUpload upload(store_, memory_, "k", {});
  std::vector<FileUpload::Kept> kept;
  const FileUpload::Keep keep = [&](FileUpload::Kept one) { kept.push_back(std::move(one)); };
  const uint64_t part = PartSize(1, store_.traits().pieces);
  const auto write = [&](uint64_t end) {
    for (uint64_t at = upload.written(); at < end; at = upload.written()) {
      const uint64_t take = std::min<uint64_t>(end - at, 10'000);
      ASSERT_TRUE(upload.Write(at, ByteSpan(std::vector<std::byte>(take)), Long(), keep).ok());
    }
  };
  const int held = PartsHeld(part);
  write(part + 1);
  EXPECT_FALSE(kept.front().is_awaited());
  write(static_cast<uint64_t>(held - 1) * part + 1);  // all but one are in the store, or on their way
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(3);
  while (!kept.front().is_awaited() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(kept.front().is_awaited());
  for (const FileUpload::Kept& one : kept) one.done();
  EXPECT_FALSE(kept.front().is_awaited());
}

TEST_F(FileUploadTest, AFileOfOnePartIsOnePut) {
  FileUpload upload(store_, memory_, "k", {});
  ASSERT_TRUE(WriteAll(upload, RandomText(64 << 10)).ok());
  ASSERT_TRUE(upload.Finish(Long()).ok());
  EXPECT_TRUE(store_.written().empty());
  EXPECT_EQ(store_.counters().put, 1u);
}

TEST_F(FileUploadTest, WhatIsOutOfOrderIsRefusedAndNothingAppears) {
  FileUpload upload(store_, memory_, "k", {});
  ASSERT_TRUE(WriteAll(upload, "0123456789").ok());
  EXPECT_EQ(ErrnoOf(upload.Write(4, AsBytes(std::string("x")), Long()).status()), EINVAL);
  // A program that does not look at the error closes the file all the same.
  EXPECT_EQ(ErrnoOf(upload.Finish(Long()).status()), EINVAL);
  EXPECT_EQ(Stored(), "(nothing)");
}

TEST_F(FileUploadTest, NothingIsWrittenAfterTheEnd) {
  FileUpload upload(store_, memory_, "k", {});
  ASSERT_TRUE(WriteAll(upload, "0123456789").ok());
  EXPECT_FALSE(upload.finishing());
  ASSERT_TRUE(upload.Finish(Long()).ok());
  EXPECT_TRUE(upload.finishing());
  EXPECT_EQ(ErrnoOf(upload.Write(10, AsBytes(std::string("x")), Long()).status()), EIO);
  EXPECT_EQ(Stored(), "0123456789");
}

TEST_F(FileUploadTest, AWriteDuringWhichAnotherThreadClosesIsRefused) {
  const std::string text = RandomText(300'000);
  FileUpload upload(store_, memory_, "k", {});
  absl::StatusOr<ObjectInfo> info = absl::UnknownError("not called");
  std::thread closing;
  store_.on_write = [&](size_t index) {  // with the lock released
    if (index == 0) {
      closing = std::thread([&] { info = upload.Finish(Long()); });
      while (!upload.finishing()) std::this_thread::yield();
    }
    return absl::OkStatus();
  };
  const absl::StatusOr<size_t> written = upload.Write(0, AsBytes(text), Long());
  ASSERT_TRUE(closing.joinable());
  closing.join();
  EXPECT_EQ(ErrnoOf(written.status()), EIO);
  ASSERT_TRUE(info.ok()) << info.status();
  // No byte is lost that a write did not report as refused.
  EXPECT_EQ(Stored(), text.substr(0, upload.written()));
}

TEST_F(FileUploadTest, APartThatFailsIsToldByLaterCallsAndNothingAppears) {
  store_.on_write = [](size_t index) { return index == 1 ? absl::PermissionDeniedError("no more") : absl::OkStatus(); };
  FileUpload upload(store_, memory_, "k", {});
  const absl::Status written = WriteAll(upload, RandomText(5'000'000));
  if (!written.ok()) {
    EXPECT_EQ(ErrnoOf(written), EACCES);
  }
  EXPECT_EQ(ErrnoOf(upload.Finish(Long()).status()), EACCES);
  EXPECT_EQ(Stored(), "(nothing)");
}

TEST_F(FileUploadTest, ANewFileReplacesNothing) {
  ASSERT_TRUE(PutBlocking(store_, "k", AsBytes(std::string("there"))).ok());
  PutOptions options;
  options.only_if_absent = true;
  FileUpload upload(store_, memory_, "k", options);
  ASSERT_TRUE(WriteAll(upload, "new").ok());
  EXPECT_EQ(ErrnoOf(upload.Finish(Long()).status()), EEXIST);
  EXPECT_EQ(Stored(), "there");
}

TEST_F(FileUploadTest, AnInterruptedWaitHasNoConsequence) {
  const std::string text = RandomText(300'000);
  FileUpload upload(store_, memory_, "k", {});
  ASSERT_TRUE(WriteAll(upload, text).ok());
  // Whichever wait it is that is interrupted: the next call continues.
  std::atomic<bool> interrupted{true};
  const Patience none{std::chrono::steady_clock::now() + std::chrono::minutes(5), [&] { return interrupted.load(); }};
  const absl::StatusOr<ObjectInfo> first = upload.Finish(none);
  if (!first.ok()) {
    EXPECT_EQ(ErrnoOf(first.status()), EINTR);
  }
  ASSERT_TRUE(upload.Finish(Long()).ok());
  EXPECT_EQ(Stored(), text);
}

TEST_F(FileUploadTest, WithoutMemoryThereIsAnError) {
  MemoryBudget small(100'000);
  FileUpload upload(store_, small, "k", {});
  // The parts of this store grow from 64 KiB, one of which fits at a time: all of them go out one after the other.
  ASSERT_TRUE(WriteAll(upload, RandomText(1'000'000)).ok());
  ASSERT_TRUE(upload.Finish(Long()).ok());
  MemoryBudget none(1000);
  FileUpload refused(store_, none, "k2", {});
  EXPECT_EQ(ErrnoOf(refused.Write(0, AsBytes(std::string("x")), Long()).status()), ENOMEM);
  EXPECT_EQ(ErrnoOf(refused.Finish(Long()).status()), ENOMEM);
}

TEST_F(FileUploadTest, WithoutMemoryOthersAreAskedForSome) {
  constexpr uint64_t kBytes = 200'000;
  MemoryBudget memory(kBytes);
  std::vector<Reservation> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(memory.TryReserve(kBytes / 4));
  const auto make_room = [&](uint64_t /*bytes*/) {
    if (blocks.empty()) return uint64_t{0};
    blocks.pop_back();
    return kBytes / 4;
  };
  const std::string text = RandomText(1'000'000);
  FileUpload upload(store_, memory, "k", {}, make_room);
  ASSERT_TRUE(WriteAll(upload, text).ok());
  ASSERT_TRUE(upload.Finish(Long()).ok());
  EXPECT_EQ(Stored(), text);
  // If nobody gives memory, it is an error as before.
  blocks.clear();
  const Reservation rest = memory.TryReserve(kBytes);
  ASSERT_TRUE(rest);
  FileUpload refused(store_, memory, "k2", {}, make_room);
  EXPECT_EQ(ErrnoOf(refused.Write(0, AsBytes(std::string("x")), Long()).status()), ENOMEM);
}

/// Has a file that a program writes in any order, as a staging file has it.
class StagedUploadTest : public FileUploadTest {
 protected:
  FileUpload::Load Load() {
    return [this](uint64_t offset, MutableByteSpan into) {
      if (offset + into.size() > text_.size()) return absl::OutOfRangeError("behind the end");
      std::memcpy(into.data(), text_.data() + offset, into.size());
      return absl::OkStatus();
    };
  }
  void Patch(FileUpload& upload, uint64_t offset, const std::string& text) {
    text_.replace(offset, text.size(), text);
    upload.Patch(offset, AsBytes(text));
  }

  std::string text_;
};

TEST_F(StagedUploadTest, WhatChangesAfterItWasTakenIsSentAgain) {
  text_ = RandomText(2'000'000);
  FileUpload upload(store_, memory_, "k", {});
  ASSERT_TRUE(WriteAll(upload, text_).ok());
  const size_t parts = store_.written().size();
  ASSERT_GT(parts, 3u);
  EXPECT_EQ(upload.SentPart(0), (ByteRange{0, 64 << 10}));
  EXPECT_EQ(upload.SentPart(1'999'999), ByteRange());
  Patch(upload, 10, "head");                    // of the first part
  Patch(upload, (64 << 10) * 2 - 2, "across");  // of two parts
  Patch(upload, text_.size() - 4, "tail");      // of the one that is not sent
  for (const ByteRange& arrived : upload.ArrivedParts()) EXPECT_GE(arrived.offset, uint64_t{64 << 10} * 3);
  text_ += RandomText(100'000);  // behind what was taken
  ASSERT_TRUE(upload.Finish(text_.size(), Load(), Long()).ok());
  EXPECT_EQ(Stored(), text_);
  const std::vector<size_t> written = store_.written();
  for (size_t index = 0; index <= *std::max_element(written.begin(), written.end()); ++index) {
    EXPECT_EQ(std::count(written.begin(), written.end(), index), index < 3 ? 2 : 1) << index;
  }
}

TEST_F(StagedUploadTest, NothingThatWasTakenIsNeededForAFileThatIsLoaded) {
  text_ = RandomText(1'000'000);
  FileUpload upload(store_, memory_, "k", {});
  ASSERT_TRUE(upload.Finish(text_.size(), Load(), Long()).ok());
  EXPECT_EQ(Stored(), text_);
  FileUpload failing(store_, memory_, "k2", {});
  EXPECT_EQ(ErrnoOf(failing.Finish(text_.size() + 1, Load(), Long()).status()), ESTALE);
}

TEST_F(StagedUploadTest, PiecesAreSent) {
  text_ = RandomText(600'000);
  const std::vector<WrittenContent::Piece> pieces = {
      {{0, 250'000}, false}, {{250'000, 100'000}, false}, {{350'000, 250'000}, false}};
  FileUpload upload(store_, memory_, "k", {});
  ASSERT_TRUE(upload.FinishPieces(pieces, Load(), Long()).ok());
  EXPECT_EQ(Stored(), text_);
  EXPECT_EQ(store_.written().size(), 3u);
}

TEST_F(StagedUploadTest, PiecesAreSentAndCopied) {
  text_ = RandomText(1'000'000);
  ASSERT_TRUE(PutBlocking(store_, "k", AsBytes(text_)).ok());
  const ObjectInfo base = *HeadBlocking(store_, "k");
  text_.replace(300'000, 4, "here");
  text_ += "tail";
  PutOptions options;
  options.if_match = base.etag;
  const std::vector<WrittenContent::Piece> pieces = {
      {{0, 250'000}, true}, {{250'000, 100'000}, false}, {{350'000, 650'000}, true}, {{1'000'000, 4}, false}};
  {
    FileUpload upload(store_, memory_, "k", options);
    ASSERT_TRUE(upload.CopiesPieces());
    ASSERT_TRUE(upload.FinishCopied(pieces, base, Load(), Long()).ok());
  }
  EXPECT_EQ(Stored(), text_);
  EXPECT_THAT(store_.copied(), ElementsAre(ByteRange{0, 250'000}, ByteRange{350'000, 650'000}));
  EXPECT_THAT(store_.written(), ElementsAre(1, 3));
  // The base is another one by now.
  FileUpload upload(store_, memory_, "k", options);
  EXPECT_EQ(ErrnoOf(upload.FinishCopied(pieces, base, Load(), Long()).status()), ESTALE);
  EXPECT_EQ(Stored(), text_);
}

TEST_F(StagedUploadTest, OnePieceIsAPut) {
  text_ = "text";
  FileUpload upload(store_, memory_, "k", {});
  ASSERT_TRUE(upload.FinishPieces({{{0, 4}, false}}, Load(), Long()).ok());
  EXPECT_TRUE(store_.written().empty());
  EXPECT_EQ(Stored(), "text");
  FileUpload empty(store_, memory_, "k", {});
  ASSERT_TRUE(empty.FinishPieces({}, Load(), Long()).ok());
  EXPECT_EQ(Stored(), "");
}

TEST_F(FileUploadTest, AStoreThatIsAwayIsAnErrorAfterTheDeadline) {
  class Away final : public ForwardingStore {
   public:
    ~Away() override { Close(); }
    void Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) override {
      if (key != "away") return below().Put(std::move(key), body, std::move(options), std::move(done));
      // Answers when it is stopped, and not before.
      auto shared = std::make_shared<PutCallback>(std::move(done));
      answering_ = std::jthread([stop = options.stop, shared] {
        while (!stop.stop_requested()) std::this_thread::yield();
        (*shared)(absl::CancelledError("stopped"));
      });
    }

   private:
    std::jthread answering_;
  };
  Away away;
  FileUpload upload(away, memory_, "away", {});
  ASSERT_TRUE(WriteAll(upload, "text").ok());
  const absl::StatusOr<ObjectInfo> info =
      upload.Finish({std::chrono::steady_clock::now() + std::chrono::milliseconds(50), {}});
  EXPECT_EQ(ErrnoOf(info.status()), EIO);
}

}  // namespace
}  // namespace millrace
