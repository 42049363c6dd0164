#include "checkpoint/shard_io.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

// The shards are written with staging memory of their own.
absl::StatusOr<std::vector<CheckpointShard>> WriteNew(ObjectStore& store, const std::string& folder,
                                                      const std::vector<ShardBytes>& shards,
                                                      const std::stop_token& stop) {
  StagingMemory staging(kMaxStagedBytes);
  return WriteShards(store, folder, shards, staging, stop);
}

absl::StatusOr<std::vector<CheckpointShard>> CopyNew(ObjectStore& from, const std::string& from_folder,
                                                     const std::vector<CheckpointShard>& shards, ObjectStore& to,
                                                     const std::string& to_folder, MemoryBudget& memory,
                                                     const std::stop_token& stop) {
  StagingMemory staging(kMaxStagedBytes);
  return CopyShards(from, from_folder, shards, to, to_folder, staging, memory, stop);
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
  const absl::StatusOr<std::vector<CheckpointShard>> written = WriteNew(store, "a/b/", sources, {});
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

// Is a store like S3: all pieces but the last have at least 5 MiB, and equal ones suit every server.
class EvenPieces final : public ForwardingStore {
 public:
  EvenPieces() { traits_.pieces = {.least_bytes = 5 << 20, .most_pieces = 10'000}; }
};

TEST(ShardIo, RoundTripInEvenPieces) {
  EvenPieces store;
  RoundTrip(store);
}

TEST(ShardIo, RoundTripInAFolder) {
  const TempFolder folder;
  FileStore store(folder.path());
  RoundTrip(store);
}

// Compares ranges of any kind, some of them overlapping or empty, against the bytes that were written.
TEST(ShardIo, RangesAreThoseOfTheShards) {
  MemoryStore store("shards");
  const std::vector<std::string> texts = {Noise(9 << 20, 1), Noise(100, 2), Noise((64 << 10) * 3, 3)};
  std::vector<ShardBytes> sources;
  for (size_t i = 0; i < texts.size(); ++i) sources.push_back(Cut("s" + std::to_string(i), texts[i], i));
  const auto written = WriteNew(store, "a/", sources, {});
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
  const auto written = WriteNew(store, "", {Cut("x", text, 1)}, {});
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
  const auto written = WriteNew(places, "", {Cut("x", text, 1)}, {});
  ASSERT_TRUE(written.ok()) << written.status();
  MemoryBudget memory(512 << 20);
  // The spans lie as tensors do: one behind the other, none at the beginning of a piece; a small one among large ones.
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

// Keeps which memory pieces are written from, and how long they are.
class WritesStore final : public ForwardingStore {
 public:
  explicit WritesStore(PieceLimits limits) { traits_.pieces = limits; }

  absl::StatusOr<std::unique_ptr<PieceWriter>> WritePieces(std::string key, PutOptions options) override {
    ASSIGN_OR_RETURN(std::unique_ptr<PieceWriter> writer,
                     ForwardingStore::WritePieces(std::move(key), std::move(options)));
    return std::make_unique<Writer>(std::move(writer), writes_);
  }

  // Returns the spans that did not come from `text`.
  std::vector<ByteSpan> StagedBeside(const std::string& text) const {
    std::vector<ByteSpan> staged;
    for (const ByteSpan piece : writes_) {
      const auto* const at = reinterpret_cast<const char*>(piece.data());
      if (at < text.data() || at >= text.data() + text.size()) staged.push_back(piece);
    }
    return staged;
  }
  const std::vector<ByteSpan>& writes() const { return writes_; }

 private:
  // Is a writer like that of S3: no piece comes without its checksum, so that none is made again.
  class Writer final : public PieceWriter {
   public:
    Writer(std::unique_ptr<PieceWriter> writer, std::vector<ByteSpan>& writes)
        : writer_(std::move(writer)), writes_(writes) {}
    void Write(size_t index, uint64_t offset, ByteSpan bytes, std::optional<uint32_t> crc32c,
               DoneCallback done) override {
      EXPECT_EQ(crc32c, Crc32c(bytes));
      writes_.push_back(bytes);
      writer_->Write(index, offset, bytes, crc32c, std::move(done));
    }
    void Commit(uint64_t object_bytes, PutCallback done) override { writer_->Commit(object_bytes, std::move(done)); }

   private:
    const std::unique_ptr<PieceWriter> writer_;
    std::vector<ByteSpan>& writes_;
  };

  std::vector<ByteSpan> writes_;  // by the thread that writes shards
};

// The bytes are like files of tensors: a short header, and then tensors that end anywhere.
ShardBytes HeaderAndTensors(const std::string& text, const std::vector<size_t>& tensors) {
  ShardBytes shard{.name = "x", .spans = {}};
  size_t at = 0;
  for (const size_t size : tensors) {
    shard.spans.push_back(AsBytes(text).subspan(at, size));
    at += size;
  }
  return shard;
}

TEST(ShardIo, LongSpansAreWrittenInPlaceWherePiecesMayHaveAnyLength) {
  const std::string text = Noise(64 << 20, 1);
  const ShardBytes shard =
      HeaderAndTensors(text, {1000, 16 << 20, 300, 20, (16 << 20) + 5, 900'000, 12 << 20, 8 << 20, 3 << 20, 77});
  WritesStore store(PieceLimits{});
  const auto written = WriteNew(store, "", {shard}, {});
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(ReadBack(store, "", *written)[0], text.substr(0, shard.Size()));
  uint64_t staged = 0;
  for (const ByteSpan piece : store.StagedBeside(text)) staged += piece.size();
  EXPECT_EQ(staged, 300u + 20u);  // what lies together in one span is not copied, however short it is
  for (const ByteSpan piece : store.writes()) EXPECT_LE(piece.size(), 9u << 20);
  EXPECT_LE(store.writes().size(), 14u);
}

TEST(ShardIo, StagingMemoryIsUsedAgain) {
  const std::string text = Noise(64 << 20, 1);
  const ShardBytes shard = HeaderAndTensors(text, {1000, 16 << 20, 16 << 20, 16 << 20, 9 << 20, 1000});
  WritesStore store({.least_bytes = 5 << 20, .most_pieces = 10'000});
  StagingMemory staging(kMaxStagedBytes);
  std::vector<const std::byte*> before;
  for (int save = 0; save < 3; ++save) {
    const size_t first = store.StagedBeside(text).size();
    const auto written = WriteShards(store, "", {shard}, staging, {});
    ASSERT_TRUE(written.ok()) << written.status();
    const std::vector<ByteSpan> pieces = store.StagedBeside(text);
    ASSERT_GE(pieces.size(), first + 4);
    for (size_t i = first; i < pieces.size(); ++i) {
      const bool is_new = std::find(before.begin(), before.end(), pieces[i].data()) == before.end();
      if (is_new) before.push_back(pieces[i].data());
    }
    // However many pieces were in flight at once, no more than the limit was ever there.
    EXPECT_LE(before.size(), kMaxStagedBytes / (8 << 20)) << save;
    EXPECT_GE(staging.kept_bytes(), 8u << 20);
    EXPECT_LE(staging.kept_bytes(), kMaxStagedBytes);
  }
}

TEST(StagingMemory, KeepsWhatSuits) {
  StagingMemory staging(8 << 20);
  Buffer large = staging.Take(6 << 20);
  Buffer small = staging.Take(100);
  EXPECT_GE(large.size(), 6u << 20);
  EXPECT_GE(small.size(), 100u);
  const std::byte* const of_large = large.data();
  const std::byte* const of_small = small.data();
  staging.GiveBack(std::move(large));
  staging.GiveBack(std::move(small));
  Buffer again = staging.Take(10);  // not the large one
  EXPECT_EQ(again.data(), of_small);
  Buffer large_again = staging.Take((5 << 20) + 1);
  EXPECT_EQ(large_again.data(), of_large);
  staging.GiveBack(Buffer());
}

TEST(StagingMemory, KeepsNoMoreThanItMay) {
  StagingMemory staging(8 << 20);
  std::vector<Buffer> taken;
  for (int i = 0; i < 5; ++i) taken.push_back(staging.Take(3 << 20));
  std::vector<const std::byte*> places;
  for (Buffer& buffer : taken) {
    places.push_back(buffer.data());
    staging.GiveBack(std::move(buffer));
  }
  // These are the ones that were given back last.
  std::vector<Buffer> again;
  for (int i = 0; i < 2; ++i) again.push_back(staging.Take(3 << 20));
  for (const Buffer& buffer : again) EXPECT_THAT(buffer.data(), ::testing::AnyOf(places[3], places[4]));
  staging.GiveBack(Buffer(9 << 20));  // larger than all that may be kept
  EXPECT_EQ(staging.kept_bytes(), 0u);
}

TEST(StagingMemory, WhatIsKeptMakesRoomForWhatIsInUse) {
  StagingMemory staging(8 << 20);
  std::vector<Buffer> taken;
  for (int i = 0; i < 2; ++i) taken.push_back(staging.Take(4 << 20));
  for (Buffer& buffer : taken) staging.GiveBack(std::move(buffer));
  taken.clear();
  uint64_t in_use = 0;
  // No buffer that is kept suits them. The oldest goes with the first, and the other one with the fifth.
  for (int i = 0; i < 8; ++i) {
    taken.push_back(staging.Take(1 << 20, in_use));
    in_use += taken.back().size();
    EXPECT_LE(in_use + staging.kept_bytes(), 8u << 20) << i;
    EXPECT_EQ(staging.kept_bytes(), i < 4 ? uint64_t{4} << 20 : 0) << i;
  }
  for (Buffer& buffer : taken) staging.GiveBack(std::move(buffer));
  EXPECT_EQ(staging.kept_bytes(), 8u << 20);
  // One that suits is no new memory, and nothing is dropped for it.
  const Buffer again = staging.Take(1 << 20, 7 << 20);
  EXPECT_EQ(staging.kept_bytes(), 7u << 20);
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
  const auto written = WriteNew(store, "", {{.name = "x", .spans = spans}}, {});
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
  const auto written = WriteNew(store, "", {{.name = "x", .spans = {failing}}}, {});
  EXPECT_THAT(std::string(written.status().message()), HasSubstr("no such tensor"));
  EXPECT_EQ(calls, 2);
}

TEST(ShardIo, RangesAreVerified) {
  MemoryStore store("shards");
  const std::string text = Noise(3 << 20, 7);
  const auto written = WriteNew(store, "", {Cut("x", text, 1)}, {});
  ASSERT_TRUE(written.ok()) << written.status();
  std::string bad = text;
  bad[1 << 20] = static_cast<char>(bad[1 << 20] ^ 1);
  ASSERT_TRUE(PutBlocking(store, "x", AsBytes(bad)).ok());
  MemoryBudget memory(64 << 20);
  std::string into(1, '\0');
  EXPECT_TRUE(ReadRanges(store, memory, "", *written, {{0, 5, AsWritableBytes(into)}}, {}).ok());
  // It is not the byte itself, but one that is verified together with it.
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
  const auto written = WriteNew(from, "a/", sources, {});
  ASSERT_TRUE(written.ok()) << written.status();
  const auto copied = CopyNew(from, "a/", *written, to, "b/", memory, {});
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(ReadBack(to, "b/", *copied), texts);
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ((*copied)[i].crc32c, (*written)[i].crc32c);
  std::string bad = texts[0];
  bad[12 << 20] = static_cast<char>(bad[12 << 20] ^ 1);
  ASSERT_TRUE(PutBlocking(from, "a/s0", AsBytes(bad)).ok());
  EXPECT_TRUE(absl::IsDataLoss(CopyNew(from, "a/", *written, to, "c/", memory, {}).status()));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(absl::IsCancelled(CopyNew(from, "a/", *written, to, "d/", memory, stop.get_token()).status()));
}

TEST(ShardIo, DamageIsFound) {
  MemoryStore store("shards");
  const std::string text = Noise(20 << 20, 7);
  const auto written = WriteNew(store, "", {Cut("x", text, 1)}, {});
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

// The store's own words are about data sets, and their index.
TEST(ShardIo, ErrorsNameTheDamagedFile) {
  MemoryStore store("shards");
  MemoryStore to("to");
  MemoryBudget memory(64 << 20);
  const std::string text = Noise(20 << 20, 7);
  const auto written = WriteNew(store, "", {Cut("x", text, 1), Cut("y", text, 1), Cut("z", text, 1)}, {});
  ASSERT_TRUE(written.ok()) << written.status();
  std::vector<std::string> into(3, std::string(text.size(), '\0'));
  const auto check = [&](const std::string& message) {
    const std::vector<absl::Status> errors = {
        ReadShards(store, memory, "", *written, {}, {}),
        ReadShards(store, memory, "", *written,
                   {AsWritableBytes(into[0]), AsWritableBytes(into[1]), AsWritableBytes(into[2])}, {}),
        CopyNew(store, "", *written, to, "", memory, {}).status()};
    for (const absl::Status& error : errors) {
      EXPECT_EQ(std::string(error.message()),
                "mem://shards/y: " + message + "; load another step, or restore this file from a copy");
    }
  };
  std::string bad = text;
  bad[12 << 20] = static_cast<char>(bad[12 << 20] ^ 1);
  ASSERT_TRUE(PutBlocking(store, "y", AsBytes(bad)).ok());
  check("its bytes are not those that were saved: they have another CRC32C");
  ASSERT_TRUE(PutBlocking(store, "y", AsBytes(text).first(text.size() - 1)).ok());
  check("it is shorter than what was saved");
}

/// Fails the n-th Put, and asks for a stop with it.
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
    const absl::Status status = WriteNew(store, "", sources, {}).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(fmt::format("put {}.", number)));
  }
  FailingPuts store(0);
  EXPECT_TRUE(WriteNew(store, "", sources, {}).ok());
  const std::string large = Noise(9 << 20, 1);
  EXPECT_TRUE(absl::IsUnavailable(WriteNew(store, "", {Cut("large", large, 1)}, {}).status()));
}

TEST(ShardIo, StopCancels) {
  MemoryStore store("shards");
  std::stop_source stop;
  stop.request_stop();
  const std::string text = Noise(20 << 20, 7);
  EXPECT_TRUE(absl::IsCancelled(WriteNew(store, "", {Cut("x", text, 1)}, stop.get_token()).status()));
  EXPECT_TRUE(absl::IsNotFound(HeadBlocking(store, "x").status()));
}

}  // namespace
}  // namespace millrace
