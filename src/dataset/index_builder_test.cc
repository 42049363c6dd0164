#include "dataset/index_builder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "base/rng.h"
#include "s3/checksum.h"
#include "shard/tar_writer.h"
#include "store/blocking.h"
#include "store/testing/scripted_store.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Shards above a piece on a store whose answers a test spoils. The index goes to another store.
class IndexBuilderTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kMemory = 64 << 20;  // pieces of 4 MiB

  IndexBuilderTest() {
    Rng rng(31);
    for (int i = 0; i < 100; ++i) {
      std::string data(99'000 + i, '\0');
      for (char& c : data) c = static_cast<char>(rng.Next());
      Append(shard_, fmt::format("sample-{:04}.bin", i), data);
    }
    AppendTarEnd(shard_);
    Put("a.tar", shard_);
    std::string small;
    Append(small, "last.bin", "small");
    AppendTarEnd(small);
    Put("b.tar", small);
    sound_ = Build();
  }

  static void Append(std::string& shard, const std::string& name, const std::string& data) {
    EXPECT_TRUE(AppendTarHeader(shard, name, data.size()).ok());
    shard += data;
    AppendTarPadding(shard, data.size());
  }
  void Put(const std::string& name, const std::string& bytes) {
    ASSERT_TRUE(PutBlocking(*store_, "set/" + name, AsBytes(bytes)).ok());
  }
  void KeepChecksum() {
    store_->checksum =
        ObjectChecksum{ObjectChecksum::Kind::kCrc32c, DigestOf(ObjectChecksum::Kind::kCrc32c, AsBytes(shard_))};
  }

  /// Returns the index, or a text that begins with "error".
  std::string Build(uint64_t memory = kMemory) {
    Runtime runtime(RuntimeOptions{.io_threads = 1, .cpu_threads = 1, .memory_bytes = memory});
    const Location data{.store = store_.get(), .prefix = "set"};
    const auto built = BuildIndex(
        runtime, data, [this] { return target_.Write("index", {}); }, options_);
    if (!built.ok()) return "error " + built.status().ToString();
    report_ = built->report;
    EXPECT_EQ(runtime.memory().used(), 0u);
    return *ReadAll(target_, "index", 1 << 30);
  }

  std::string shard_;  // a.tar
  BuildOptions options_;
  BuildReport report_;
  std::unique_ptr<ScriptedStore> store_ = std::make_unique<ScriptedStore>();
  MemoryStore target_{"target"};
  std::string sound_;
};

