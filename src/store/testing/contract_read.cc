#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/crypto.h"
#include "store/blocking.h"
#include "store/testing/contract.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST_P(StoreContract, ReadsBackWhatWasPut) {
  const std::string text = RandomText(100'000, 1);
  const auto put = PutBlocking(store(), "a/b.bin", AsBytes(text));
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_EQ(put->size, text.size());

  std::string read(text.size(), '?');
  GetOptions options;
  options.range = {0, text.size()};
  const auto got = GetBlocking(store(), "a/b.bin", AsWritableBytes(read), options);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(read == text);
  EXPECT_EQ(got->etag, put->etag);
  EXPECT_EQ(got->object_size, text.size());

  const auto head = HeadBlocking(store(), "a/b.bin");
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->size, text.size());
  EXPECT_EQ(head->etag, put->etag);
  EXPECT_GT(head->modified_ms, 1'600'000'000'000);
}

TEST_P(StoreContract, ReadsExactlyTheRange) {
  PutText("k", "0123456789");
  EXPECT_EQ(*GetText("k", {0, 1}), "0");
  EXPECT_EQ(*GetText("k", {3, 4}), "3456");
  EXPECT_EQ(*GetText("k", {9, 1}), "9");
  EXPECT_EQ(*GetText("k", {0, 10}), "0123456789");
}

TEST_P(StoreContract, RefusesRangesBeyondTheEnd) {
  PutText("k", "0123456789");
  for (const ByteRange range :
       {ByteRange{0, 11}, ByteRange{9, 2}, ByteRange{10, 1}, ByteRange{100, 5}, ByteRange{UINT64_MAX - 5, 5}}) {
    const auto got = GetText("k", range);
    EXPECT_EQ(got.status().code(), absl::StatusCode::kOutOfRange)
        << range.offset << "+" << range.length << " " << got.status();
    EXPECT_THAT(ToStd(got.status().message()), StartsWith(store().Uri("k")));
  }
}

TEST_P(StoreContract, RefusesRangesBeyond64Bits) {
  PutText("k", "0123456789");
  EXPECT_EQ(GetText("k", {UINT64_MAX, 2}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(StoreContract, AnEmptyRangeOfAnExistingObjectSucceeds) {
  PutText("k", "0123456789");
  PutText("empty", "");
  EXPECT_TRUE(GetText("k", {0, 0}).ok());
  EXPECT_TRUE(GetText("k", {10, 0}).ok());
  EXPECT_TRUE(GetText("empty", {0, 0}).ok());
  EXPECT_EQ(GetText("missing", {0, 0}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GetText("k", {11, 0}).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(GetText("empty", {0, 1}).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Contents("empty"), "");
}

TEST_P(StoreContract, RefusesABufferOfAnotherLength) {
  PutText("k", "0123456789");
  std::string four(4, '?');
  GetOptions options;
  options.range = {0, 5};
  EXPECT_EQ(GetBlocking(store(), "k", AsWritableBytes(four), options).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(four, "????");
}

TEST_P(StoreContract, MissingObjectsAreNotFound) {
  PutText("dir/x", "1");
  for (const std::string key : {"missing", "dir", "dir/missing", "dir/x/y"}) {
    const auto get = GetText(key, {0, 1});
    EXPECT_EQ(get.status().code(), absl::StatusCode::kNotFound) << key << " " << get.status();
    EXPECT_THAT(ToStd(get.status().message()), StartsWith(store().Uri(key)));
    const auto head = HeadBlocking(store(), key);
    EXPECT_EQ(head.status().code(), absl::StatusCode::kNotFound) << key << " " << head.status();
    EXPECT_THAT(ToStd(head.status().message()), StartsWith(store().Uri(key)));
  }
}

TEST_P(StoreContract, PinsByEtag) {
  PutText("k", "first");
  const std::string etag = HeadBlocking(store(), "k")->etag;
  GetOptions pinned;
  pinned.if_match = etag;
  EXPECT_EQ(*GetText("k", {0, 5}, pinned), "first");
  PutText("k", "other");
  EXPECT_NE(HeadBlocking(store(), "k")->etag, etag);
  const auto got = GetText("k", {0, 5}, pinned);
  if (got.ok() && store().traits().keeps_versions) {
    EXPECT_EQ(*got, "first");
  } else {
    EXPECT_EQ(got.status().code(), absl::StatusCode::kFailedPrecondition) << got.status();
    EXPECT_THAT(ToStd(got.status().message()), StartsWith(store().Uri("k")));
  }
  EXPECT_EQ(*GetText("k", {0, 5}), "other");
}

TEST_P(StoreContract, VerifiesChecksums) {
  PutText("k", "0123456789");
  GetOptions options;
  options.checksums = {{{2, 3}, Crc32c(AsBytes("234"))}, {{5, 4}, Crc32c(AsBytes("5678"))}, {{7, 0}, 0}};
  std::vector<ByteRange> damaged;
  options.damaged = &damaged;
  EXPECT_EQ(*GetText("k", {2, 8}, options), "23456789");
  EXPECT_THAT(damaged, IsEmpty());
  options.checksums[1].crc32c ^= 1;
  const auto got = GetText("k", {2, 8}, options);
  EXPECT_EQ(got.status().code(), absl::StatusCode::kDataLoss) << got.status();
  EXPECT_THAT(ToStd(got.status().message()), StartsWith(store().Uri("k")));
  EXPECT_THAT(damaged, ElementsAre(ByteRange{5, 4}));
}

TEST_P(StoreContract, RefusesChecksumsOutsideTheRange) {
  PutText("k", "0123456789");
  for (const ByteRange range : {ByteRange{1, 2}, ByteRange{8, 3}, ByteRange{11, 1}, ByteRange{3, UINT64_MAX}}) {
    GetOptions options;
    options.checksums = {{range, 0}};
    EXPECT_EQ(GetText("k", {2, 8}, options).status().code(), absl::StatusCode::kInvalidArgument) << range.offset;
  }
}

}  // namespace
}  // namespace millrace
