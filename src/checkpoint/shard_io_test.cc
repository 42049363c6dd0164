#include "checkpoint/shard_io.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/crypto.h"
#include "base/rng.h"
#include "store/blocking.h"
#include "store/file_store.h"
#include "store/memory_store.h"
#include "store/testing/forwarding_store.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::string Noise(size_t size, uint64_t seed) {
  std::string text(size, '\0');
  Rng rng(seed);
  for (size_t i = 0; i < size; i += 8) {
    const uint64_t value = rng.Next();
    std::memcpy(text.data() + i, &value, std::min<size_t>(8, size - i));
  }
  return text;
}

// A shard of `text`, cut into spans at random places, some of them empty.
ShardBytes Cut(const std::string& name, const std::string& text, uint64_t seed) {
  ShardBytes shard{.name = name, .spans = {}};
  Rng rng(seed);
  for (size_t at = 0; at < text.size();) {
    const size_t length = std::min<size_t>(rng.Below(3) == 0 ? rng.Below(12 << 20) : rng.Below(3000), text.size() - at);
    shard.spans.push_back(AsBytes(text).subspan(at, length));
    at += length;
  }
  return shard;
}

std::vector<std::string> ReadBack(ObjectStore& store, const std::string& folder,
                                  const std::vector<CheckpointShard>& shards) {
  MemoryBudget memory(64 << 20);
  std::vector<std::string> texts;
  std::vector<MutableByteSpan> into;
  for (const CheckpointShard& shard : shards) texts.emplace_back(shard.bytes, '\0');
  for (std::string& text : texts) into.push_back(AsWritableBytes(text));
  const absl::Status status = ReadShards(store, memory, folder, shards, into, {});
  EXPECT_TRUE(status.ok()) << status;
  return texts;
}

void RoundTrip(ObjectStore& store) {
  const std::vector<std::string> texts = {Noise(20 << 20, 1), "", Noise(5, 2), Noise((8 << 20) + 1, 3),
                                          Noise(8 << 20, 4)};
  std::vector<ShardBytes> sources;
  for (size_t i = 0; i < texts.size(); ++i) sources.push_back(Cut("shard-" + std::to_string(i), texts[i], i));
  const absl::StatusOr<std::vector<CheckpointShard>> written = WriteShards(store, "a/b/", sources, {});
  ASSERT_TRUE(written.ok()) << written.status();
  ASSERT_EQ(written->size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ((*written)[i].name, sources[i].name);
    EXPECT_EQ((*written)[i].bytes, texts[i].size());
    EXPECT_EQ((*written)[i].crc32c, Crc32c(AsBytes(texts[i])));
    EXPECT_EQ(*ReadAll(store, "a/b/shard-" + std::to_string(i), 1 << 30), texts[i]);
  }
  EXPECT_EQ(ReadBack(store, "a/b/", *written), texts);
}

TEST(ShardIo, RoundTripInMemory) {
  MemoryStore store("shards");
  RoundTrip(store);
}

TEST(ShardIo, RoundTripInAFolder) {
  const TempFolder folder;
  FileStore store(folder.path());
  RoundTrip(store);
}

// Ranges of any kind, some of them overlapping or empty, against the bytes that were written.
TEST(ShardIo, RangesAreThoseOfTheShards) {
  MemoryStore store("shards");
  const std::vector<std::string> texts = {Noise(9 << 20, 1), Noise(100, 2), Noise((64 << 10) * 3, 3)};
  std::vector<ShardBytes> sources;
  for (size_t i = 0; i < texts.size(); ++i) sources.push_back(Cut("s" + std::to_string(i), texts[i], i));
  const auto written = WriteShards(store, "a/", sources, {});
  ASSERT_TRUE(written.ok()) << written.status();
  MemoryBudget memory(64 << 20);
  Rng rng(HashKey(0x7a, {1}));
  for (int round = 0; round < 30; ++round) {
    std::vector<ShardRange> ranges;
    std::vector<std::string> into(1 + rng.Below(40));
    std::vector<std::string> expected;
    for (std::string& text : into) {
      const size_t shard = rng.Below(texts.size());
      const uint64_t offset = rng.Below(texts[shard].size() + 1);
      const uint64_t most = std::min<uint64_t>(texts[shard].size() - offset, rng.Below(3) == 0 ? 5 << 20 : 2000);
      text.resize(rng.Below(most + 1));
      expected.push_back(texts[shard].substr(offset, text.size()));
      ranges.push_back({shard, offset, AsWritableBytes(text)});
    }
    const absl::StatusOr<uint64_t> read = ReadRanges(store, memory, "a/", *written, ranges, {});
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_TRUE(into == expected) << round;
  }
}

