#include <gtest/gtest.h>

#include <atomic>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/counted.h"
#include "base/hex.h"
#include "base/memory_budget.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/status.h"
#include "base/thread_pool.h"

namespace millrace {
namespace {

TEST(Varint, RoundTripsAtEveryLength) {
  std::string out;
  std::vector<uint64_t> values{0, 1, 127, 128, 16383, 16384, UINT64_MAX};
  for (int bit = 0; bit < 64; ++bit) values.push_back(uint64_t{1} << bit);
  for (const uint64_t value : values) AppendVarint(out, value);
  size_t pos = 0;
  for (const uint64_t value : values) {
    uint64_t read = 0;
    ASSERT_TRUE(ReadVarint(AsBytes(out), &pos, &read));
    EXPECT_EQ(read, value);
  }
  EXPECT_EQ(pos, out.size());
}

TEST(Varint, RefusesCutAndOverlongNumbers) {
  uint64_t value = 0;
  size_t pos = 0;
  EXPECT_FALSE(ReadVarint(AsBytes("\x80\x80"), &pos, &value));
  pos = 0;
  EXPECT_FALSE(ReadVarint(AsBytes("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), &pos, &value));
}

TEST(Hex, RoundTripsAndRefusesWhatIsNone) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const std::string hex = HexEncode({reinterpret_cast<const uint8_t*>(all.data()), all.size()});
  EXPECT_EQ(hex.substr(0, 6), "000102");
  EXPECT_EQ(HexDecode(hex), all);
  EXPECT_EQ(HexDecode("aBCd"), "\xab\xcd");
  EXPECT_EQ(HexDecode(""), "");
  for (const char* bad : {"a", "0g", "g0", " 0", "+1", "0x", "abc"}) EXPECT_EQ(HexDecode(bad), std::nullopt) << bad;
  // Exactly 22 characters are digits.
  int digits = 0;
  for (int c = -128; c < 128; ++c) digits += HexValue(static_cast<char>(c)) >= 0 ? 1 : 0;
  EXPECT_EQ(digits, 22);
}

TEST(Counted, ManyAreSaidOtherwiseThanOne) {
  EXPECT_EQ(Counted(0, "sample"), "0 samples");
  EXPECT_EQ(Counted(1, "tar shard"), "1 tar shard");
  EXPECT_EQ(Counted(UINT64_MAX, "byte"), "18446744073709551615 bytes");
}

TEST(Size, ParsesWhatPeopleWrite) {
  EXPECT_EQ(*ParseSize("4096"), 4096u);
  EXPECT_EQ(*ParseSize("512MiB"), 512u << 20);
  EXPECT_EQ(*ParseSize("1.5 GiB"), 3u << 29);
  EXPECT_EQ(*ParseSize("100MB"), 100'000'000u);
  EXPECT_EQ(*ParseSize("64k"), 65536u);
  for (const char* bad : {"", "MiB", "12 parsecs", "-1", "1e9GiB", "99999999999TiB"}) {
    EXPECT_EQ(ParseSize(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(Size, FormatsForPeople) {
  EXPECT_EQ(FormatSize(0), "0 B");
  EXPECT_EQ(FormatSize(1536), "1.5 KiB");
  EXPECT_EQ(FormatSize(uint64_t{256} << 20), "256.0 MiB");
}

TEST(ThreadPool, RunsEverythingBeforeItDies) {
  std::atomic<int> ran{0};
  {
    ThreadPool pool(3, "test");
    for (int i = 0; i < 1000; ++i) pool.Submit([&] { ++ran; });
  }
  EXPECT_EQ(ran, 1000);
}

TEST(MemoryBudget, GrantsUpToItsLimitAndTakesBack) {
  MemoryBudget budget(100);
  Reservation first = budget.TryReserve(60);
  EXPECT_TRUE(first);
  EXPECT_FALSE(budget.TryReserve(41));
  {
    Reservation second = budget.TryReserve(40);
    EXPECT_TRUE(second);
    EXPECT_EQ(budget.used(), 100u);
  }
  EXPECT_EQ(budget.used(), 60u);
  EXPECT_TRUE(budget.TryExtend(&first, 10));
  EXPECT_FALSE(budget.TryExtend(&first, 31));
  EXPECT_EQ(first.bytes(), 70u);
  EXPECT_EQ(budget.used(), 70u);
  first = {};
  EXPECT_EQ(budget.used(), 0u);
  EXPECT_TRUE(budget.TryExtend(&first, 5));  // an empty one
  EXPECT_EQ(first.bytes(), 5u);
  first = {};
  EXPECT_EQ(budget.used(), 0u);
  EXPECT_FALSE(budget.TryReserve(UINT64_MAX));
}

TEST(Rng, KeysOfDifferentPurposeDiffer) {
  EXPECT_NE(HashKey(1, {2, 3}), HashKey(1, {3, 2}));
  EXPECT_NE(HashKey(1, {2}), HashKey(2, {2}));
  Rng rng(7);
  std::vector<int> seen(10);
  for (int i = 0; i < 10000; ++i) ++seen[rng.Below(10)];
  for (const int count : seen) EXPECT_NEAR(count, 1000, 150);
}

TEST(Buffer, IsAlignedAndMoves) {
  Buffer buffer(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  Buffer moved = std::move(buffer);
  EXPECT_EQ(moved.size(), 1000u);
  EXPECT_EQ(buffer.size(), 0u);  // NOLINT(bugprone-use-after-move): the contract says so
}

absl::Status Fails() {
  return absl::NotFoundError("gone");
}
absl::StatusOr<int> Adds(absl::StatusOr<int> a) {
  ASSIGN_OR_RETURN(const int value, a);
  return value + 1;
}

TEST(Status, MacrosPassErrorsOn) {
  EXPECT_EQ(*Adds(1), 2);
  EXPECT_EQ(Adds(Fails()).status().message(), "gone");
  EXPECT_EQ(Annotate(Fails(), "s3://b/k").message(), "s3://b/k: gone");
  EXPECT_EQ(Annotate(Fails(), "x").code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace millrace
