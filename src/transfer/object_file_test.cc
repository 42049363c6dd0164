#include "transfer/object_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "store/blocking.h"
#include "store/memory_store.h"
#include "store/testing/forwarding_store.h"

namespace millrace {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;

// Remembers which ranges were asked for.
class ListeningStore final : public ForwardingStore {
 public:
  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override {
    ranges.push_back(options.range);
    below().Get(std::move(key), into, std::move(options), std::move(done));
  }
  uint64_t asked() const {
    uint64_t bytes = 0;
    for (const ByteRange& range : ranges) bytes += range.length;
    return bytes;
  }
  std::vector<ByteRange> ranges;  // written by the thread that reads
};

std::string RandomContents(uint64_t size, uint64_t seed) {
  std::string bytes(size, '\0');
  Rng rng(seed);
  for (char& byte : bytes) byte = static_cast<char>(rng.Below(256));
  return bytes;
}

class ObjectFileTest : public ::testing::Test {
 protected:
  void Write(const std::string& bytes) { ASSERT_TRUE(PutBlocking(store_, "key", AsBytes(bytes)).ok()); }
  std::unique_ptr<ObjectFile> Open() {
    absl::StatusOr<std::unique_ptr<ObjectFile>> file = ObjectFile::Open(store_, memory_, "key");
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  static std::string Read(ObjectFile& file, uint64_t offset, uint64_t size) {
    std::string into(size, '?');
    const absl::StatusOr<size_t> count = file.Read(offset, {reinterpret_cast<std::byte*>(into.data()), into.size()});
    EXPECT_TRUE(count.ok()) << count.status();
    return into.substr(0, *count);
  }

  ListeningStore store_;
  MemoryBudget memory_{64 * kMebibyte};
};

TEST_F(ObjectFileTest, AnySequenceOfReadsGivesTheBytes) {
  const std::string bytes = RandomContents(9 * kMebibyte + 17, 1);
  Write(bytes);
  const std::unique_ptr<ObjectFile> file = Open();
  Rng rng(2);
  uint64_t at = 0;
  for (int i = 0; i < 400; ++i) {
    if (rng.Below(4) == 0) at = rng.Below(bytes.size() + 100);
    const uint64_t size = rng.Below(rng.Below(10) == 0 ? 3 * kMebibyte : 64 << 10);
    const std::string expected = at < bytes.size() ? bytes.substr(at, size) : "";
    ASSERT_EQ(Read(*file, at, size), expected) << "read " << i << " at " << at;
    at += expected.size();
  }
  EXPECT_LE(memory_.used(), memory_.limit());
}

TEST_F(ObjectFileTest, WhatGoesOnIsReadAheadOnceAndWhatJumpsAlone) {
  const std::string bytes = RandomContents(20 * kMebibyte, 3);
  Write(bytes);
  std::unique_ptr<ObjectFile> file = Open();
  for (uint64_t at = 0; at < bytes.size(); at += 64 << 10)
    ASSERT_EQ(Read(*file, at, 64 << 10), bytes.substr(at, 64 << 10));
  EXPECT_EQ(store_.asked(), bytes.size());
  EXPECT_LT(store_.ranges.size(), 30U);

  file = Open();
  store_.ranges.clear();
  for (uint64_t i = 0; i < 20; ++i) Read(*file, (37 * i + 5) % 20 * kMebibyte, 100);
  EXPECT_EQ(store_.asked(), 20U * 100);
}

TEST_F(ObjectFileTest, AReplacedObjectIsNotReadOn) {
  Write(RandomContents(4 * kMebibyte, 4));
  const std::unique_ptr<ObjectFile> file = Open();
  EXPECT_EQ(Read(*file, 3 * kMebibyte, 10).size(), 10U);
  Write(RandomContents(4 * kMebibyte, 5));
  std::string into(10, '?');
  const MutableByteSpan span{reinterpret_cast<std::byte*>(into.data()), into.size()};
  EXPECT_TRUE(absl::IsFailedPrecondition(file->Read(kMebibyte, span).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(file->Read(0, span).status()));
}

TEST_F(ObjectFileTest, NoObjectAndAStop) {
  EXPECT_TRUE(absl::IsNotFound(ObjectFile::Open(store_, memory_, "none").status()));
  Write(RandomContents(4 * kMebibyte, 6));
  const std::unique_ptr<ObjectFile> file = Open();
  std::stop_source stop;
  stop.request_stop();
  std::string into(2 * kMebibyte, '?');
  const MutableByteSpan span{reinterpret_cast<std::byte*>(into.data()), into.size()};
  EXPECT_TRUE(absl::IsCancelled(file->Read(0, span, stop.get_token()).status()));
  EXPECT_EQ(Read(*file, 0, 2 * kMebibyte).size(), 2 * kMebibyte);
}

}  // namespace
}  // namespace millrace