TEST(ShardIo, RangesCostWhatTheyNeed) {
  MemoryStore store("shards");
  const std::string text = Noise(20 << 20, 1);
  const auto written = WriteShards(store, "", {Cut("x", text, 1)}, {});
  ASSERT_TRUE(written.ok()) << written.status();
  const uint64_t piece = (*written)[0].piece_bytes;
  EXPECT_EQ(piece, 64u << 10);
  MemoryBudget memory(64 << 20);
  std::string into(3 << 20, '\0');
  const auto read = [&](std::vector<std::pair<uint64_t, uint64_t>> places) {
    std::vector<ShardRange> ranges;
    for (const auto& [offset, size] : places) ranges.push_back({0, offset, AsWritableBytes(into).first(size)});
    return ReadRanges(store, memory, "", *written, ranges, {});
  };
  EXPECT_EQ(*read({}), 0u);
  EXPECT_EQ(*read({{7, 0}}), 0u);
  EXPECT_EQ(*read({{0, 1}}), piece);
  EXPECT_EQ(*read({{piece - 1, 2}}), 2 * piece);
  EXPECT_EQ(*read({{5 * piece, 1}, {5 * piece + 9, 1}, {6 * piece, 1}}), 2 * piece);
  EXPECT_EQ(*read({{(20 << 20) - 1, 1}}), piece);
  EXPECT_LE(*read({{piece + 1, 3 << 20}}), (3u << 20) + piece);
  EXPECT_TRUE(absl::IsOutOfRange(read({{20 << 20, 1}}).status()));
  EXPECT_TRUE(absl::IsOutOfRange(read({{uint64_t{0} - 1, 2}}).status()));
}

// Keeps where the bytes of reads went.
class PlacesStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override {
    {
      std::lock_guard lock(mutex_);
      reads_.push_back(into);
    }
    ForwardingStore::Get(std::move(key), into, std::move(options), std::move(done));
  }
  // (bytes that went into `memory`, bytes that went elsewhere)
  std::pair<uint64_t, uint64_t> Split(const std::string& memory) {
    std::lock_guard lock(mutex_);
    std::pair<uint64_t, uint64_t> split;
    for (const MutableByteSpan read : reads_) {
      const auto* const at = reinterpret_cast<const char*>(read.data());
      const bool within = at >= memory.data() && at < memory.data() + memory.size();
      (within ? split.first : split.second) += read.size();
    }
    return split;
  }

 private:
  std::mutex mutex_;
  std::vector<MutableByteSpan> reads_;
};

TEST(ShardIo, LargeRangesAreReadInPlace) {
  PlacesStore places;
  const std::string text = Noise(40 << 20, 1);
  const auto written = WriteShards(places, "", {Cut("x", text, 1)}, {});
  ASSERT_TRUE(written.ok()) << written.status();
  MemoryBudget memory(512 << 20);
  // As tensors lie: one behind the other, none at the beginning of a piece; a small one among large ones.
  const std::vector<size_t> sizes = {8 << 20, 12'345'678, 100, (9 << 20) + 1,
                                     (40 << 20) - (17 << 20) - 12'345'779 - 999};
  std::string into(text.size(), '\0');
  std::vector<ShardRange> ranges;
  size_t at = 999;
  for (const size_t size : sizes) {
    ranges.push_back({0, at, AsWritableBytes(into).subspan(at, size)});
    at += size;
  }
  ASSERT_EQ(at, text.size());
  const auto read = ReadRanges(places, memory, "", *written, ranges, {});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, text.size());
  EXPECT_EQ(into.substr(999), text.substr(999));
  const auto [in_place, staged] = places.Split(into);
  EXPECT_EQ(in_place + staged, text.size());
  EXPECT_LE(staged, sizes.size() * 2 * (64 << 10));  // where one ends and the next begins
}

