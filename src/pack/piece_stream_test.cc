#include "pack/piece_stream.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "store/blocking.h"
#include "store/memory_store.h"
#include "store/testing/scripted_store.h"

namespace millrace {
namespace {

class PieceStreamTest : public ::testing::Test {
 protected:
  static std::string Text(size_t size) {
    Rng rng(size);
    std::string text(size, '\0');
    for (char& c : text) c = static_cast<char>(rng.Next());
    return text;
  }
  absl::StatusOr<std::unique_ptr<PieceStream>> Open(uint64_t bytes) {
    return PieceStream::Open(store_, "k", bytes, memory_, {});
  }

  MemoryBudget memory_{1 << 20};  // pieces of 64 KiB
  MemoryStore store_{"m"};
};

TEST_F(PieceStreamTest, SizesAroundPieces) {
  for (const size_t size : {1, 65'535, 65'536, 65'537, 1'000'000, 3'000'000}) {
    const std::string text = Text(size);
    const auto stream = Open(size);
    ASSERT_TRUE(stream.ok()) << stream.status();
    Rng rng(1);
    for (size_t at = 0; at < size;) {
      const size_t length = std::min<size_t>(size - at, 1 + rng.Below(100'000));
      ASSERT_TRUE((*stream)->Append(AsBytes(text).subspan(at, length)).ok());
      EXPECT_LE(memory_.used(), memory_.limit() / 2);
      at += length;
    }
    EXPECT_FALSE(HeadBlocking(store_, "k").ok()) << "nothing is visible before Commit";
    const auto info = (*stream)->Commit();
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(*ReadAll(store_, "k", 1 << 30), text);
    ASSERT_TRUE(DeleteBlocking(store_, "k").ok());
  }
  EXPECT_EQ(memory_.used(), 0u);
}

TEST_F(PieceStreamTest, MoreAndFewerBytesThanAnnounced) {
  for (const size_t size : {100, 200'000}) {
    const std::string text = Text(size);
    {
      const auto stream = Open(size);
      ASSERT_TRUE((*stream)->Append(AsBytes(text)).ok());
      EXPECT_EQ((*stream)->Append(AsBytes("x")).code(), absl::StatusCode::kInternal);
    }
    {
      const auto stream = Open(size);
      ASSERT_TRUE((*stream)->Append(AsBytes(text).first(size - 1)).ok());
      EXPECT_EQ((*stream)->Commit().status().code(), absl::StatusCode::kInternal);
    }
    EXPECT_FALSE(HeadBlocking(store_, "k").ok());
  }
}

TEST_F(PieceStreamTest, NoMemory) {
  const Reservation all = memory_.TryReserve(memory_.limit());
  const auto stream = Open(200'000);
  ASSERT_TRUE(stream.ok());
  const absl::Status status = (*stream)->Append(AsBytes("x"));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.ToString().find("--memory"), std::string::npos) << status;
}

TEST_F(PieceStreamTest, AStopEndsIt) {
  std::stop_source stop;
  PutOptions options;
  options.stop = stop.get_token();
  const auto stream = PieceStream::Open(store_, "k", 10 << 20, memory_, options);
  ASSERT_TRUE(stream.ok());
  ASSERT_TRUE((*stream)->Append(AsBytes(Text(100'000))).ok());
  stop.request_stop();
  absl::Status status = (*stream)->Append(AsBytes(Text((10 << 20) - 100'000)));
  if (status.ok()) status = (*stream)->Commit().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_FALSE(HeadBlocking(store_, "k").ok());
}

TEST_F(PieceStreamTest, TheFirstErrorOfAPieceEndsIt) {
  ScriptedStore store;
  store.on_write = [](size_t index) {
    return index == 3 ? absl::ResourceExhaustedError("the disk is full") : absl::OkStatus();
  };
  const auto stream = PieceStream::Open(store, "k", 3 << 20, memory_, {});
  ASSERT_TRUE(stream.ok());
  absl::Status status = (*stream)->Append(AsBytes(Text(3 << 20)));
  if (status.ok()) status = (*stream)->Commit().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_FALSE(HeadBlocking(store, "k").ok());
}

}  // namespace
}  // namespace millrace
