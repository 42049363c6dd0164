#include "store/joined_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/crypto.h"
#include "store/blocking.h"
#include "store/joined_objects.h"
#include "store/testing/scripted_store.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

class JoinedStoreTest : public ::testing::Test {
 protected:
  JoinedStoreTest() {
    for (const auto& [key, text] : std::vector<std::pair<std::string, std::string>>{
             {"d/7.jpg", "image"}, {"d/7.json", ""}, {"d/7.mask.png", "mask of it"}}) {
      objects_.push_back(*PutBlocking(below_, key, AsBytes(text)));
      objects_.back().key = key;
      objects_.back().size = text.size();
    }
    joined_ = JoinObjects(objects_);
  }

  absl::StatusOr<std::string> Read(uint64_t offset, uint64_t length, std::vector<SpanChecksum> checksums = {}) {
    std::string text(length, '?');
    GetOptions get;
    get.range = {.offset = offset, .length = length};
    get.if_match = joined_.etag;
    get.checksums = std::move(checksums);
    get.damaged = &damaged_;
    absl::StatusOr<GetResult> got = GetBlocking(store_, joined_.key, AsWritableBytes(text), std::move(get));
    if (!got.ok()) return got.status();
    EXPECT_EQ(got->object_size, 15u);
    return text;
  }

  ScriptedStore below_;
  JoinedStore store_{below_};
  std::vector<ObjectInfo> objects_;
  ObjectInfo joined_;
  std::vector<ByteRange> damaged_;
};

TEST_F(JoinedStoreTest, EveryRangeIsThatOfTheBytesOneBehindTheOther) {
  const std::string all = "imagemask of it";
  for (uint64_t begin = 0; begin <= all.size(); ++begin) {
    for (uint64_t end = begin; end <= all.size(); ++end)
      EXPECT_EQ(*Read(begin, end - begin), all.substr(begin, end - begin));
  }
  EXPECT_TRUE(absl::IsOutOfRange(Read(10, 6).status()));
}

TEST_F(JoinedStoreTest, AnObjectThatWasReplacedIsNamed) {
  ASSERT_TRUE(PutBlocking(below_, "d/7.mask.png", AsBytes("MASK OF IT")).ok());
  EXPECT_EQ(*Read(0, 5), "image") << "only what is read is pinned";
  const absl::Status status = Read(0, 6).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("d/7.mask.png"));
  ASSERT_TRUE(DeleteBlocking(below_, "d/7.jpg").ok());
  EXPECT_TRUE(absl::IsNotFound(Read(0, 15).status()));
}

TEST_F(JoinedStoreTest, ChecksumsMayCoverSeveralObjects) {
  const std::vector<SpanChecksum> sums = {{{0, 15}, Crc32c(AsBytes("imagemask of it"))}};
  EXPECT_TRUE(Read(0, 15, sums).ok());
  // Damage that goes away is read over; damage that stays is reported.
  below_.damage = [](MutableByteSpan bytes, const GetOptions&, int times) {
    if (times == 1) bytes[0] ^= std::byte{1};
  };
  EXPECT_TRUE(Read(0, 15, sums).ok());
  below_.damage = [](MutableByteSpan bytes, const GetOptions&, int) { bytes[0] ^= std::byte{1}; };
  const absl::Status status = Read(0, 15, sums).status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("d/7.{jpg,json,mask.png}"));
  EXPECT_EQ(damaged_, (std::vector<ByteRange>{{0, 15}}));
}

TEST_F(JoinedStoreTest, HeadTellsOfAllOfThem) {
  const absl::StatusOr<ObjectInfo> head = HeadBlocking(store_, joined_.key);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->etag, joined_.etag);
  EXPECT_EQ(head->size, 15u);
  ASSERT_TRUE(PutBlocking(below_, "d/7.json", AsBytes("{}")).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(HeadBlocking(store_, joined_.key).status()));
}

TEST_F(JoinedStoreTest, OtherKeysGoThrough) {
  EXPECT_EQ(*ReadAll(store_, "d/7.jpg", 100), "image");
  EXPECT_EQ(ListAll(store_, "d/")->size(), 3u);
}

TEST(JoinedObjects, MayLieInSeveralFolders) {
  for (const std::vector<std::string>& keys :
       {std::vector<std::string>{"voc/JPEG/a/1.jpg", "voc/Masks/a/1.png", "voc/1.txt", "x"}, {"1.jpg", "m/1.png"}}) {
    std::vector<ObjectInfo> objects;
    for (const std::string& key : keys) objects.push_back({.key = key, .size = 10 + objects.size(), .etag = "e" + key});
    const ObjectInfo joined = JoinObjects(objects);
    const auto split = SplitJoined(joined.key, joined.etag);
    ASSERT_TRUE(split.ok()) << split.status();
    ASSERT_EQ(split->size(), objects.size());
    for (size_t i = 0; i < objects.size(); ++i) {
      EXPECT_EQ((*split)[i].key, objects[i].key);
      EXPECT_EQ((*split)[i].size, objects[i].size);
      EXPECT_EQ((*split)[i].etag, objects[i].etag);
    }
  }
  // Below another prefix it is the same key.
  EXPECT_EQ(JoinObjects({{.key = "p/a/1.jpg", .size = 1}, {.key = "p/b/1.png", .size = 2}}).key,
            "p/" + JoinObjects({{.key = "a/1.jpg", .size = 1}, {.key = "b/1.png", .size = 2}}).key);
}

TEST_F(JoinedStoreTest, PartsOutsideOfThePrefixAreRefused) {
  JoinedStore narrow(below_, "d/7.j");
  const absl::Status status = HeadBlocking(narrow, joined_.key).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("d/7.mask.png"));
}

TEST(JoinedObjects, KeysOfFilesAreNotBelieved) {
  using std::string_view_literals::operator""sv;
  for (const std::string_view key : {"a\0"sv, "a\0x"sv,
                                     "a\0"
                                     "5"sv,
                                     "a\0"
                                     "5\0b"sv,
                                     "a\0"
                                     "5\0b/"sv,
                                     "a\0"
                                     "5\0/6"sv,
                                     "a\0"
                                     "5\0b/6x"sv,
                                     "a\0"
                                     "5\0../b/6"sv,
                                     "a\0"
                                     "5\0b/../c/6"sv,
                                     "a\0"
                                     "5\0b/99999999999999999999"sv,
                                     "a\0"
                                     "5\0b/70368744177665"sv,
                                     "a\0-1\0b/6"sv}) {
    EXPECT_FALSE(SplitJoined(key, "").ok()) << key;
    EXPECT_EQ(JoinedName(key), "a");
  }
  EXPECT_FALSE(SplitJoined("a\0"
                           "5\0b/6"sv,
                           "e1\0e2\0e3"sv)
                   .ok());
  std::string many = "a";
  for (int i = 0; i < 100; ++i) many += std::string("\0", 1) + "5/5";
  EXPECT_FALSE(SplitJoined(many, "").ok());
}

}  // namespace
}  // namespace millrace