TEST(ShardIo, BytesThatComeLater) {
  MemoryStore store("shards");
  const std::string text = Noise(30 << 20, 1);
  // Every second span, of sizes around those of pieces, is copied when its turn has come.
  std::vector<std::pair<size_t, size_t>> asked;  // place in the text, and length
  std::vector<ShardSpan> spans;
  size_t at = 0;
  for (const size_t size : {size_t{1000}, size_t{8} << 20, size_t{3} << 20, size_t{12'345'678}}) {
    spans.push_back(AsBytes(text).subspan(at, size / 2));
    const size_t begin = at + size / 2;
    spans.emplace_back(size - size / 2, [&text, &asked, begin](uint64_t offset, MutableByteSpan into) {
      std::memcpy(into.data(), text.data() + begin + offset, into.size());
      asked.emplace_back(begin + offset, into.size());
      return absl::OkStatus();
    });
    at += size;
  }
  const std::string expected = text.substr(0, at);
  const auto written = WriteShards(store, "", {{.name = "x", .spans = spans}}, {});
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(ReadBack(store, "", *written), std::vector<std::string>{expected});
  EXPECT_EQ((*written)[0].crc32c, Crc32c(AsBytes(expected)));
  for (size_t i = 1; i < asked.size(); ++i) EXPECT_GE(asked[i].first, asked[i - 1].first + asked[i - 1].second);
  for (const auto& [place, length] : asked) EXPECT_LE(length, 8u << 20);  // no more than a piece at a time
}

TEST(ShardIo, BytesThatDoNotCome) {
  MemoryStore store("shards");
  int calls = 0;
  const ShardSpan failing(20 << 20, [&calls](uint64_t, MutableByteSpan) {
    return ++calls < 2 ? absl::OkStatus() : absl::InternalError("no such tensor");
  });
  const auto written = WriteShards(store, "", {{.name = "x", .spans = {failing}}}, {});
  EXPECT_THAT(std::string(written.status().message()), HasSubstr("no such tensor"));
  EXPECT_EQ(calls, 2);
}

TEST(ShardIo, RangesAreVerified) {
  MemoryStore store("shards");
  const std::string text = Noise(3 << 20, 7);
  const auto written = WriteShards(store, "", {Cut("x", text, 1)}, {});
  ASSERT_TRUE(written.ok()) << written.status();
  std::string bad = text;
  bad[1 << 20] = static_cast<char>(bad[1 << 20] ^ 1);
  ASSERT_TRUE(PutBlocking(store, "x", AsBytes(bad)).ok());
  MemoryBudget memory(64 << 20);
  std::string into(1, '\0');
  EXPECT_TRUE(ReadRanges(store, memory, "", *written, {{0, 5, AsWritableBytes(into)}}, {}).ok());
  // Not the byte itself: one that is verified together with it.
  EXPECT_TRUE(absl::IsDataLoss(
      ReadRanges(store, memory, "", *written, {{0, (1 << 20) + 999, AsWritableBytes(into)}}, {}).status()));
}