TEST_F(IndexBuilderTest, AShardThatArrivedDamagedIsReadAgain) {
  KeepChecksum();
  ASSERT_EQ(Build(), sound_);
  // The damage is within a sample; within a header, so that it is no tar any more; in the last piece.
  for (const uint64_t at : {uint64_t{5'000'000}, uint64_t{0}, shard_.size() - 100'000}) {
    int fetched = 0;
    store_->damage = [&](MutableByteSpan bytes, const GetOptions& options, int) {
      const ByteRange range = options.range;
      if (options.whole || at < range.offset || at >= range.end()) return;
      if (fetched++ == 0) bytes[at - range.offset] ^= std::byte{1};
    };
    EXPECT_TRUE(Build() == sound_) << at;
    EXPECT_EQ(fetched, 2) << at;
  }
}

TEST_F(IndexBuilderTest, AShardThatStaysDamagedIsNoIndex) {
  KeepChecksum();
  store_->damage = [](MutableByteSpan bytes, const GetOptions& options, int) {
    if (!options.whole) bytes[bytes.size() / 2] ^= std::byte{1};
  };
  const std::string error = Build();
  EXPECT_THAT(error, HasSubstr("DATA_LOSS: mem://scripted/set/a.tar: what arrived, twice in a row, does not match"));
}

TEST_F(IndexBuilderTest, AShardThatIsBrokenButArrivedSoIsNamed) {
  shard_[200] ^= 1;  // within the header of the first member
  Put("a.tar", shard_);
  KeepChecksum();
  const size_t before = store_->gets().size();
  const std::string error = Build();
  EXPECT_THAT(error, HasSubstr("set/a.tar"));
  EXPECT_THAT(error, Not(HasSubstr("does not match")));
  std::set<uint64_t> begins;
  const std::vector<GetOptions> gets = store_->gets();
  for (size_t i = before; i < gets.size(); ++i) {
    const uint64_t begin = gets[i].range.offset;
    if (begin == 0) continue;  // of the shard, or of another object
    EXPECT_TRUE(begins.insert(begin).second) << "nothing is read again: " << begin;
  }
  EXPECT_FALSE(begins.empty());
}

TEST_F(IndexBuilderTest, WithoutMemoryToHoldTheSamplesDamageIsAnError) {
  shard_.clear();
  for (int i = 0; i < 4000; ++i) Append(shard_, fmt::format("{:05}.x", i), "y");
  AppendTarEnd(shard_);
  Put("a.tar", shard_);
  KeepChecksum();
  constexpr uint64_t kEnough = 32 << 20;
  constexpr uint64_t kLittle = 16 << 20;  // 1 MiB of it for the samples of a shard
  sound_ = Build(kEnough);
  ASSERT_THAT(sound_, Not(HasSubstr("error")));
  EXPECT_TRUE(Build(kLittle) == sound_);
  bool damage = true;
  store_->damage = [&](MutableByteSpan bytes, const GetOptions& options, int) {
    const uint64_t at = 3999 * 1024 + 512;  // the last sample
    if (options.whole || at < options.range.offset || at >= options.range.end()) return;
    if (std::exchange(damage, false)) bytes[at - options.range.offset] ^= std::byte{1};
  };
  EXPECT_TRUE(Build(kEnough) == sound_);
  EXPECT_FALSE(std::exchange(damage, true));
  EXPECT_THAT(Build(kLittle), HasSubstr("DATA_LOSS: mem://scripted/set/a.tar: what arrived does not match"));
}

// The result is the same if its samples are held back until its checksum has been seen, and if they are not.
TEST_F(IndexBuilderTest, WhatComesBeforeTheDamageIsKept) {
  constexpr uint64_t kMember = 512 + 194 * 512;
  shard_[50 * kMember + 10] ^= 1;  // within the header of a member
  Put("a.tar", shard_);
  options_.skip_bad = true;
  for (const bool checked : {false, true}) {
    if (checked) KeepChecksum();
    const auto index = Index::FromBytes(Build());
    ASSERT_TRUE(index.ok()) << index.status();
    EXPECT_EQ((*index)->size(), 49u + 1) << "of the one before nobody knows whether it was whole";
    ASSERT_EQ(report_.damaged.size(), 1u);
    EXPECT_EQ(report_.damaged[0].key, "a.tar");
    EXPECT_EQ(report_.damaged[0].offset, 50 * kMember);
    EXPECT_EQ(report_.damaged[0].samples, 49u);
    EXPECT_THAT(report_.damaged[0].why, HasSubstr("corrupt tar header"));
  }
}

TEST_F(IndexBuilderTest, WhatDoesNotArriveIsNoDamageOfTheShard) {
  KeepChecksum();
  options_.skip_bad = true;
  store_->damage = [](MutableByteSpan bytes, const GetOptions& options, int) {
    if (!options.whole) bytes[bytes.size() / 2] ^= std::byte{1};
  };
  EXPECT_THAT(Build(), HasSubstr("DATA_LOSS: mem://scripted/set/a.tar: what arrived, twice in a row, does not match"));
}

TEST_F(IndexBuilderTest, WhatTheIndexCannotTakeIsNoDamageOfTheShard) {
  class FailsOnce final : public ObjectWriter {
   public:
    absl::Status Append(ByteSpan) override {
      return std::exchange(failed_, true) ? absl::OkStatus() : absl::DataLossError("a bad disk");
    }
    absl::StatusOr<ObjectInfo> Commit() override { return ObjectInfo{}; }

   private:
    bool failed_ = false;
  };
  shard_.clear();
  Rng rng(32);
  for (int i = 0; i < 12'000; ++i) {  // an index above what is written at once
    std::string name;
    while (name.size() < 90) name.push_back(static_cast<char>('a' + rng.Below(26)));
    Append(shard_, name + ".x", "y");
  }
  AppendTarEnd(shard_);
  Put("a.tar", shard_);
  options_.skip_bad = true;
  Runtime runtime(RuntimeOptions{.io_threads = 1, .cpu_threads = 1, .memory_bytes = kMemory});
  const Location data{.store = store_.get(), .prefix = "set"};
  const auto built = BuildIndex(
      runtime, data, [] { return std::make_unique<FailsOnce>(); }, options_);
  EXPECT_THAT(built.status().ToString(), HasSubstr("DATA_LOSS: mem://scripted/set/a.tar: a bad disk"));
}

TEST_F(IndexBuilderTest, TheHeadsOfLargeShardsAreInFlightTogether) {
  KeepChecksum();
  for (int i = 0; i < 10; ++i) Put(fmt::format("c{}.tar", i), shard_);
  std::atomic<int> asked{0};
  std::atomic<int> asked_at_first_answer{0};
  store_->on_head = [&](const std::string&) { ++asked; };
  // No answer comes before all objects are asked for.
  store_->before_head_answer = [&] {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(300);
    while (asked < 11 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    int none = 0;
    asked_at_first_answer.compare_exchange_strong(none, asked);
  };
  const std::string index = Build();
  EXPECT_THAT(index, Not(::testing::StartsWith("error")));
  EXPECT_EQ(asked_at_first_answer, 11);
}

}  // namespace
}  // namespace millrace
