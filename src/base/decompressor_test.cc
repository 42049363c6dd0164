#include "base/decompressor.h"

#include <gtest/gtest.h>
#include <isa-l/igzip_lib.h>
#include <zstd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"

// Streams that other programs have made: tests/e2e/test_pack_compressed.py.

namespace millrace {
namespace {

std::string Gzip(std::string data, uint16_t wrapper = IGZIP_GZIP) {
  std::string out(data.size() + data.size() / 2 + 1000, '\0');
  isal_zstream stream;
  isal_deflate_stateless_init(&stream);
  stream.gzip_flag = wrapper;
  stream.end_of_stream = 1;
  stream.next_in = reinterpret_cast<uint8_t*>(data.data());
  stream.avail_in = static_cast<uint32_t>(data.size());
  stream.next_out = reinterpret_cast<uint8_t*>(out.data());
  stream.avail_out = static_cast<uint32_t>(out.size());
  EXPECT_EQ(isal_deflate_stateless(&stream), COMP_OK);
  out.resize(stream.total_out);
  return out;
}

std::string Zstd(const std::string& data, int window_log = 0) {
  std::string out(ZSTD_compressBound(data.size()), '\0');
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  if (window_log > 0) {
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
    ZSTD_inBuffer in{data.data(), data.size(), 0};
    ZSTD_outBuffer into{out.data(), out.size(), 0};
    ZSTD_compressStream2(context, &into, &in, ZSTD_e_continue);  // or it would fit the window to the size
    while (ZSTD_compressStream2(context, &into, &in, ZSTD_e_end) != 0) {
    }
    out.resize(into.pos);
  } else {
    out.resize(ZSTD_compress2(context, out.data(), out.size(), data.data(), data.size()));
  }
  ZSTD_freeCCtx(context);
  return out;
}

struct Result {
  std::string data;
  absl::Status status;
  uint64_t sound = 0;
};

Result Decompress(Compression compression, const std::string& bytes, size_t chunk = SIZE_MAX) {
  Result result;
  const auto decompressor = Decompressor::Make(compression);
  const auto take = [&](ByteSpan out) {
    result.data += AsText(out);
    return absl::OkStatus();
  };
  for (size_t at = 0; at < bytes.size() && result.status.ok(); at += std::min(chunk, bytes.size() - at)) {
    const std::string part = bytes.substr(at, chunk);  // of its own, so that sanitizers see reads beyond its end
    const std::vector<char> copy(part.begin(), part.end());
    result.status = decompressor->Feed(AsBytes({copy.data(), copy.size()}), take);
  }
  if (result.status.ok()) result.status = decompressor->Finish(take);
  result.sound = decompressor->sound_bytes();
  return result;
}

std::string SomeText(size_t bytes, uint64_t seed) {
  Rng rng(seed);
  std::string text;
  while (text.size() < bytes) text += rng.Below(3) == 0 ? std::string(rng.Below(400), 'x') : std::to_string(rng.Next());
  text.resize(bytes);
  return text;
}

class DecompressorTest : public ::testing::TestWithParam<Compression> {
 protected:
  static std::string Compress(const std::string& data) {
    if (GetParam() == Compression::kZlib) return Gzip(data, IGZIP_ZLIB);
    return GetParam() == Compression::kGzip ? Gzip(data) : Zstd(data);
  }
};

INSTANTIATE_TEST_SUITE_P(All, DecompressorTest,
                         ::testing::Values(Compression::kGzip, Compression::kZstd, Compression::kZlib),
                         [](const auto& test) {
                           return test.param == Compression::kGzip   ? "gzip"
                                  : test.param == Compression::kZstd ? "zstd"
                                                                     : "zlib";
                         });

TEST_P(DecompressorTest, ChunksOfAnySize) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, size_t{256} << 10, size_t{700'000}}) {
    const std::string data = SomeText(bytes, bytes);
    const std::string compressed = Compress(data);
    for (const size_t chunk : {size_t{1}, size_t{7}, size_t{4096}, SIZE_MAX}) {
      const Result result = Decompress(GetParam(), compressed, chunk);
      EXPECT_TRUE(result.status.ok()) << result.status;
      EXPECT_TRUE(result.data == data) << bytes << " " << chunk;
    }
  }
}

TEST_P(DecompressorTest, SeveralMembersAndPadding) {
  const std::string data[] = {SomeText(5000, 1), "", SomeText(300'000, 2)};
  const std::string compressed = Compress(data[0]) + Compress(data[1]) + Compress(data[2]);
  for (const size_t chunk : {size_t{1}, size_t{100}, SIZE_MAX}) {
    for (const char* padding : {"", "0000000"}) {
      const Result result = Decompress(GetParam(), compressed + std::string(std::string(padding).size(), '\0'), chunk);
      EXPECT_TRUE(result.status.ok()) << result.status;
      EXPECT_TRUE(result.data == data[0] + data[1] + data[2]);
    }
    for (const std::string& garbage : {std::string("garbage"), std::string("\0\0x", 3)})
      EXPECT_EQ(Decompress(GetParam(), compressed + garbage, chunk).status.code(), absl::StatusCode::kDataLoss);
  }
}

// The position at which a member ends within the last byte of its codes differs from one text to the next.
TEST_P(DecompressorTest, MembersOfAnyLength) {
  for (size_t bytes = 0; bytes < 500; bytes += 7) {
    const std::string data = SomeText(bytes, bytes);
    const std::string compressed = Compress(data);
    for (const size_t chunk : {size_t{1}, size_t{3}, SIZE_MAX}) {
      const Result result = Decompress(GetParam(), compressed + compressed + compressed, chunk);
      EXPECT_TRUE(result.status.ok()) << bytes << " " << chunk << ": " << result.status;
      EXPECT_TRUE(result.data == data + data + data) << bytes << " " << chunk;
      EXPECT_EQ(Decompress(GetParam(), compressed + "x", chunk).status.code(), absl::StatusCode::kDataLoss)
          << bytes << " " << chunk;
    }
  }
}

TEST_P(DecompressorTest, WhatIsCutShortIsDataLoss) {
  const std::string compressed = Compress(SomeText(2000, 3));
  for (size_t length = 0; length < compressed.size(); ++length)
    EXPECT_EQ(Decompress(GetParam(), compressed.substr(0, length), 50).status.code(), absl::StatusCode::kDataLoss)
        << length;
}

TEST_P(DecompressorTest, WhatIsDamagedIsDataLossOrTheSame) {
  const std::string data = SomeText(2000, 4);
  const std::string compressed = Compress(data);
  for (size_t at = 0; at < compressed.size(); ++at) {
    std::string damaged = compressed;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    const Result result = Decompress(GetParam(), damaged);
    if (result.status.ok()) {
      EXPECT_TRUE(result.data == data) << "a byte of the head that says nothing, at " << at;
    } else {
      EXPECT_TRUE(absl::IsDataLoss(result.status) || absl::IsResourceExhausted(result.status)) << result.status;
    }
  }
}

TEST_P(DecompressorTest, WhatIsCutShortGivesWhatIsThereHoweverItComes) {
  const std::string data = SomeText(500'000, 7);
  const std::string compressed = Compress(data);
  Rng rng(8);
  for (int i = 0; i < 20; ++i) {
    const size_t length = rng.Below(compressed.size());
    const std::string cut = compressed.substr(0, length);
    const Result at_once = Decompress(GetParam(), cut);
    EXPECT_TRUE(data.starts_with(at_once.data)) << length;
    EXPECT_EQ(at_once.sound, at_once.data.size());
    EXPECT_EQ(at_once.status.message(), "the compressed bytes are cut short at offset " + std::to_string(length));
    for (const size_t chunk : {size_t{1}, size_t{4099}, size_t{70'000}})
      EXPECT_TRUE(Decompress(GetParam(), cut, chunk).data == at_once.data) << length << " " << chunk;
  }
  EXPECT_GT(Decompress(GetParam(), compressed.substr(0, compressed.size() / 2)).data.size(), data.size() / 8);
}

TEST_P(DecompressorTest, DamageHasAnOffsetAndLeavesWholeMembersSound) {
  const std::string first = SomeText(300'000, 9);
  const std::string second = SomeText(600'000, 10);
  const std::string good = Compress(first);
  std::string damaged = good + Compress(second);
  const size_t at = good.size() + (damaged.size() - good.size()) / 2;
  damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
  for (const size_t chunk : {size_t{1}, size_t{4099}, SIZE_MAX}) {
    const Result result = Decompress(GetParam(), damaged, chunk);
    EXPECT_TRUE(absl::IsDataLoss(result.status)) << result.status;
    EXPECT_EQ(result.sound, first.size());
    const std::string message(result.status.message());
    const size_t word = message.find("at offset ");
    ASSERT_NE(word, std::string::npos) << message;
    const uint64_t offset = std::stoull(message.substr(word + 10));
    EXPECT_GE(offset, good.size()) << message;
    EXPECT_LE(offset, damaged.size()) << message;
  }
}

TEST(Decompressor, TheSinkMayEndIt) {
  for (const Compression compression : {Compression::kGzip, Compression::kZstd}) {
    const std::string data = SomeText(600'000, 5);
    const std::string bytes = compression == Compression::kGzip ? Gzip(data) : Zstd(data);
    int calls = 0;
    const auto take = [&calls](ByteSpan piece) {
      EXPECT_LE(piece.size(), size_t{256} << 10);
      return ++calls == 2 ? absl::CancelledError("enough") : absl::OkStatus();
    };
    const auto decompressor = Decompressor::Make(compression);
    absl::Status status = decompressor->Feed(AsBytes(bytes), take);
    if (status.ok()) status = decompressor->Finish(take);
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(calls, 2);
  }
}

TEST(Decompressor, WindowsHaveABound) {
  const std::string data = SomeText(1000, 6);
  EXPECT_TRUE(Decompress(Compression::kZstd, Zstd(data, 27)).status.ok());
  const absl::Status refused = Decompress(Compression::kZstd, Zstd(data, 28)).status;
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
}

TEST(Decompressor, WindowsArePartOfABudget) {
  const std::string bytes = Zstd(SomeText(1 << 20, 3), 23);
  WaitingBudget windows(20 << 20);
  windows.Take(windows.limit());
  std::atomic<bool> has_room = false;
  std::thread reader([&] {
    for (int i = 0; i < 3; ++i) {  // each returns its window
      const auto decompressor = Decompressor::Make(Compression::kZstd, &windows);
      const auto any = [](ByteSpan) { return absl::OkStatus(); };
      EXPECT_TRUE(decompressor->Feed(AsBytes(bytes), any).ok());
      EXPECT_TRUE(has_room) << "the window of 8 MiB was not taken from the budget";
      EXPECT_TRUE(decompressor->Finish(any).ok());
    }
  });
  has_room = true;
  windows.Return(windows.limit());
  reader.join();
  windows.Take(windows.limit());  // else this waits forever
  windows.Return(windows.limit());
}

}  // namespace
}  // namespace millrace