TEST(ShardIo, CopiesAreVerified) {
  MemoryStore from("from");
  MemoryStore to("to");
  MemoryBudget memory(64 << 20);
  const std::vector<std::string> texts = {Noise(20 << 20, 1), "", Noise(5, 2)};
  std::vector<ShardBytes> sources;
  for (size_t i = 0; i < texts.size(); ++i) sources.push_back(Cut("s" + std::to_string(i), texts[i], i));
  const auto written = WriteShards(from, "a/", sources, {});
  ASSERT_TRUE(written.ok()) << written.status();
  const auto copied = CopyShards(from, "a/", *written, to, "b/", memory, {});
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(ReadBack(to, "b/", *copied), texts);
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ((*copied)[i].crc32c, (*written)[i].crc32c);
  std::string bad = texts[0];
  bad[12 << 20] = static_cast<char>(bad[12 << 20] ^ 1);
  ASSERT_TRUE(PutBlocking(from, "a/s0", AsBytes(bad)).ok());
  EXPECT_TRUE(absl::IsDataLoss(CopyShards(from, "a/", *written, to, "c/", memory, {}).status()));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(absl::IsCancelled(CopyShards(from, "a/", *written, to, "d/", memory, stop.get_token()).status()));
}

TEST(ShardIo, DamageIsFound) {
  MemoryStore store("shards");
  const std::string text = Noise(20 << 20, 7);
  const auto written = WriteShards(store, "", {Cut("x", text, 1)}, {});
  ASSERT_TRUE(written.ok()) << written.status();
  MemoryBudget memory(64 << 20);
  EXPECT_TRUE(ReadShards(store, memory, "", *written, {}, {}).ok());
  for (const size_t at : {size_t{0}, size_t{9} << 20, text.size() - 1}) {
    std::string bad = text;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    ASSERT_TRUE(PutBlocking(store, "x", AsBytes(bad)).ok());
    EXPECT_TRUE(absl::IsDataLoss(ReadShards(store, memory, "", *written, {}, {}))) << at;
  }
  ASSERT_TRUE(PutBlocking(store, "x", AsBytes(text).first(text.size() - 1)).ok());
  EXPECT_FALSE(ReadShards(store, memory, "", *written, {}, {}).ok());
  ASSERT_TRUE(DeleteBlocking(store, "x").ok());
  EXPECT_TRUE(absl::IsNotFound(ReadShards(store, memory, "", *written, {}, {})));
}

/// A store whose n-th Put fails, and that asks for a stop with it.
class FailingPuts final : public ForwardingStore {
 public:
  explicit FailingPuts(int number) : number_(number) {}
  void Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) override {
    if (++puts_ == number_) return std::move(done)(absl::UnavailableError(fmt::format("put {}.", number_)));
    ForwardingStore::Put(std::move(key), body, std::move(options), std::move(done));
  }
  absl::StatusOr<std::unique_ptr<PieceWriter>> WritePieces(std::string, PutOptions) override {
    return absl::UnavailableError("pieces");
  }

 private:
  const int number_;
  int puts_ = 0;
};

TEST(ShardIo, FirstErrorIsTold) {
  const std::string text = Noise(100, 1);
  std::vector<ShardBytes> sources;
  for (int i = 0; i < 30; ++i) sources.push_back(Cut(fmt::format("s{}", i), text, 1));
  for (const int number : {1, 2, 8, 9, 29, 30}) {
    FailingPuts store(number);
    const absl::Status status = WriteShards(store, "", sources, {}).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(fmt::format("put {}.", number)));
  }
  FailingPuts store(0);
  EXPECT_TRUE(WriteShards(store, "", sources, {}).ok());
  const std::string large = Noise(9 << 20, 1);
  EXPECT_TRUE(absl::IsUnavailable(WriteShards(store, "", {Cut("large", large, 1)}, {}).status()));
}

TEST(ShardIo, StopCancels) {
  MemoryStore store("shards");
  std::stop_source stop;
  stop.request_stop();
  const std::string text = Noise(20 << 20, 7);
  EXPECT_TRUE(absl::IsCancelled(WriteShards(store, "", {Cut("x", text, 1)}, stop.get_token()).status()));
  EXPECT_TRUE(absl::IsNotFound(HeadBlocking(store, "x").status()));
}

}  // namespace
}  // namespace millrace
